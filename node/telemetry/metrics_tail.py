"""Follows a rank's metrics while they grow: every byte is read at most once, and a bounded number of them per look."""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from protocol.metrics import SCORES
from protocol.telemetry import LARGEST, RankLook

MOST_NEW_BYTES = 1 << 16  # at one look, some 400 steps; of more, the first are skipped
MOST_LINE_BYTES = 1 << 14  # a longer line is ignored
Said = Mapping[str, object]


class MetricsTail:
    """The latest of one rank's metrics, and sums over its steps.

    If more came between two looks than one look reads, the sums are scaled up by bytes: an estimate.

    Args:
        path: the rank's metrics.jsonl, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin_again()

    def look(self) -> RankLook:
        """Return the metrics so far; empty before the first line."""
        with suppress(OSError):  # no file yet, or none that can be read
            self._read_new()
        return self._seen

    def _begin_again(self) -> None:
        self._place, self._rest = 0, b""
        self._seen = RankLook()

    def _read_new(self) -> None:
        # A program of the run may have put anything in its place: opening a pipe would block.
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode):
                self._take(file, found.st_size)
        finally:
            os.close(file)

    def _take(self, file: int, size: int) -> None:
        if size < self._place:  # a restarted rank writes it anew
            self._begin_again()
        came = size - self._place
        if came > MOST_NEW_BYTES:
            self._place, self._rest = size - MOST_NEW_BYTES, b""
        read = os.pread(file, min(came, MOST_NEW_BYTES), self._place)
        self._place += len(read)
        *lines, rest = (self._rest + read).split(b"\n")
        self._rest = rest[-MOST_LINE_BYTES:]
        scale = came / len(read) if read else 1.0
        for line in lines:
            self._read_line(line, scale)

    def _read_line(self, line: bytes, scale: float) -> None:
        with suppress(ValueError, RecursionError):
            said = json.loads(line[: MOST_LINE_BYTES + 1])
            if isinstance(said, dict):
                self._add(said, scale)

    def _add(self, said: Said, scale: float) -> None:
        """Add a line, even if it is not node.train's: a user's own program may report as much."""
        seen = self._seen
        if (at := _number(said.get("time"))) is not None:
            seen = seen._replace(began=at if seen.began is None else seen.began, time=at)
        if (step := _number(said.get("step"))) is not None and said.get("event") != "eval":
            seen = seen._replace(step=int(step))
        if said.get("event") == "step":
            seen = seen._replace(
                loss=_number(said.get("loss")),
                compute_s=(seen.compute_s or 0) + scale * (_number(said.get("compute_s")) or 0),
                comm_s=(seen.comm_s or 0) + scale * (_number(said.get("comm_s")) or 0),
                sent_bytes=(seen.sent_bytes or 0) + scale * (_number(said.get("sent_bytes")) or 0),
            )
        self._seen = seen._replace(score=_score(said) or seen.score)


def _score(said: Said) -> tuple[str, float] | None:
    for name in SCORES:
        if (value := _number(said.get(name))) is not None:
            return name, value
    return None


def _number(value: object) -> float | None:
    """Return a finite number of reasonable size, else None: a loss may be nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < LARGEST else None
