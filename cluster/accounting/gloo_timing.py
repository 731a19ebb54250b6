"""How long gloo's way of doing a collective takes on given links, when nothing else is in the way. Pure.

A message leaves when its receiver has said that there is room for it: `recv` tells the sender, so what leaves waits for
a delay of the other direction, too. In a ring a rank begins its i-th send and receive when those two before are done,
and an all-reduce begins to gather when all of what was to be reduced has come: allreduce.cc, and send and recv of
transport/tcp/pair.cc, in gloo. Where TCP's window is small, it grows by what is acknowledged.
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
    """When the last rank that counts would be done, Unix time; None for what has no bound.

    Args:
        collective: what there is to do.
        network: links.
        windows: of TCP at the beginning; None: as large as they must be.
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
    """A transfer that waits for nothing but room. Times are Unix times.

    Attributes:
        room_at: when its sender knows that there is room for it.
        freed: when its last byte has left.
        heard: when that has arrived.
    """

    room_at: float
    freed: float
    heard: float


def direct(
    part: Part, peer: int, entered: Mapping[int, float], network: Network, windows: Windows
) -> Direct:
    """Of what one rank sends to another.

    Args:
        part: the sender's.
        peer: who hears it.
        entered: when each rank began.
        network: with routes there and back.
        windows: of TCP at the beginning.
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
    """What happened when in one phase of a ring, by rank. Lists have one entry a message, some one before the first.

    Attributes:
        began: when each rank began it.
        posted: when it began each send and receive; first `began`.
        sent: when it handed each message to the kernel.
        freed: when the link had taken each; first when it took what came before the phase.
        heard: when it had heard each.
    """

    began: Mapping[int, float]
    posted: Mapping[int, list[float]]
    sent: Mapping[int, list[float]]
    freed: Mapping[int, list[float]]
    heard: Mapping[int, list[float]]

    def end(self, rank: int) -> float:
        """When a rank is done with it."""
        last = (*self.sent[rank][-IN_THE_AIR:], *self.heard[rank][-IN_THE_AIR:])
        return max([self.began[rank], *last])


class Ring:
    """Every rank's messages, one after the other.

    Args:
        parts: of all ranks.
        network: with a route from each to its neighbours.
        windows: of each to its neighbour.

    Attributes:
        after: to whom each rank sends.
        phases: what has been replayed.
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
        """When each rank has heard its last message, and sent it."""
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
        """So many messages of each."""
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
        phase.sent[rank].append(leaves)  # handed to the kernel, which has room for it
        freed = max(phase.freed[rank][number], leaves) + self._sending_s(rank)
        phase.freed[rank].append(freed)
        phase.heard[to].append(freed + self._there[rank].delay_s)

    def _sending_s(self, rank: int) -> float:
        """Of a message; what is acknowledged of it makes the window larger."""
        size, window = self._sizes[rank], self._window[rank]
        self._window[rank] = window.grown(size)
        return transfer_s(size, self._rtt_s[rank], self._there[rank].byte_s, window)


def _ready(phase: Phase, rank: int, number: int) -> float:
    """When a rank begins its next send and receive."""
    before = number - IN_THE_AIR
    done = [] if before < 0 else [phase.sent[rank][before], phase.heard[rank][before]]
    return max([phase.posted[rank][-1], *done])
