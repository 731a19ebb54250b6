"""Reads why a rank failed: from the file that torch's `@record` has written, or from the traceback in its output.

A rank that fails leaves the group before it can say why, and another rank may report sooner that it left. So the
search for the root cause must recognise ranks that only saw the failure (`is_bystander`), here and in
`cluster/run/root_cause.py`.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

# Messages of gloo, torch's stores and NCCL about another rank's end, or silence.
OTHERS_END = re.compile(
    r"(closed|reset) by peer|broken pipe|failed to recv, got 0 bytes|connection was likely closed"
    r"|remote process exited|ncclRemoteError|failed to pass monitoredBarrier|timed out waiting|wait timeout"
    r"|socket timeout|connect timeout|application timeout|collective operation timeout",
    re.IGNORECASE,
)
TRACEBACK = "Traceback (most recent call last):"
# torch's, before each line of a traceback
RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)


class RankError(NamedTuple):
    """A rank's failure."""

    time: float = float("inf")
    """Unix time of the failure; infinite if the rank could not say."""
    words: str = ""
    """Its error, in one line; empty if the rank could not say."""


def read_error(path: Path, since: float = 0.0) -> RankError:
    """Read the error file, if there is one.

    The time is the file's own, because the one inside is in whole seconds.

    Args:
        path: the file.
        since: when the rank was started, Unix time: an older file is from before a restart.
    """
    try:
        message = json.loads(path.read_text())["message"]
        failed = path.stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        return RankError()
    if failed < since:
        return RankError()
    words = message.get("message") if isinstance(message, dict) else message
    return RankError(failed, " ".join(str(words).split()))


def is_bystander(words: str) -> bool:
    """Return whether an error is about another rank's end or silence, and not a failure of the rank's own."""
    return OTHERS_END.search(words) is not None


def last_error(output: str) -> str:
    """Return the exception that ended a Python program, from the end of its output: its first line, or nothing."""
    _, traceback, rest = RANK_PREFIX.sub("", output).rpartition(TRACEBACK)
    lines = rest.splitlines() if traceback else []
    return next((line for line in lines if line.strip() and not line.startswith(" ")), "")
