"""Option values of a launch, validated the same way on the command line and in files. Pure."""

import re

from cluster.base.errors import UsageError, shown, unknown
from cluster.links.changes import parse_seconds

LOOK, FULL, NONE = "look", "full", "none"
VERIFICATIONS = {
    LOOK: "measure all links, or only take a look if they were proved and nothing has changed since",
    FULL: "always measure all links",
    NONE: "neither",
}
LEAST_STALL_TIMEOUT_S = 3.0
NEVER, NEVER_S = "none", 0.0


def parse_stall_timeout_s(text: str) -> float:
    """Parse a duration such as 2m or 90s into seconds; none is NEVER_S.

    Raises:
        UsageError: it is not a duration, or too short.
    """
    if text == NEVER:
        return NEVER_S
    seconds = parse_seconds(text)
    if seconds < LEAST_STALL_TIMEOUT_S:
        raise UsageError(
            f"--stall-timeout {text} is too short to detect a stall",
            f"{LEAST_STALL_TIMEOUT_S:.0f}s or more, or {NEVER}",
        )
    return seconds


def parse_verify(value: object) -> str:
    """Parse how links are verified before a run: a key of VERIFICATIONS; true is `look`, false is `none`.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(value, bool):
        return LOOK if value else NONE
    if not isinstance(value, str):
        raise UsageError(f"{shown(value)} is no verification", ", ".join(VERIFICATIONS))
    if value not in VERIFICATIONS:
        raise unknown("verification", value, VERIFICATIONS)
    return value


def parse_essential_ranks(text: str) -> set[int]:
    """Parse ranks such as 0 or 0,2.

    Raises:
        UsageError: a word is not a rank.
    """
    words = text.split(",")
    if strange := [word for word in words if not re.fullmatch(r"\d{1,6}", word, re.ASCII)]:
        raise UsageError(f"--essential-ranks {text}: {strange[0]!r} is no rank", "0 or 0,2")
    return {int(word) for word in words}
