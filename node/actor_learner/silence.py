"""How long a learner has had nothing from its actors that it could learn."""

import time

# Of the limit: the most that one update, test or checkpoint counts, however long it takes.
BUSY_SHARE = 0.25


class Silence:
    """Counts the seconds since the last experience that could be learnt.

    A learner that is busy answers nobody: actors cannot act without weights, so a long test says nothing about them.

    Args:
        limit_s: seconds after which the learner gives up.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._silent_s = 0.0
        self._listened_at = time.monotonic()

    @property
    def is_too_long(self) -> bool:
        """Whether it has lasted longer than the limit."""
        return self._silent_s > self._limit_s

    def listened(self) -> None:
        """Count the time until now: the learner has just read its messages."""
        now = time.monotonic()
        self._silent_s += min(now - self._listened_at, BUSY_SHARE * self._limit_s)
        self._listened_at = now

    def end(self) -> None:
        """Begin to count again: experience has come."""
        self._silent_s = 0.0
