"""Words of a launch, checked alike on the command line and in a file. Pure."""

import re

from cluster.base.errors import UsageError
from cluster.links.changes import parse_seconds

LEAST_STALL_TIMEOUT_S = 3.0
NEVER, NEVER_S = "none", 0.0


def parse_stall_timeout_s(text: str) -> float:
    """2m or 90s in seconds; none is NEVER_S.

    Raises:
        UsageError: no duration, or one that is too short.
    """
    if text == NEVER:
        return NEVER_S
    seconds = parse_seconds(text)
    if seconds < LEAST_STALL_TIMEOUT_S:
        raise UsageError(
            f"--stall-timeout {text} is too short to tell",
            f"{LEAST_STALL_TIMEOUT_S:.0f}s or more, or {NEVER}",
        )
    return seconds


def parse_essential_ranks(text: str) -> set[int]:
    """0 or 0,2 as ranks.

    Raises:
        UsageError: a word that is none.
    """
    words = text.split(",")
    if strange := [word for word in words if not re.fullmatch(r"\d{1,6}", word, re.ASCII)]:
        raise UsageError(f"--essential-ranks {text}: {strange[0]!r} is no rank", "0 or 0,2")
    return {int(word) for word in words}
