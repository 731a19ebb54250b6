"""What is to be done from time to time, within a loop that does something else."""

import time


class OnceIn:
    """True once in so many seconds, first when the first of them are over."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_at = time.monotonic() + interval_s

    def __call__(self) -> bool:
        """Whether it is due; if so it counts as done."""
        if time.monotonic() < self._due_at:
            return False
        self._due_at = time.monotonic() + self._interval_s
        return True
