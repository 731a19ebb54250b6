"""What links carried over time, from links.csv (cluster/live/link_log.py), every value of which is validated."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from pathlib import Path

from cluster.accounting.clocks import correction_of, read_clocks
from cluster.reporting.run_data import LinkStretch
from cluster.reporting.values import number
from protocol.reader import LARGEST

COLUMNS = ("time_s", "bytes", "backlog", "drops", "rate_mbyte_s")
MOST_BYTES, MOST_ROWS = 1 << 26, 1_000_000
SHORTEST_S = 0.02  # between two looks; shorter ones give no rate
LONGEST_S = 1e7  # of a run; later times are invalid
MBYTE = 1e6


@dataclass(frozen=True)
class Look:
    """The counters of a link at one moment, in Unix time."""

    at: float
    sent_bytes: float
    backlog_bytes: float
    dropped: float
    rate_mbyte_s: float


Looks = Mapping[str, Sequence[Look]]


def read_looks(path: Path, links: Collection[str]) -> dict[str, list[Look]]:
    """Return the looks by link, in time order, by this machine's clock as far as the run's clocks.json tells.

    Args:
        path: path of links.csv, which may not exist.
        links: the links of the run; rows of others are left out.
    """
    found: dict[str, list[Look]] = {}
    clocks = read_clocks(path.parent)
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for row in islice(csv.DictReader(file), MOST_ROWS):
                name, look = row.get("link"), _look(row)
                if look is not None and name in links:
                    found.setdefault(str(name), []).append(look)
    except (OSError, csv.Error):
        pass  # keep the rows before the error
    for name, some in found.items():
        if ahead_s := correction_of(clocks, name.partition("->")[0]):
            found[name] = [replace(one, at=one.at - ahead_s) for one in some]
    return {name: sorted(some, key=lambda one: one.at) for name, some in found.items()}


def _look(row: Mapping[str, str | None]) -> Look | None:
    values = [_number(row.get(column)) for column in COLUMNS]
    known = [value for value in values if value is not None and value >= 0]
    return Look(*known) if len(known) == len(COLUMNS) else None


def _number(text: object) -> float | None:
    try:
        return number(float(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def stretches_of(looks: Looks, began: float) -> dict[str, list[LinkStretch]]:
    """Return what links carried between looks, in seconds since `began` (Unix time), without idle links."""
    found = {name: list(_stretches(some, began)) for name, some in looks.items()}
    return {name: some for name, some in found.items() if any(one.mbyte_s > 0 for one in some)}


def _stretches(looks: Sequence[Look], began: float) -> Iterator[LinkStretch]:
    """Yield stretches; skip intervals in which a counter was reset, and times before the first rank."""
    for before, now in pairwise(looks):
        over_s, start_s = now.at - before.at, before.at - began
        if over_s < SHORTEST_S or now.sent_bytes < before.sent_bytes or start_s > LONGEST_S:
            continue
        if now.at > began:
            yield LinkStretch(
                max(0.0, start_s),
                now.at - began,
                min(LARGEST, (now.sent_bytes - before.sent_bytes) / over_s / MBYTE),
                now.rate_mbyte_s,
                now.backlog_bytes,
                max(0.0, now.dropped - before.dropped),
                now.rate_mbyte_s == before.rate_mbyte_s,
            )


def joined(stretches: Sequence[LinkStretch], most: int) -> list[LinkStretch]:
    """Return at most `most` stretches over the whole time, each the mean of a group, with its longest queue."""
    return [mean_of(group) for group in grouped(stretches, most)]


def grouped(stretches: Sequence[LinkStretch], most: int) -> list[list[LinkStretch]]:
    """Return the stretches in at most `most` groups that take equally long; alone if there are no more than that."""
    if len(stretches) <= most:
        return [[one] for one in stretches]
    start_s, end_s = stretches[0].start_s, stretches[-1].end_s
    width_s = max(SHORTEST_S, (end_s - start_s) / most)
    groups = groupby(stretches, key=lambda one: int((one.start_s - start_s) / width_s))
    return [list(group) for _, group in groups]


def mean_of(some: Sequence[LinkStretch]) -> LinkStretch:
    """Return the mean of stretches that follow one another, with the longest queue of any."""
    if len(some) == 1:
        return some[0]
    seconds = [one.end_s - one.start_s for one in some]
    whole_s = sum(seconds)
    carried, rate = (
        sum(value * s for value, s in zip(values, seconds, strict=True)) / whole_s
        for values in ([one.mbyte_s for one in some], [one.rate_mbyte_s for one in some])
    )
    seen = [one.backlog_bytes for one in some if one.backlog_bytes is not None]
    backlog = max(seen, default=None)
    dropped = sum(one.dropped for one in some)
    return LinkStretch(some[0].start_s, some[-1].end_s, carried, rate, backlog, dropped)


def carried_mb(stretches: Sequence[LinkStretch]) -> float:
    """Return the total carried, in 10^6 bytes."""
    return sum(one.mbyte_s * (one.end_s - one.start_s) for one in stretches)
