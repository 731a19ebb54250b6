"""A run once more, with some of it quicker: by how much would it have been shorter? Pure.

Ranks take their steps in the order in which they took them: each computes for as long as it did, enters a collective,
computes on if it can, and waits for the data. These arrive as long after the last rank has entered as they did, less
what the collective is quicker; in an exchange, those of each peer by themselves. So a rank that no longer waits for
data may wait for another rank instead, what is hidden behind computing gains nothing, and of exchanges the slowest
decides as far as others wait for it. Replays of recorded runs with other durations are known from Daydream (Zhu et al.,
2020) and dPRO (Hu et al., 2022).
"""

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from cluster.accounting.collectives import Collective, Part

MOST_STEPS = 5_000_000  # of all replays together: some seconds
Name = TypeVar("Name", bound=Hashable)
Transfer = tuple[int, int | None]
"""id() of a collective, and the peer of its rank in an exchange; None: all ranks."""


def transfers_of(collective: Collective) -> list[Transfer]:
    """Return all transfers of a collective, whether it is replayed as a whole or peer by peer."""
    peers = [part.rank for part in collective.others]
    return [(id(collective), peer) for peer in (None, *peers)]


@dataclass(frozen=True)
class Quicker:
    """What is quicker, in seconds.

    Attributes:
        transfers: from the last rank's arrival to the last byte; less than 0: slower.
        computing: of ranks before they enter a part, by id() of the part.
        shares: of a transfer's seconds, what is left of them, 0 to 1; `RunReplay.largest` does not take these.
    """

    transfers: Mapping[Transfer, float] = field(default_factory=dict)
    computing: Mapping[int, float] = field(default_factory=dict)
    shares: Mapping[Transfer, float] = field(default_factory=dict)

    @property
    def most_s(self) -> float:
        """More than this it cannot save."""
        return sum(max(0.0, s) for s in chain(self.transfers.values(), self.computing.values()))


class _Wait(NamedTuple):
    """The data that a rank waits for: `seconds` after all of `parts`, by id(), are there."""

    transfer: Transfer
    parts: Sequence[int]
    seconds: float


class _Step(NamedTuple):
    """A rank enters its part in a collective, or is done with it."""

    at: float
    is_done: bool
    part: Part
    collective: Collective
    waits: Sequence[_Wait]


class RunReplay:
    """The recorded steps of all ranks, in an order in which each comes after those that it waits for.

    Args:
        collectives: all of the run.
        seconds: of transfers once all ranks are there, as a model says: of exchanges with each peer, made longer or
            shorter by as much as the exchange took (without them, peers do not differ), and of what computing hid
            (without them, it stays hidden).

    Attributes:
        steps: the number of steps of a replay.
    """

    def __init__(
        self, collectives: Sequence[Collective], seconds: Mapping[Transfer, float] | None = None
    ) -> None:
        self._entered = {id(part): part.entered for one in collectives for part in one.all_parts}
        steps: defaultdict[int, list[_Step]] = defaultdict(list)
        for one in collectives:
            everyone = [id(part) for part in one.all_parts]
            for part in one.parts:
                waits = _waits(one, part, everyone, seconds or {})
                steps[part.rank] += [
                    _Step(part.entered, False, part, one, waits),
                    _Step(part.ended, True, part, one, waits),
                ]
        self._ended = {rank: max(step.at for step in own) for rank, own in steps.items()}
        self._steps = _in_order([_in_time(own) for own in steps.values()])
        self.steps = len(self._steps)

    def saved_s(self, quicker: Quicker) -> float:
        """Return the seconds by which the run would have ended earlier; less than 0: later."""
        return self._earlier_s(self._play(quicker))

    def saved_and_ahead_s(
        self, quicker: Quicker, rank: int
    ) -> tuple[float, list[tuple[float, float]]]:
        """Return what `saved_s` does, and by how much earlier a rank would have begun and ended each collective.

        The latter as pairs: the time in the recorded run, and the seconds.
        """
        played = list(self._play(quicker))
        ahead_s = [(step.at, s) for step, s in played if step.part.rank == rank]
        return self._earlier_s(played), ahead_s

    def _earlier_s(self, played: Iterable[tuple[_Step, float]]) -> float:
        """Return by how many seconds the last rank would have ended earlier, from what `_play` yields."""
        if not self._ended:
            return 0.0
        ahead_s = dict.fromkeys(self._ended, 0.0)  # of the recorded run, by rank
        for step, s in played:
            ahead_s[step.part.rank] = s
        then = max(ended - ahead_s[rank] for rank, ended in self._ended.items())
        return max(self._ended.values()) - then

    def _play(self, quicker: Quicker) -> Iterator[tuple[_Step, float]]:
        """Yield each step, and by how many seconds its rank would have taken it earlier."""
        ahead_s = dict.fromkeys(self._ended, 0.0)
        entered = dict(self._entered)
        complete: dict[Transfer, float] = {}  # when all ranks had entered
        for step in self._steps:
            part = step.part
            if step.is_done:
                waits_at = part.ended - part.waited_s - ahead_s[part.rank]
                data_at = _data_at(step.waits, quicker, entered, complete)
                ahead_s[part.rank] = part.ended - max(waits_at, data_at)
            else:
                ahead_s[part.rank] += quicker.computing.get(id(part), 0.0)
                entered[id(part)] = part.entered - ahead_s[part.rank]
            yield step, ahead_s[part.rank]

    def largest(self, options: Mapping[Name, Quicker], most: int) -> list[tuple[Name, float]]:
        """Return the options that save most, largest saving first; only those that save anything.

        Options are replayed in the order of what they can save at most, until no other can be among the largest, or
        until MOST_STEPS.

        Args:
            options: by name.
            most: the number of options to return.
        """
        found: list[tuple[Name, float]] = []
        left = MOST_STEPS
        for name, quicker in sorted(options.items(), key=lambda item: -item[1].most_s):
            enough_s = found[most - 1][1] if len(found) >= most else 0.0
            if quicker.most_s <= enough_s or left <= 0:
                break
            left -= self.steps
            found.append((name, self.saved_s(quicker)))
            found.sort(key=lambda item: -item[1])
        return [(name, s) for name, s in found[:most] if s > 0]


def _waits(
    one: Collective, part: Part, everyone: Sequence[int], seconds: Mapping[Transfer, float]
) -> list[_Wait]:
    """Return what a rank waits for in its part of a collective; `everyone`: all of its parts, by id()."""
    if part.hidden:  # it ended when the rank looked, and the data may have come long before
        return _hidden_waits(one, part, everyone, seconds)
    modelled = [(peer, seconds.get((id(one), peer.rank))) for peer in one.others]
    known = [(peer, s) for peer, s in modelled if s is not None]
    if not known:
        return [_Wait((id(one), None), everyone, part.ended - one.complete_at)]
    end = max(max(part.entered, peer.entered) + s for peer, s in known)
    more_s = part.ended - end
    return [_Wait((id(one), peer.rank), (id(part), id(peer)), s + more_s) for peer, s in known]


def _hidden_waits(
    one: Collective, part: Part, everyone: Sequence[int], seconds: Mapping[Transfer, float]
) -> list[_Wait]:
    """Return what a rank would have waited for if it had taken longer: as the model says, but it was done by then."""
    most_s = part.ended - one.complete_at
    awaited: dict[int | None, Sequence[int]] = {p.rank: (id(part), id(p)) for p in one.others}
    return [
        _Wait((id(one), peer), parts, min(most_s, s))
        for peer, parts in (awaited or {None: everyone}).items()
        if (s := seconds.get((id(one), peer))) is not None
    ]


def _data_at(
    waits: Iterable[_Wait],
    quicker: Quicker,
    entered: Mapping[int, float],
    complete: dict[Transfer, float],
) -> float:
    """Return when all data that a rank waits for are there; `complete` is kept for the other ranks."""
    at = -math.inf
    for transfer, parts, seconds in waits:
        if (began := complete.get(transfer)) is None:
            began = complete[transfer] = max(entered[part] for part in parts)
        share, less_s = quicker.shares.get(transfer, 1.0), quicker.transfers.get(transfer, 0.0)
        left_s = seconds * share - less_s
        at = max(at, began + max(min(0.0, seconds), left_s))
    return at


def _in_time(steps: Iterable[_Step]) -> deque[_Step]:
    """Return the steps of one rank, in the order of time; of two at the same time, that of the earlier part first."""
    ordered = sorted(steps, key=lambda step: (step.part.entered, step.part.ended, step.is_done))
    return deque(sorted(ordered, key=lambda step: step.at))


def _in_order(ranks: Sequence[deque[_Step]]) -> list[_Step]:
    """Merge the steps of all ranks: who is done with a collective comes after all who enter it.

    Where clocks differ so much that no rank can go on, the earliest step is taken.
    """
    missing, waiting = _missing([step for steps in ranks for step in steps])
    order: list[_Step] = []

    def take(steps: deque[_Step]) -> None:
        step = steps.popleft()
        order.append(step)
        for collective in () if step.is_done else waiting[id(step.part)]:
            missing[collective] -= 1

    while any(ranks):
        before = len(order)
        for steps in ranks:
            while steps and (not steps[0].is_done or missing[id(steps[0].collective)] == 0):
                take(steps)
        if len(order) == before:
            take(min((steps for steps in ranks if steps), key=lambda steps: steps[0].at))
    return order


def _missing(steps: Sequence[_Step]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return how many parts each collective waits for, and which collectives wait for each part, all by id()."""
    known = {id(step.part) for step in steps}
    missing: dict[int, int] = {}
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for one in {id(step.collective): step.collective for step in steps}.values():
        awaited = known.intersection(id(part) for part in one.all_parts)
        missing[id(one)] = len(awaited)
        for part in awaited:
            waiting[part].append(id(one))
    return missing, waiting
