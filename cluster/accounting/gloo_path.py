"""The chain of events that made a collective as long as it is, found by walking back through gloo's algorithm. Pure.

Each moment of `cluster.accounting.gloo_timing` is the latest of some others plus a little more: a delay, or the time
that a link takes for a message. From the end of a rank, the walk goes back to the latest each time, until a rank's
arrival at the collective: the longest path in a graph of events, as in LogGOPSim (Hoefler et al., 2010). The times in
between add up exactly to the whole.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.accounting.bounds import (
    RINGS,
    Load,
    Network,
    are_routed,
    flows_of,
    heaviest_load,
    sends_of,
)
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.gloo_timing import Direct, Ring, direct
from cluster.accounting.tcp_timing import Windows
from cluster.links.expected import IN_THE_AIR

LEAST_S = 1e-9  # less is a rounding error of a difference
KINDS = ("delay", "bytes", "window")
Stretch = tuple[str, str]
"""Carrier, and one of KINDS."""


@dataclass(frozen=True)
class Chain:
    """The path back from the end of a rank's part in a collective.

    Attributes:
        origin: the rank that it leads back to.
        came: when that rank arrived at the collective, Unix time.
        seconds: of each stretch on the path; together from `came` until the end.
    """

    origin: int
    came: float
    seconds: Mapping[Stretch, float]


@dataclass(frozen=True)
class _Moment:
    """One event of a ring.

    Attributes:
        what: began or end (of a phase), posted, sent, freed or heard (of a message), came (arrival of a rank).
        number: the index into the phase's list of that name; 0 if there is none.
    """

    what: str
    phase: int
    rank: int
    number: int = 0


@dataclass(frozen=True)
class _Leg:
    """A part of the path between two ranks, before its carrier is known."""

    kind: str
    src: int
    dst: int
    seconds: float


def find_chain(
    collective: Collective, rank: int, network: Network, windows: Windows | None = None
) -> Chain | None:
    """Return what determines a rank's end in the model; None if the collective has no bound.

    Args:
        collective: the collective.
        rank: a rank of its `parts`.
        network: links.
        windows: TCP's windows at its start; None: unlimited.
    """
    flows, sends = flows_of(collective), sends_of(collective)
    if not are_routed((*flows, *sends), network):
        return None
    if collective.key[0] in RINGS:
        end, chain = _ring_chain(collective.parts, rank, network, windows or {})
    else:
        heard = [(part, peer) for part, peer in flows if peer == rank]
        if not heard:
            return None  # it only sends
        end, chain = _direct_chain(collective, heard, sends, network, windows or {})
    load = heaviest_load(flows, network)
    return _load_chain(load, network) if load is not None and load.end > end else chain


def _load_chain(load: Load, network: Network) -> Chain:
    """Return the chain if all wait for a shared carrier."""
    route = (load.first.rank, load.peer)
    delays_s = _spread(_Leg("delay", *route, load.delay_s), network, 0.0)
    seconds = {(load.carrier, "bytes"): load.sending_s, **delays_s}
    return Chain(load.first.rank, load.first.entered, seconds)


def _direct_chain(
    collective: Collective,
    heard: Sequence[tuple[Part, int]],
    sends: Sequence[tuple[Part, int]],
    network: Network,
    windows: Windows,
) -> tuple[float, Chain]:
    """Return the end and the chain of independent transfers: those of the last to arrive, or to be handed over."""
    entered = {part.rank: part.entered for part in collective.all_parts}

    def timed(flows: Sequence[tuple[Part, int]]) -> list[tuple[tuple[Part, int], Direct]]:
        return [(flow, direct(*flow, entered, network, windows)) for flow in flows]

    # When each is done, and when its last byte has left the sender, or is with its kernel.
    ends = [(time.heard, time.freed, flow, time) for flow, time in timed(heard)]
    ends += [(time.handed, time.handed, flow, time) for flow, time in timed(sends)]
    end, left_at, (part, peer), time = max(ends, key=lambda one: one[0])
    origin = part.rank
    legs = [
        _Leg("bytes", part.rank, peer, left_at - max(time.room_at, part.entered)),
        _Leg("delay", part.rank, peer, end - left_at),
    ]
    if time.room_at > part.entered:
        origin = peer
        legs.append(_Leg("delay", peer, part.rank, time.room_at - entered[peer]))
    seconds = _carried(legs, network, {part.rank: part.to[peer]})
    return end, Chain(origin, entered[origin], seconds)


def _ring_chain(
    parts: Sequence[Part], rank: int, network: Network, windows: Windows
) -> tuple[float, Chain]:
    """Return a rank's end in a ring, and the chain from there back to a rank's arrival."""
    ring = Ring(parts, network, windows)
    end = ring.ends()[rank]
    walk = _Walk(ring, {part.rank: part.entered for part in parts})
    here, legs = _Moment("end", len(ring.phases) - 1, rank), list[_Leg]()
    while here.what != "came":
        before = walk.latest_before(here)
        if leg := walk.leg(before, here):
            legs.append(leg)
        here = before
    sizes = {part.rank: part.to[ring.after[part.rank]] / part.messages for part in parts}
    chain = Chain(here.rank, walk.time(here), _carried(legs, network, sizes))
    return end, chain


class _Walk:
    """The moments of a replayed ring, and which of them waited for which."""

    def __init__(self, ring: Ring, entered: Mapping[int, float]) -> None:
        self._ring, self._entered = ring, entered
        self._before = {to: rank for rank, to in ring.after.items()}

    def time(self, moment: _Moment) -> float:
        """Return when a moment was."""
        if moment.what == "came":
            return self._entered[moment.rank]
        phase = self._ring.phases[moment.phase]
        if moment.what == "end":
            return phase.end(moment.rank)
        if moment.what == "began":
            return phase.began[moment.rank]
        times: Mapping[int, list[float]] = getattr(phase, moment.what)
        return times[moment.rank][moment.number]

    def latest_before(self, moment: _Moment) -> _Moment:
        """Return the latest of the moments that this one waits for; of equal ones the first listed."""
        match moment.what:
            case "end":
                waits = self._of_end(moment)
            case "began":
                waits = [self._phase_before("end", moment)]
            case "posted":
                waits = self._of_posted(moment)
            case "sent":
                return self._of_sent(moment)
            case "freed":
                waits = self._of_freed(moment)
            case _:
                sender = self._before[moment.rank]
                waits = [_Moment("freed", moment.phase, sender, moment.number + 1)]
        return max(waits, key=self.time)

    def leg(self, before: _Moment, after: _Moment) -> _Leg | None:
        """Return the part of the path between two moments; None if nothing between them takes time."""
        seconds = self.time(after) - self.time(before)
        if after.what == "heard":
            return _Leg("delay", before.rank, after.rank, seconds)
        if after.what == "freed":
            return _Leg("bytes", after.rank, self._ring.after[after.rank], seconds)
        if after.what == "sent" and before.rank != after.rank:
            return _Leg("delay", before.rank, after.rank, seconds)
        return None

    def _of_end(self, moment: _Moment) -> list[_Moment]:
        count = len(self._ring.phases[moment.phase].sent[moment.rank])
        last = range(max(0, count - IN_THE_AIR), count)
        return [
            *(_Moment("heard", moment.phase, moment.rank, number) for number in last),
            *(_Moment("sent", moment.phase, moment.rank, number) for number in last),
            _Moment("began", moment.phase, moment.rank),
        ]

    def _of_posted(self, moment: _Moment) -> list[_Moment]:
        phase, rank, number = moment.phase, moment.rank, moment.number
        if number == 0:
            return [_Moment("began", phase, rank)]
        own = [_Moment("posted", phase, rank, number - 1)]
        done = number - 1 - IN_THE_AIR
        if done < 0:
            return own
        return [_Moment("heard", phase, rank, done), _Moment("sent", phase, rank, done), *own]

    def _of_sent(self, moment: _Moment) -> _Moment:
        """Return the predecessor of a send: the sender learns of room at the receiver one delay after it exists."""
        own = _Moment("posted", moment.phase, moment.rank, moment.number + 1)
        room = _Moment("posted", moment.phase, self._ring.after[moment.rank], moment.number + 1)
        return room if self.time(moment) > self.time(own) else own

    def _of_freed(self, moment: _Moment) -> list[_Moment]:
        if moment.number == 0:
            return [self._phase_before("freed", moment)]
        return [
            _Moment("freed", moment.phase, moment.rank, moment.number - 1),
            _Moment("sent", moment.phase, moment.rank, moment.number - 1),
        ]

    def _phase_before(self, what: str, moment: _Moment) -> _Moment:
        """Return a moment of the phase before; before the first phase, the rank's arrival."""
        if moment.phase == 0:
            return _Moment("came", 0, moment.rank)
        before = moment.phase - 1
        number = len(self._ring.phases[before].sent[moment.rank]) if what == "freed" else 0
        return _Moment(what, before, moment.rank, number)


def _carried(
    legs: Sequence[_Leg], network: Network, sizes: Mapping[int, float]
) -> dict[Stretch, float]:
    """Return seconds by stretch; `sizes` are bytes of a message, by sender."""
    seconds: defaultdict[Stretch, float] = defaultdict(float)
    for leg in legs:
        for stretch, s in _spread(leg, network, sizes.get(leg.src, 0.0)).items():
            seconds[stretch] += s
    return {stretch: s for stretch, s in seconds.items() if s > LEAST_S}


def _spread(leg: _Leg, network: Network, size_bytes: float) -> dict[Stretch, float]:
    """Divide a leg: a delay over all links on the route; bytes to the slowest carrier, the rest to TCP's window."""
    route = network.routes[leg.src, leg.dst]
    if not route.carriers:
        return {}  # no time within a node
    if leg.kind == "delay":
        delays_s = {
            name: network.delay_s[name] for name in route.carriers if name in network.delay_s
        }
        whole_s = sum(delays_s.values())
        if not whole_s:
            return {(route.carriers[0], "delay"): leg.seconds}
        return {(name, "delay"): leg.seconds * s / whole_s for name, s in delays_s.items() if s}
    slowest = min(route.carriers, key=lambda name: network.byte_s[name])
    bytes_s = min(leg.seconds, size_bytes / route.byte_s)
    return {(slowest, "bytes"): bytes_s, (slowest, "window"): leg.seconds - bytes_s}
