"""The time that gloo's algorithm takes for a collective on given links, if nothing else interferes. Pure.

A message leaves when its receiver has announced room for it: `recv` notifies the sender, so a message also waits for a
delay of the reverse direction. In a ring, a rank begins its i-th send and receive when those with number i-2 are done,
and an all-reduce begins its gather phase when everything to be reduced has arrived: see allreduce.cc, and send and recv
of transport/tcp/pair.cc, in gloo. A small TCP window grows by the bytes that are acknowledged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.accounting.bounds import RINGS, Network, RankRoute, flows_of
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.tcp_timing import UNLIMITED, Windows, transfer_s
from cluster.links.expected import IN_THE_AIR

PHASES = {"all_reduce": 2, "all_gather": 1}


def gloo_end(
    collective: Collective, network: Network, windows: Windows | None = None
) -> float | None:
    """Return when the last rank of `parts` would be done, Unix time; None if the collective has no bound.

    Args:
        collective: the collective.
        network: links.
        windows: TCP's windows at its start; None: unlimited.
    """
    flows = flows_of(collective)
    routes = network.routes
    if not flows or any({(a.rank, b), (b, a.rank)} - routes.keys() for a, b in flows):
        return None
    if collective.key[0] in RINGS:
        return max(Ring(collective.parts, network, windows or {}).ends().values())
    entered = {part.rank: part.entered for part in (*collective.parts, *collective.others)}
    return max(direct(part, peer, entered, network, windows or {}).heard for part, peer in flows)


@dataclass(frozen=True)
class Direct:
    """A transfer that waits only for room at its receiver. Times are Unix times.

    Attributes:
        room_at: when its sender knows that there is room.
        freed: when its last byte has left.
        heard: when that byte has arrived.
    """

    room_at: float
    freed: float
    heard: float


def direct(
    part: Part, peer: int, entered: Mapping[int, float], network: Network, windows: Windows
) -> Direct:
    """Return the times of one rank's transfer to another.

    Args:
        part: the sender's.
        peer: the receiver.
        entered: when each rank began.
        network: with routes in both directions.
        windows: TCP's windows at the start.
    """
    there, back = network.routes[part.rank, peer], network.routes[peer, part.rank]
    room_at = entered.get(peer, part.entered) + back.delay_s
    rtt_s = there.delay_s + back.delay_s
    window = windows.get((part.rank, peer), UNLIMITED)
    sending_s = transfer_s(part.to[peer], rtt_s, there.byte_s, window)
    freed = max(part.entered, room_at) + sending_s
    return Direct(room_at, freed, freed + there.delay_s)


@dataclass(frozen=True)
class Phase:
    """The times of events in one phase of a ring, by rank. Lists have one entry per message, some an initial one, too.

    Attributes:
        began: when each rank began the phase.
        posted: when it began each send and receive; the first entry is `began`.
        sent: when it handed each message to the kernel.
        freed: when the link had taken each; the first entry is for the traffic before the phase.
        heard: when it had received each.
    """

    began: Mapping[int, float]
    posted: Mapping[int, list[float]]
    sent: Mapping[int, list[float]]
    freed: Mapping[int, list[float]]
    heard: Mapping[int, list[float]]

    def end(self, rank: int) -> float:
        """Return when a rank is done with the phase."""
        last = (*self.sent[rank][-IN_THE_AIR:], *self.heard[rank][-IN_THE_AIR:])
        return max([self.began[rank], *last])


class Ring:
    """A replay of all ranks' messages, one after the other.

    Args:
        parts: of all ranks.
        network: with routes between neighbours, in both directions.
        windows: of each rank to its neighbour.

    Attributes:
        after: the rank that each rank sends to.
        phases: those replayed so far.
    """

    def __init__(self, parts: Sequence[Part], network: Network, windows: Windows) -> None:
        self._parts = parts
        self.after = {part.rank: next(iter(part.to)) for part in parts}
        self.phases: list[Phase] = []
        self._sizes = {p.rank: p.to[self.after[p.rank]] / p.messages for p in parts}
        pairs = self.after.items()
        self._there: dict[int, RankRoute] = {a: network.routes[a, b] for a, b in pairs}
        self._back: dict[int, RankRoute] = {a: network.routes[b, a] for a, b in pairs}
        self._rtt_s = {a: self._there[a].delay_s + self._back[a].delay_s for a, _ in pairs}
        self._window = {a: windows.get((a, b), UNLIMITED) for a, b in pairs}

    def ends(self) -> dict[int, float]:
        """Replay all phases; return when each rank has received and sent its last message."""
        began = {part.rank: part.entered for part in self._parts}
        free = dict(began)
        phases = PHASES[self._parts[0].kind]
        messages = max(part.messages for part in self._parts)
        for number in range(phases):
            phase = self._phase(began, free, messages // phases + (number < messages % phases))
            self.phases.append(phase)
            began = {rank: phase.end(rank) for rank in began}
            free = {rank: phase.freed[rank][-1] for rank in began}
        return began

    def _phase(self, began: Mapping[int, float], free: Mapping[int, float], messages: int) -> Phase:
        """Replay a phase with this number of messages per rank."""
        phase = Phase(
            began,
            posted={rank: [at] for rank, at in began.items()},
            sent={rank: [] for rank in began},
            freed={rank: [at] for rank, at in free.items()},
            heard={rank: [] for rank in began},
        )
        for number in range(messages):
            for rank in began:
                phase.posted[rank].append(_ready(phase, rank, number))
            for rank in began:
                self._send(phase, rank, number)
        return phase

    def _send(self, phase: Phase, rank: int, number: int) -> None:
        to = self.after[rank]
        room_at = phase.posted[to][number + 1] + self._back[rank].delay_s
        leaves = max(phase.posted[rank][number + 1], room_at)
        phase.sent[rank].append(leaves)  # handed to the kernel, whose buffer has room
        freed = max(phase.freed[rank][number], leaves) + self._sending_s(rank)
        phase.freed[rank].append(freed)
        phase.heard[to].append(freed + self._there[rank].delay_s)

    def _sending_s(self, rank: int) -> float:
        """Return the sending time of a message, whose acknowledgement then grows the window."""
        size, window = self._sizes[rank], self._window[rank]
        self._window[rank] = window.grown(size)
        return transfer_s(size, self._rtt_s[rank], self._there[rank].byte_s, window)


def _ready(phase: Phase, rank: int, number: int) -> float:
    """Return when a rank begins its next send and receive."""
    before = number - IN_THE_AIR
    done = [] if before < 0 else [phase.sent[rank][before], phase.heard[rank][before]]
    return max([phase.posted[rank][-1], *done])
