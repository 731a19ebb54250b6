"""The rates of links under traces: run.yml has each trace's rates, events.jsonl when it was played. Pure.

For a link, nodes report the rate of the plan in force, which a schedule changes but a trace does not.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cluster.reporting.link_figures import MOST_LINKS
from cluster.reporting.run_data import LinkStretch, ScheduleEvent
from cluster.reporting.values import Record, number, records, word, words

MOST_TRACES, MOST_STEPS = 100, 10_000
LONGEST_S = (
    1.0  # of a stretch under a trace; longer ones (pauses) are cut, so that the rate can be seen
)
MOST_PIECES = 5_000  # per link; as many as a chart shows


@dataclass(frozen=True)
class TracedRate:
    """A trace that was played, in seconds since the run's first event.

    Attributes:
        links: the links on which it was played.
        seconds: length of one round; rounds repeat.
        moments: times of its steps, from the start of a round.
        sums: MB from the start of a round to each step, and to its end.
        rates: MB/s from each step on.
    """

    links: frozenset[str]
    start_s: float
    end_s: float
    seconds: float
    moments: Sequence[float]
    sums: Sequence[float]
    rates: Sequence[float]

    def mean(self, start_s: float, end_s: float) -> float:
        """Return the mean MB/s between two moments."""
        return (self._mb(end_s) - self._mb(start_s)) / (end_s - start_s)

    def _mb(self, at_s: float) -> float:
        """Return the MB that could be carried by then."""
        rounds, rest_s = divmod(at_s - self.start_s, self.seconds)
        step = bisect_right(self.moments, rest_s) - 1
        return (
            rounds * self.sums[-1]
            + self.sums[step]
            + self.rates[step] * (rest_s - self.moments[step])
        )


def traced_rates(config: Record, events: Sequence[ScheduleEvent]) -> list[TracedRate]:
    """Return the traces of a run that have rates; older run folders have none."""
    found = []
    for trace in records(config.get("traces"), MOST_TRACES):
        begun = word(trace.get("event"))
        starts_s = [one.at_s for one in events if one.what == begun]
        ends_s = [one.at_s for one in events if one.what == word(f"over: {begun}")]
        rate = _steps(trace)
        if starts_s and rate:
            links = frozenset(words(trace.get("links"), MOST_LINKS))
            until_s = ends_s[0] if ends_s else math.inf
            found.append(TracedRate(links, starts_s[0], until_s, *rate))
    return found


def _steps(
    trace: Record,
) -> tuple[float, list[float], list[float], list[float]] | None:
    seconds, rows = number(trace.get("seconds")), trace.get("rate_mbyte_s")
    if not seconds or seconds <= 0 or not isinstance(rows, list):
        return None
    pairs = [[number(value) for value in row] for row in rows[:MOST_STEPS] if isinstance(row, list)]
    known = [(p[0], p[1]) for p in pairs if len(p) == 2 and p[0] is not None and p[1] is not None]
    moments, rates = [at for at, _ in known], [rate for _, rate in known]
    if (
        moments[:1] != [0.0]
        or moments != sorted(moments)
        or moments[-1] >= seconds
        or min(rates) < 0
    ):
        return None
    sums = [0.0]
    for at, rate, until in zip(moments, rates, [*moments[1:], seconds], strict=True):
        sums.append(sums[-1] + rate * (until - at))
    return seconds, moments, sums, rates


def with_traces(
    stretches: Mapping[str, Sequence[LinkStretch]], traces: Sequence[TracedRate]
) -> dict[str, list[LinkStretch]]:
    """Return the stretches with the rates that traces set."""
    return {
        name: list(_traced(some, [one for one in traces if name in one.links]))
        for name, some in stretches.items()
    }


def _traced(
    stretches: Sequence[LinkStretch], traces: Sequence[TracedRate]
) -> Iterator[LinkStretch]:
    """Yield the stretches, cut where a trace begins or ends, and under a trace into pieces with its mean rates.

    Nodes wrote the times, which may be far apart: the longer all that is under traces, the longer the pieces.
    """
    cut = [part for one in stretches for part in _cut(one, traces)]
    under_s = sum(one.end_s - one.start_s for one in cut if _trace_at(one, traces))
    longest_s = max(LONGEST_S, under_s / MOST_PIECES)
    for one in cut:
        if (on := _trace_at(one, traces)) is None:
            yield one
        else:
            for piece in _pieces(one, longest_s):
                rate = on.mean(piece.start_s, piece.end_s)
                yield replace(piece, rate_mbyte_s=rate, is_steady=True)


def _trace_at(stretch: LinkStretch, traces: Sequence[TracedRate]) -> TracedRate | None:
    """Return the trace that was played in the middle of a stretch."""
    middle_s = (stretch.start_s + stretch.end_s) / 2
    return next((one for one in traces if one.start_s <= middle_s < one.end_s), None)


def _cut(stretch: LinkStretch, traces: Sequence[TracedRate]) -> list[LinkStretch]:
    """Cut a stretch where traces begin and end."""
    ends_s = {at for one in traces for at in (one.start_s, one.end_s)}
    within_s = sorted(at for at in ends_s if stretch.start_s < at < stretch.end_s)
    return _split(stretch, [stretch.start_s, *within_s, stretch.end_s])


def _pieces(stretch: LinkStretch, longest_s: float) -> list[LinkStretch]:
    """Split a stretch into equal pieces."""
    whole_s = stretch.end_s - stretch.start_s
    count = max(1, math.ceil(whole_s / longest_s - 1e-3))
    ends_s = [stretch.start_s + n * whole_s / count for n in range(count)]
    return _split(stretch, [*ends_s, stretch.end_s])


def _split(stretch: LinkStretch, ends_s: Sequence[float]) -> list[LinkStretch]:
    """Split a stretch at some moments, of which its own ends are the first and last.

    The last one gets the drops, and the backlog, which was looked at when it ended.
    """
    *before, last = pairwise(ends_s)
    unseen = replace(stretch, backlog_bytes=None, dropped=0.0)
    parts = [replace(unseen, start_s=start_s, end_s=end_s) for start_s, end_s in before]
    return [*parts, replace(stretch, start_s=last[0], end_s=last[1])]
