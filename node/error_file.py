"""What a rank left of its failure in TORCHELASTIC_ERROR_FILE: torch's `@record` writes it."""

import json
from pathlib import Path
from typing import NamedTuple


class RankError(NamedTuple):
    """A rank's failure.

    Attributes:
        time: when, Unix time; infinite where the rank could not say.
        words: its error, in one line; empty where it could not say.
    """

    time: float = float("inf")
    words: str = ""


def read_error(path: Path) -> RankError:
    """What is in the file, if there is one.

    The time is the file's own, for the one inside is in whole seconds.
    """
    try:
        message = json.loads(path.read_text())["message"]
        failed = path.stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        return RankError()
    words = message.get("message") if isinstance(message, dict) else message
    return RankError(failed, " ".join(str(words).split()))
