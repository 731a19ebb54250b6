"""Reads the metrics that ranks wrote: JSON lines, any of which may be truncated or hostile.

A line that is not as in protocol/metrics.py is skipped. Times of nodes on other hosts become those of this machine's
clock, as far as the run's clocks.json tells; only `published_at_s`, by the clock of another rank, stays.

Everything that this file returns has the types of protocol/metrics.py: `cluster.accounting.collective_stats` and others
use it unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cluster.accounting.clocks import correction_of, read_clocks
from protocol.collectives import MOST_COLLECTIVES, CollectiveLine, read_collective
from protocol.metrics import MOST_LINE_BYTES, End, Line, Rollout, Start, Weights, read_line
from protocol.reader import FormatError

MOST_FILE_BYTES = (
    128 << 20
)  # some 500,000 steps; parsed, it takes six times as much of the host's memory


class LastLines(NamedTuple):
    """The last line of each of these events in a rank's metrics; None if there is none."""

    start: Start | None = None
    rollout: Rollout | None = None
    end: End | None = None


def read_events(path: Path) -> Iterator[Line]:
    """Yield the lines of a rank's metrics; none if it left no file."""
    ahead_s = _ahead_s(path)
    for value in _values(path):
        with suppress(FormatError):
            yield _on_our_clock(read_line(value), ahead_s)


def last_lines(path: Path) -> LastLines:
    """Return the last lines of a rank's metrics."""
    start, rollout, end = LastLines()
    for line in read_events(path):
        if isinstance(line, Start):
            start = line
        elif isinstance(line, Rollout):
            rollout = line
        elif isinstance(line, End):
            end = line
    return LastLines(start, rollout, end)


def read_parts(path: Path) -> Iterator[CollectiveLine]:
    """Yield the lines of a rank's collectives.jsonl."""
    ahead_s = _ahead_s(path)
    for number, value in enumerate(_values(path)):
        if number == MOST_COLLECTIVES:
            return
        with suppress(FormatError):
            line = read_collective(value)
            yield line._replace(time=line.time - ahead_s) if ahead_s else line


def parse_event(text: str | bytes) -> Line | None:
    """Parse one line of metrics; return None if it is not valid."""
    try:
        return read_line(json.loads(text))
    except (ValueError, RecursionError):  # includes FormatError
        return None


def _ahead_s(path: Path) -> float:
    """Return how far the times in FOLDER/metrics/RANK.… are ahead of this machine's clock."""
    return correction_of(read_clocks(path.parent.parent), path.name.partition(".")[0])


def _on_our_clock(line: Line, ahead_s: float) -> Line:
    if not ahead_s:
        return line
    if isinstance(line, Weights):
        line = line._replace(received_at_s=line.received_at_s - ahead_s)
    return line._replace(time=line.time - ahead_s)


def _values(path: Path) -> Iterator[object]:
    """Yield the JSON objects among the lines of a regular file."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        while lines.tell() < MOST_FILE_BYTES and (text := lines.readline(MOST_LINE_BYTES)):
            with suppress(ValueError, RecursionError):
                if isinstance(value := json.loads(text), dict):
                    yield value
