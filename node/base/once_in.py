"""Work that is done from time to time, within a loop that does something else."""

import time


class OnceIn:
    """A condition that is true once per interval, for the first time when the first interval is over."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_at = time.monotonic() + interval_s

    def __call__(self) -> bool:
        """Return whether it is due; if so, the next interval begins."""
        if time.monotonic() < self._due_at:
            return False
        self._due_at = time.monotonic() + self._interval_s
        return True
