"""How long gloo's way of doing a collective takes on given links, when nothing else is in the way. Pure.

A message leaves when its receiver has said that there is room for it: `recv` tells the sender, so what leaves waits for
a delay of the other direction, too. In a ring a rank begins its i-th send and receive when those two before are done,
and an all-reduce begins to gather when all of what was to be reduced has come: allreduce.cc, and send and recv of
transport/tcp/pair.cc, in gloo. After a pause TCP's window is small, and grows by what is acknowledged.
"""

from collections.abc import Mapping, Sequence

from cluster.accounting.bounds import RINGS, Network, RankRoute, flows_of
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.tcp_timing import transfer_s, window_after
from cluster.links.expected import IN_THE_AIR

PHASES = {"all_reduce": 2, "all_gather": 1}


def gloo_end(collective: Collective, network: Network, *, paused_s: float = 0.0) -> float | None:
    """When the last rank that counts would be done, Unix time; None for what has no bound.

    Args:
        collective: what there is to do.
        network: links.
        paused_s: for how long connections were idle before; 0: their windows are as large as they must be.
    """
    flows = flows_of(collective)
    routes = network.routes
    if not flows or any({(a.rank, b), (b, a.rank)} - routes.keys() for a, b in flows):
        return None
    if collective.key[0] in RINGS:
        return max(_Ring(collective.parts, network, paused_s).ends())
    entered = {part.rank: part.entered for part in (*collective.parts, *collective.others)}
    return max(_direct_end(part, peer, entered, network, paused_s) for part, peer in flows)


def _direct_end(
    part: Part, peer: int, entered: Mapping[int, float], network: Network, paused_s: float
) -> float:
    """Of a transfer that waits for nothing but room."""
    there, back = network.routes[part.rank, peer], network.routes[peer, part.rank]
    room_at = entered.get(peer, part.entered) + back.delay_s
    rtt_s = there.delay_s + back.delay_s
    window = window_after(paused_s, rtt_s)
    sending_s = transfer_s(part.to[peer], rtt_s, there.byte_s, window_bytes=window)
    return max(part.entered, room_at) + sending_s + there.delay_s


class _Ring:
    """Every rank's messages, one after the other; lists have one entry a message of the phase.

    Args:
        parts: of all ranks.
        network: with a route from each to its neighbours.
        paused_s: for how long connections were idle.
    """

    def __init__(self, parts: Sequence[Part], network: Network, paused_s: float) -> None:
        self._parts = parts
        self._after = {part.rank: next(iter(part.to)) for part in parts}
        self._sizes = {p.rank: p.to[self._after[p.rank]] / p.messages for p in parts}
        pairs = self._after.items()
        self._there: dict[int, RankRoute] = {a: network.routes[a, b] for a, b in pairs}
        self._back: dict[int, RankRoute] = {a: network.routes[b, a] for a, b in pairs}
        self._free = {part.rank: part.entered for part in parts}
        self._rtt_s = {a: self._there[a].delay_s + self._back[a].delay_s for a, _ in pairs}
        self._window = {a: window_after(paused_s, rtt_s) for a, rtt_s in self._rtt_s.items()}

    def ends(self) -> list[float]:
        """When each rank has heard its last message, and sent it."""
        began = {part.rank: part.entered for part in self._parts}
        phases = PHASES[self._parts[0].kind]
        messages = max(part.messages for part in self._parts)
        for phase in range(phases):
            share = messages // phases + (phase < messages % phases)
            began = self._phase(began, share)
        return list(began.values())

    def _phase(self, began: Mapping[int, float], messages: int) -> dict[int, float]:
        """So many messages of each; when each rank is done with them."""
        posted = {rank: [at] for rank, at in began.items()}
        sent: dict[int, list[float]] = {rank: [] for rank in began}
        heard: dict[int, list[float]] = {rank: [] for rank in began}
        for number in range(messages):
            for rank in began:
                posted[rank].append(self._ready(number, posted, sent, heard, rank))
            for rank in began:
                self._send(number, rank, posted, sent, heard)
        return {
            rank: max([at, *sent[rank][-IN_THE_AIR:], *heard[rank][-IN_THE_AIR:]])
            for rank, at in began.items()
        }

    @staticmethod
    def _ready(
        number: int,
        posted: Mapping[int, list[float]],
        sent: Mapping[int, list[float]],
        heard: Mapping[int, list[float]],
        rank: int,
    ) -> float:
        """When a rank begins its next send and receive."""
        before = number - IN_THE_AIR
        done = [] if before < 0 else [sent[rank][before], heard[rank][before]]
        return max([posted[rank][-1], *done])

    def _send(
        self,
        number: int,
        rank: int,
        posted: Mapping[int, list[float]],
        sent: Mapping[int, list[float]],
        heard: Mapping[int, list[float]],
    ) -> None:
        to, there = self._after[rank], self._there[rank]
        room_at = posted[to][number + 1] + self._back[rank].delay_s
        leaves = max(posted[rank][number + 1], room_at)
        sent[rank].append(leaves)  # handed to the kernel, which has room for it
        self._free[rank] = max(self._free[rank], leaves) + self._sending_s(rank)
        heard[to].append(self._free[rank] + there.delay_s)

    def _sending_s(self, rank: int) -> float:
        """Of a message; what is acknowledged of it makes the window larger."""
        size, window = self._sizes[rank], self._window[rank]
        self._window[rank] = window + size
        rate = self._there[rank].byte_s
        return transfer_s(size, self._rtt_s[rank], rate, window_bytes=window)
