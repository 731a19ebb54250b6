"""Reads why a rank failed: the file that torch's `@record` has written, or the last line of a traceback.

A rank that fails leaves the group before it can say why, and another one may be quicker to say that it left: so who
looks for the root cause must tell those that only saw it (`is_bystander`), here and in `cluster/run/root_cause.py`.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

# gloo's, torch's stores' and NCCL's words of another rank's end, or silence.
OTHERS_END = re.compile(
    r"(closed|reset) by peer|broken pipe|connection was likely closed|remote process exited|ncclRemoteError"
    r"|timed out waiting|wait timeout|socket timeout|connect timeout|application timeout|collective operation timeout"
    r"|failed to pass monitoredBarrier",
    re.IGNORECASE,
)
TRACEBACK = "Traceback (most recent call last):"
RANK_PREFIX = re.compile(
    r"^\[rank\d+\]: ?", re.MULTILINE
)  # torch's, in front of each line of a traceback


class RankError(NamedTuple):
    """A rank's failure."""

    time: float = float("inf")
    """When, Unix time; infinite where the rank could not say."""
    words: str = ""
    """Its error, in one line; empty where it could not say."""


def read_error(path: Path, since: float = 0.0) -> RankError:
    """What is in the file, if there is one.

    The time is the file's own, for the one inside is in whole seconds.

    Args:
        path: the file.
        since: when the rank was started, Unix time: what is older was left before it was started again.
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
    """Whether an error speaks of another rank's end or silence, and not of a failure of the rank's own."""
    return OTHERS_END.search(words) is not None


def last_error(output: str) -> str:
    """The exception that ended a Python program, by the end of what it printed: its first line, or nothing."""
    _, traceback, rest = RANK_PREFIX.sub("", output).rpartition(TRACEBACK)
    lines = rest.splitlines() if traceback else []
    return next((line for line in lines if line.strip() and not line.startswith(" ")), "")
