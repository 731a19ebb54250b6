"""Traces: a link's values over time. Pure; the nodes play them (`cluster.shaping.trace_player`).

A CSV file has a header and at least two rows: the time in seconds, and any of the values of a link.

    # lines that begin with a # are comments
    time_s,rate_mbyte_s,delay_ms,jitter_ms,loss_pct
    0,4.2,60,5,0
    0.5,0,60,5,0

Times count from the first row; each row holds until the next, and the last one as long as the one before it. A rate
of 0 is an outage: packets wait.

A file of whole numbers, one per line, is a packet-delivery trace in mahimahi's format: each number is a millisecond
in which a packet of 1500 bytes can be delivered, and the last one is also the length of the trace, which then repeats
(traces/README and src/frontend/link_queue.cc in github.com/ravinet/mahimahi, where the packet is counted as 1504
bytes, four of them being the header of its TUN device). Here such a packet is a frame of 1514 bytes, with its
Ethernet header. The packets that can be delivered within BIN_S make a rate.
"""

import csv
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cluster.base.errors import UsageError, shown, unknown
from cluster.links.link import MOST_JITTER, checked_jitter
from protocol.link import LIMITS, Link, Pair
from protocol.trace import FIELDS, FirstOrder, NodeTrace

TIME = "time_s"
EXAMPLE = "time_s,rate_mbyte_s,delay_ms"
BIN_S = 0.1
MOST_RECORDED = 1000  # steps of a trace in run.yml, at most
FRAME_BYTES = 1514
MOMENT = re.compile(r"[0-9]{1,15}")
LONGEST_S = 7 * 24 * 3600.0  # a trace is played from memory
SHORTEST_STEP_S = 0.01  # a node makes some 100 changes a second without effort


@dataclass(frozen=True)
class Trace:
    """A link's values over time.

    Attributes:
        name: the file's name.
        sha256: the file's digest.
        fields: the values of a link that it sets.
        steps: each (seconds from the start, the values in the order of `fields`).
        seconds: its length.
        repeats: whether it begins again at its end, unless told otherwise: mahimahi's traces do.
        path: the file's absolute path; empty if it is from no file.
    """

    name: str
    sha256: str
    fields: tuple[str, ...]
    steps: tuple[tuple[float, ...], ...]
    seconds: float
    repeats: bool
    path: str = ""

    def rates(self) -> dict[str, object]:
        """Return {"seconds", "rate_mbyte_s": rows of [seconds from the start, MB/s]} for reports; {} without rates.

        If the trace has more than MOST_RECORDED steps, each row is the mean of several.
        """
        if "rate_mbyte_s" not in self.fields:
            return {}
        place = 1 + self.fields.index("rate_mbyte_s")
        starts = [step[0] for step in self.steps]
        lasts = [
            end - start for start, end in zip(starts, [*starts[1:], self.seconds], strict=True)
        ]
        each = -(-len(starts) // MOST_RECORDED)
        rows = []
        for first in range(0, len(starts), each):
            some = range(first, min(first + each, len(starts)))
            whole = sum(self.steps[n][place] * lasts[n] for n in some)
            rows.append([starts[first], round(whole / sum(lasts[n] for n in some), 6)])
        return {"seconds": self.seconds, "rate_mbyte_s": rows}

    def mean(self, field: str) -> float:
        """Return the mean of one of its values over time."""
        return self._means[field]

    @cached_property
    def _means(self) -> dict[str, float]:
        ends = [*(step[0] for step in self.steps[1:]), self.seconds]
        lasts = [end - step[0] for step, end in zip(self.steps, ends, strict=True)]
        return {
            field: sum(step[place] * s for step, s in zip(self.steps, lasts, strict=True))
            / self.seconds
            for place, field in enumerate(self.fields, start=1)
        }

    def checked(self, link: Link) -> Link:
        """Return a link under the step of which it is hardest to make: that with the least room for its jitter.

        Raises:
            UsageError: its delay leaves no room for its jitter; names the step.
        """
        at_s, values = self._hardest
        try:
            return checked_jitter(link._replace(**values))  # type: ignore[arg-type]
        except UsageError as error:
            raise UsageError(
                f"{self.name}, {at_s:g} s after its start: {error.message}", error.hint
            ) from None

    @cached_property
    def _hardest(self) -> tuple[float, dict[str, float]]:
        """The step with the least room for jitter: when it begins, and its delay and jitter if it has them."""

        def too_much_ms(step: Sequence[float]) -> float:
            named = dict(zip(self.fields, step[1:], strict=True))
            return named.get("jitter_ms", 0.0) - named.get("delay_ms", 0.0) * MOST_JITTER

        at_s, *values = max(self.steps, key=too_much_ms)
        named = zip(self.fields, values, strict=True)
        return at_s, {name: value for name, value in named if name in ("delay_ms", "jitter_ms")}


@dataclass(frozen=True)
class Playback:
    """A trace on some links.

    Attributes:
        trace: the trace.
        pairs: the links, each from the first node to the second.
        loops: whether it begins again at its end.
        for_s: how long it lasts; None: to its end, or until told to end if it loops.
    """

    trace: Trace
    pairs: tuple[Pair, ...]
    loops: bool
    for_s: float | None = None

    @property
    def lasts_s(self) -> float:
        """How long it lasts; infinity: until told to end."""
        own_s = math.inf if self.loops else self.trace.seconds
        return min(own_s, math.inf if self.for_s is None else self.for_s)

    @property
    def nodes(self) -> set[str]:
        """The nodes at the ends of its links."""
        return {node for pair in self.pairs for node in pair}

    def check(self, links: Iterable[Link]) -> None:
        """Refuse a trace of whose steps one cannot be made on a link of it.

        Raises:
            UsageError: names the step and the link; as `Trace.checked`.
        """
        for link in links:
            if link.ends in self.pairs:
                self.trace.checked(link)

    def order(self, node: str) -> NodeTrace:
        """Return the order that a node gets to play it."""
        return NodeTrace(
            links=[pair for pair in self.pairs if node in pair],
            fields=list(self.trace.fields),
            steps=[list(step) for step in self.trace.steps],
            seconds=self.trace.seconds,
            lasts_s=self.lasts_s if math.isfinite(self.lasts_s) else None,
        )

    def record(self) -> dict[str, object]:
        """Return what a run records of it."""
        links = [f"{src}->{dst}" for src, dst in self.pairs]
        return {"file": self.trace.name, "sha256": self.trace.sha256, "links": links}


def load_trace(path: Path) -> Trace:
    """Read a trace of either format: if the first line is a whole number, it is mahimahi's.

    Raises:
        UsageError: no such file, or not a trace; the message names the line.
    """
    try:
        content = path.read_bytes()
        # Some programs begin a text with a byte order mark; empty lines at its ends say nothing.
        lines = content.decode("utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError(
            f"no trace {path.name} in {path.parent}: {words}",
            "name a trace as CSV or in mahimahi's format",
        ) from error
    sha256, where = hashlib.sha256(content).hexdigest(), str(path.resolve())
    if MOMENT.fullmatch(next((line.strip() for line in lines if line.strip()), "")):
        steps, seconds = bin_deliveries(parse_deliveries(lines, path.name))
        rate = ("rate_mbyte_s",)
        return Trace(path.name, sha256, rate, steps, seconds, repeats=True, path=where)
    fields, steps = _parse_csv(lines, path.name)
    seconds = steps[-1][0] + (steps[-1][0] - steps[-2][0])
    return Trace(path.name, sha256, fields, steps, seconds, repeats=False, path=where)


def parse_deliveries(lines: Sequence[str], name: str) -> list[int]:
    """Return the milliseconds of a packet-delivery trace.

    Raises:
        UsageError: a line that mahimahi would refuse, too (except that it refuses empty lines before the first number),
            or a trace that is too long.
    """
    moments: list[int] = []
    for number, line in enumerate(lines, start=1):
        if not moments and not line.strip():
            continue  # before the first number
        if not MOMENT.fullmatch(line.strip()):
            raise UsageError(
                f"{name}: line {number} is {shown(line)}", "a whole number of milliseconds"
            )
        moments.append(int(line))
        if len(moments) > 1 and moments[-1] < moments[-2]:
            raise UsageError(
                f"{name}: line {number}: {moments[-1]} comes after {moments[-2]}",
                "sort the lines by time",
            )
    if moments[-1] == 0:
        raise UsageError(f"{name}: the trace lasts 0 ms", "a number above 0 in the last line")
    _check_length(moments[-1] / 1000, name)
    return moments


def bin_deliveries(moments: Sequence[int]) -> tuple[tuple[tuple[float, ...], ...], float]:
    """Return rates in MB/s over time, and the length of the trace in seconds.

    The bins are as near to BIN_S as a whole number of them in the trace allows. Steps that change nothing are left
    out; no packet is lost or added.
    """
    seconds = moments[-1] / 1000
    bins = max(1, round(seconds / BIN_S))
    width_s = seconds / bins
    counts = [0] * bins
    for moment in moments:
        counts[min(int(moment / 1000 / width_s), bins - 1)] += 1
    steps = [
        (number * width_s, count * FRAME_BYTES / width_s / 1e6)
        for number, count in enumerate(counts)
        if number == 0 or count != counts[number - 1]
    ]
    return tuple(steps), seconds


def first_order(playbacks: Mapping[str, Playback], node: str) -> FirstOrder:
    """Return a node's first order: its traces, and all links that traces change, which it reports when asked."""
    return FirstOrder(
        links=[pair for playback in playbacks.values() for pair in playback.pairs],
        traces={name: p.order(node) for name, p in playbacks.items() if node in p.nodes},
    )


def _parse_csv(
    lines: Sequence[str], name: str
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    rows = _rows(lines, name)
    _, header = next(rows, (0, []))
    _check_header(header, name)
    fields = tuple(column for column in header if column != TIME)
    steps: list[tuple[float, ...]] = []
    for number, row in rows:
        place = f"{name}: line {number}"
        if len(row) != len(header):
            raise UsageError(
                f"{place} has {len(row)} values", f"{len(header)} values, as in the header"
            )
        values = dict(zip(header, row, strict=True))
        step = (_number(values, TIME, place), *(_number(values, field, place) for field in fields))
        if steps and step[0] - steps[-1][0] < SHORTEST_STEP_S * (1 - 1e-6):
            raise UsageError(
                f"{place}: {TIME} is {step[0]:g} after {steps[-1][0]:g}",
                f"times that increase, by {SHORTEST_STEP_S:g} at least",
            )
        steps.append(step)
    if len(steps) < 2:
        raise UsageError(
            f"{name}: {len(steps)} rows", "write at least two rows; the last only marks the end"
        )
    start_s = steps[0][0]
    _check_length(steps[-1][0] - start_s, name)
    return fields, tuple((step[0] - start_s, *step[1:]) for step in steps)


def _check_length(seconds: float, name: str) -> None:
    if seconds > LONGEST_S:
        raise UsageError(
            f"{name}: the trace lasts {seconds:g} s", f"at most {LONGEST_S:.0f} s, a week"
        )


def _rows(lines: Sequence[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, each with the number of its line, without comments and empty lines."""
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield number, [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as error:  # a field longer than any number
                raise UsageError(f"{name}: line {number}: {error}", EXAMPLE) from error


def _check_header(header: Sequence[str], name: str) -> None:
    if TIME not in header:
        raise UsageError(f"{name}: the first line has no {TIME}", EXAMPLE)
    for column in header:
        if column not in (TIME, *FIELDS):
            raise unknown(f"column in {name}:", column, (TIME, *FIELDS))
    if len(set(header)) < len(header) or len(header) == 1:
        raise UsageError(f"{name}: the columns are {', '.join(header)}", f"each once: {EXAMPLE}")


def _number(values: dict[str, str], column: str, place: str) -> float:
    try:
        number = float(values[column])
    except ValueError:
        number = math.nan
    low, high = LIMITS.get(column, (-math.inf, math.inf))
    outage = column == "rate_mbyte_s" and number == 0
    if not math.isfinite(number) or not (outage or low <= number <= high):
        bounds = f"a number within {low:g} to {high:g}" if column in LIMITS else "seconds"
        raise UsageError(
            f"{place}: {column} is {shown(values[column])}",
            bounds + (", or 0 for an outage" if column == "rate_mbyte_s" else ""),
        )
    return number
