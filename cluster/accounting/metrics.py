"""Reads the metrics that ranks wrote: JSON lines, of which any may be truncated or hostile.

A line that is not what protocol/metrics.py says counts as not there. All that comes of this file has those types:
`cluster.accounting.collective_stats` and others reckon with it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from protocol.collectives import MOST_COLLECTIVES, CollectiveLine, read_collective
from protocol.metrics import MOST_LINE_BYTES, End, Line, Rollout, Start, read_line
from protocol.reader import FormatError


class LastLines(NamedTuple):
    """The last line of each of these events in a rank's metrics; None where there is none."""

    start: Start | None = None
    rollout: Rollout | None = None
    end: End | None = None


def read_events(path: Path) -> Iterator[Line]:
    """The lines of a rank's metrics; none where it left none."""
    for value in _values(path):
        with suppress(FormatError):
            yield read_line(value)


def last_lines(path: Path) -> LastLines:
    """Of a rank's metrics."""
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
    """The lines of a rank's collectives.jsonl."""
    for number, value in enumerate(_values(path)):
        if number == MOST_COLLECTIVES:
            return
        with suppress(FormatError):
            yield read_collective(value)


def parse_event(text: str | bytes) -> Line | None:
    """One line of metrics; None where it is none."""
    try:
        return read_line(json.loads(text))
    except (ValueError, RecursionError):  # FormatError is one
        return None


def _values(path: Path) -> Iterator[object]:
    """What is a JSON object of the lines of a plain file."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        while text := lines.readline(MOST_LINE_BYTES):
            with suppress(ValueError, RecursionError):
                if isinstance(value := json.loads(text), dict):
                    yield value
