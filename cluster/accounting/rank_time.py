"""What a rank did when, between its collectives: computing, evaluation, and the rest that no line specifies. Pure."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from protocol.metrics import End, Evaluation, Line, Start, Step

MOST_STINTS = 200_000
REST = ("data", "rollout", "checkpoint", "other")


@dataclass(frozen=True)
class Stint:
    """A period that a rank divided among activities, apart from what it waited for.

    Attributes:
        since: start, Unix time; `until`: end.
        shares: by activity (compute, strategy, eval), of the time that it did not wait; together at most 1.
    """

    since: float
    until: float
    shares: Mapping[str, float]


@dataclass(frozen=True)
class RankTime:
    """A rank from its start to its end.

    Attributes:
        name: of the rank.
        start: when it was ready, Unix time; `end`: when it was done.
        stints: in order; they do not overlap.
        rest: the activities that no line specifies, as shares that add up to 1.
    """

    name: str
    start: float
    end: float
    stints: Sequence[Stint]
    rest: Mapping[str, float]

    def between(self, since: float, until: float) -> dict[str, float]:
        """Return the seconds by activity of a period in which it waited for no other; startup is before its start."""
        seconds: defaultdict[str, float] = defaultdict(float)
        seconds["startup"] += max(0.0, min(until, self.start) - since)
        since = max(since, self.start)
        rest_s = max(0.0, until - since)
        for what, s in self._told(since, until).items():
            seconds[what] += s
            rest_s -= s
        for what, share in self.rest.items():
            seconds[what] += share * max(0.0, rest_s)
        return {what: s for what, s in seconds.items() if s > 0}

    def _told(self, since: float, until: float) -> dict[str, float]:
        """Return the seconds by activity of the stints in a period; sums make long ones as quick as short ones."""
        first = bisect_right(self.stints, since, key=lambda stint: stint.until)
        last = bisect_left(self.stints, until, key=lambda stint: stint.since) - 1
        seconds: defaultdict[str, float] = defaultdict(float)
        for number in sorted({first, last}) if first <= last else ():
            stint = self.stints[number]
            within_s = min(until, stint.until) - max(since, stint.since)
            for what, share in stint.shares.items():
                seconds[what] += share * within_s
        if last - first > 1:
            for what, sums in self._sums.items():
                seconds[what] += sums[last] - sums[first + 1]
        return seconds

    @cached_property
    def _sums(self) -> dict[str, list[float]]:
        """The seconds of each activity in the first 0, 1, … stints."""
        told = dict.fromkeys(what for stint in self.stints for what in stint.shares)
        return {
            what: [0.0, *accumulate(_seconds_of(stint, what) for stint in self.stints)]
            for what in told
        }


def _seconds_of(stint: Stint, what: str) -> float:
    return stint.shares.get(what, 0.0) * (stint.until - stint.since)


def rank_time(name: str, lines: Iterable[Line]) -> RankTime | None:
    """Build a rank's time from its metrics; None if it did not reach its end, began twice, or left too many lines.

    Args:
        name: of the rank.
        lines: its events, from `cluster.accounting.metrics.read_events`.
    """
    starts, ends, stints = list[Start](), list[End](), list[Stint]()
    before = 0.0
    for line in lines:
        at = float(line.time)
        if isinstance(line, Start):
            starts.append(line)
            before = at
        elif isinstance(line, End):
            ends.append(line)
        elif isinstance(line, Step | Evaluation) and at > before:
            stints.append(_stint(line, before, at))
            before = at
        if max(len(starts), len(ends)) > 1 or len(stints) > MOST_STINTS:
            return None
    if not (starts and ends):
        return None
    start, end = float(starts[0].time), float(ends[0].time)
    return RankTime(name, start, end, stints, _rest(ends[0].seconds or {}))


def _stint(line: Step | Evaluation, before: float, at: float) -> Stint:
    if isinstance(line, Evaluation):
        since = max(before, at - max(0.0, float(line.eval_s or 0.0)))
        return Stint(since, at, {"eval": 1.0})
    told = {"compute": line.compute_s, "strategy": line.strategy_s}
    done_s = {what: max(0.0, float(s or 0.0)) for what, s in told.items()}
    comm_s = max(0.0, float(line.comm_s or 0.0))
    alone_s = max(at - before - comm_s, sum(done_s.values()))
    return Stint(before, at, {what: s / alone_s for what, s in done_s.items() if s > 0})


def _rest(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of these activities in the rank's own buckets of the whole run."""
    found = {what: seconds[what] for what in REST if seconds.get(what, 0.0) > 0}
    whole_s = sum(found.values())
    return {what: s / whole_s for what, s in found.items()} if whole_s else {"other": 1.0}
