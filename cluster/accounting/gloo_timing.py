"""The time that gloo's algorithm takes for a collective on given links, if nothing else interferes. Pure.

A message leaves when its receiver has announced room for it: `recv` notifies the sender, so a message also waits for a
delay of the reverse direction. In a ring, a rank begins its i-th send and receive when those with number i-2 are done,
and an all-reduce begins its gather phase when everything to be reduced has arrived: see allreduce.cc, and send and recv
of transport/tcp/pair.cc, in gloo. A small TCP window delays what it has no room for (tcp_timing.py). A send is done
when the kernel has taken the last byte, so in an exchange a rank also waits for its own sends over slow links.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.accounting.bounds import (
    RINGS,
    Network,
    RankRoute,
    are_routed,
    flows_of,
    sends_of,
)
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.tcp_timing import UNLIMITED, Sender, Window, Windows, transfer_s
from cluster.links.expected import IN_THE_AIR

SNDBUF_WINDOWS = 2  # of data, per socket: tcp_sndbuf_expand in Linux's net/ipv4/tcp_input.c
MOST_SNDBUF_BYTES = 4 << 20  # tcp_wmem
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
    ends = gloo_ends(collective, network, windows or {})
    return max(ends.values()) if ends else None


def gloo_ends(
    collective: Collective, network: Network, windows: Windows
) -> dict[int | None, float]:
    """Return when a rank of an exchange would be done with each peer, Unix time; for others under None: with all.

    Empty if the collective has no bound. Arguments are those of `gloo_end`.
    """
    flows, sends = flows_of(collective), sends_of(collective)
    if not flows or not are_routed((*flows, *sends), network):
        return {}
    if collective.key[0] in RINGS:
        return {None: max(Ring(collective.parts, network, windows).ends().values())}
    entered = {part.rank: part.entered for part in collective.all_parts}
    heard = [(part.rank, direct(part, to, entered, network, windows).heard) for part, to in flows]
    if collective.key[0] != "exchange":
        return {None: max(at for _, at in heard)}
    handed = [(to, direct(part, to, entered, network, windows).handed) for part, to in sends]
    ends: dict[int | None, float] = {}
    for peer, at in (*heard, *handed):
        ends[peer] = max(at, ends.get(peer, at))
    return ends


@dataclass(frozen=True)
class Direct:
    """A transfer that waits only for room at its receiver. Times are Unix times.

    Attributes:
        room_at: when its sender knows that there is room.
        handed: when the kernel has taken its last byte.
        freed: when that byte has left.
        heard: when it has arrived.
    """

    room_at: float
    handed: float
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
    leaves = max(part.entered, room_at)
    freed = leaves + transfer_s(part.to[peer], rtt_s, there.byte_s, window)
    held_bytes = min(SNDBUF_WINDOWS * window.size_bytes, MOST_SNDBUF_BYTES)
    # Of what the kernel holds, a round trip's bytes have left and are not acknowledged yet.
    still_s = max(0.0, held_bytes / there.byte_s - rtt_s)
    handed = leaves if part.to[peer] <= held_bytes else max(leaves, freed - still_s)
    return Direct(room_at, handed, freed, freed + there.delay_s)


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
        self._senders = {
            part.rank: self._sender(
                part, windows.get((part.rank, self.after[part.rank]), UNLIMITED)
            )
            for part in parts
        }

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

    def _sender(self, part: Part, window: Window) -> Sender:
        there, back = self._there[part.rank], self._back[part.rank]
        return Sender(window, there.delay_s + back.delay_s, there.byte_s, part.entered)

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
        freed = self._senders[rank].send(self._sizes[rank], leaves)
        phase.freed[rank].append(freed)
        phase.heard[to].append(freed + self._there[rank].delay_s)


def _ready(phase: Phase, rank: int, number: int) -> float:
    """Return when a rank begins its next send and receive."""
    before = number - IN_THE_AIR
    done = [] if before < 0 else [phase.sent[rank][before], phase.heard[rank][before]]
    return max([phase.posted[rank][-1], *done])
