"""Reads the metrics that ranks wrote: JSON lines, any of which may be truncated or hostile.

A line that is not as in protocol/metrics.py is skipped. Times of nodes on other hosts become those of this machine's
clock, as far as the run's clocks.json tells; only `published_at_s`, by the clock of another rank, stays.

Everything that this file returns has the types of protocol/metrics.py: `cluster.accounting.collective_stats` and others
use it unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from cluster.accounting.clocks import correction_of, read_clocks
from protocol.collectives import MOST_COLLECTIVES, CollectiveLine, read_collective
from protocol.metrics import (
    MOST_LINE_BYTES,
    End,
    Experience,
    Line,
    Rollout,
    Start,
    Weights,
    read_line,
)
from protocol.reader import FormatError

# Some 500,000 steps. Slim lines of it take six times as much of the host's memory, whole ones up to 30 times.
MOST_FILE_BYTES = 128 << 20
KEPT = ("total", "median", "p95")  # of a start's seconds, and of distributions

T = TypeVar("T")


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


def slim_events(path: Path) -> Iterator[Line]:
    """Yield the same lines, to be kept in any number: of the objects in them, only what reports show."""
    return map(_slim, read_events(path))


def last_lines(path: Path) -> LastLines:
    """Return the last lines of a rank's metrics; of a start's configuration, only `resume`, where it is text."""
    start, rollout, end = LastLines()
    for line in read_events(path):
        if isinstance(line, Start):
            resume = (line.config or {}).get("resume")
            start = line._replace(config={"resume": resume} if isinstance(resume, str) else {})
        elif isinstance(line, Rollout):
            rollout = line
        elif isinstance(line, End):
            end = line
    return LastLines(start, rollout, end)


def _slim(line: Line) -> Line:
    if isinstance(line, Start):
        return Start(line.rank, line.time, seconds=_only(KEPT, line.seconds))
    if isinstance(line, Experience):
        return line._replace(
            staleness_updates=_only(KEPT, line.staleness_updates),
            staleness_s=_only(KEPT, line.staleness_s),
            weights_age_s=_only(KEPT, line.weights_age_s),
        )
    return End(line.rank, line.time) if isinstance(line, End) else line


def _only(names: Iterable[str], values: Mapping[str, T]) -> dict[str, T]:
    return {name: values[name] for name in names if name in values}


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
