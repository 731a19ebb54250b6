"""Follows events.jsonl, which the schedule writes to the run folder; reads each line once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from cluster.live.news import Happened


class EventsTail:
    """A reader of the schedule's actions.

    Args:
        path: path of events.jsonl, which may not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, 0

    def look(self) -> list[Happened]:
        """Return the schedule's actions since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._place += len(whole) + len(newline)
        found = []
        for line in whole.splitlines():
            with suppress(ValueError, LookupError, TypeError, OverflowError, RecursionError):
                said = json.loads(line)
                found.append(Happened(float(said["after_s"]), str(said["what"])[:300]))
        return found
