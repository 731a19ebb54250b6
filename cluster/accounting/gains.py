"""The most by which quicker collectives would have made a run shorter: never more than ranks waited for them. Pure.

A collective behind which ranks compute takes longer than anyone waits for it. If it were quicker, each rank would come
earlier to its next collective by as much as it waited for the data of this one, at most; and that one cannot begin
before its last rank comes. So a run gains from a quicker collective no more than

    - the longest that any of its ranks waited for the data, and
    - for each of its ranks, what it waited for the data plus its slack: how much earlier than the last rank it came to
      its next collective (or to the end of them all).

Slack is that of the critical path method (Kelley and Walker, Critical-Path Planning and Scheduling, 1959), with ranks'
computing as it was. For collectives for which ranks only wait, the limit is the whole transfer.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from cluster.accounting.collectives import Collective, Part

LEEWAY_S = 1e-3  # tolerance between the clocks that time one end and the next beginning
Gains = Mapping[int, float]
"""id() of a collective -> the most that its run can gain from it, in seconds."""


@dataclass(frozen=True)
class Limits:
    """The most that a run can gain from each of some collectives.

    Attributes:
        ordered: the limits, smallest first.
        sums: of the first 0, 1, … of them.
    """

    ordered: Sequence[float]
    sums: Sequence[float]

    def gained_s(self, quicker_s: float) -> float:
        """Return what the run gains if each of these collectives is quicker by so much; less than 0 if slower."""
        below = bisect_left(self.ordered, quicker_s)
        return self.sums[below] + quicker_s * (len(self.ordered) - below)


def limits_of(collectives: Iterable[Collective], gains: Gains) -> Limits:
    """Return the limits of some of the collectives of a run."""
    ordered = sorted(gains[id(one)] for one in collectives)
    return Limits(ordered, [0.0, *accumulate(ordered)])


def most_gained_s(collectives: Sequence[Collective]) -> Gains:
    """Return the most that a run can gain from each of its collectives, all of which have to be there."""
    arrivals = _Arrivals(collectives)
    return {id(one): _most_s(one, arrivals) for one in collectives}


def _most_s(one: Collective, arrivals: "_Arrivals") -> float:
    waited = [(part, one.transfer_s(part)) for part in one.parts]
    with_slack = (s + arrivals.slack_s(part) for part, s in waited)
    return min(max(s for _, s in waited), *with_slack)


class _Arrivals:
    """When each rank came to its collectives, and when the last rank came to these."""

    def __init__(self, collectives: Iterable[Collective]) -> None:
        self._over = 0.0
        came: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for one in collectives:
            for part in one.parts:
                came[part.rank].append((part.entered, one.complete_at))
                self._over = max(self._over, part.ended)
        self._came = {rank: sorted(own) for rank, own in came.items()}
        self._entered = {rank: [at for at, _ in own] for rank, own in self._came.items()}

    def slack_s(self, part: Part) -> float:
        """Return how much earlier than the last rank this one came to its first collective after a part."""
        after = max(part.entered, part.ended - LEEWAY_S)
        number = bisect_right(self._entered[part.rank], after)
        if number == len(self._entered[part.rank]):
            return max(0.0, self._over - part.ended)
        entered, complete_at = self._came[part.rank][number]
        return complete_at - entered
