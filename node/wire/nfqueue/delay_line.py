"""A delay line: when each held packet is released, and which are lost or damaged. Plain arithmetic."""

import math
import random
from collections import deque
from copy import copy
from itertools import takewhile
from typing import NamedTuple

from node.wire.nfqueue.nfnetlink import ACCEPT, DROP, META, PacketVerdict

HELD, FIRST, AT_ONCE = range(3)
"""What `DelayLine.admit` did with a packet: it waits; it waits and is the only one; it must go at once."""
IPV4, IPV6_HEADER = 4, 40


class Behaviour(NamedTuple):
    """What one queue does to its packets. Shares are 0 to 1."""

    delay_s: float
    jitter_s: float = 0.0
    """Standard deviation of the delay (but no packet overtakes another)."""
    distribution: str = "normal"
    """Distribution of the delay: normal or uniform."""
    loss: float = 0.0
    """Share of packets dropped, unless losses come in bursts."""
    bursts: tuple[float, float] | None = None
    """The chances, per packet, that a burst of losses begins and that it ends: protocol.gilbert.loss_burst_chances."""
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: float = 0.0
    """Share of packets that do not wait."""
    seed: int = 1
    max_packets: int = 1000
    copied: int = META
    """How much of a packet the kernel copies to us: nfnetlink's META, SIZE or WHOLE."""
    limited: bool = False
    """Whether its packets pass the node's downlink first."""

    @property
    def is_chancy(self) -> bool:
        """Whether the delay or the loss of packets is random."""
        return bool(self.jitter_s or self.loss or self.bursts)

    @property
    def drawn_by(self) -> tuple[object, ...]:
        """Everything on which the random draws depend."""
        return self.seed, self.jitter_s, self.distribution, self.loss, self.bursts

    @property
    def is_plain(self) -> bool:
        """Whether only a packet's arrival time need be known: packets are delayed or lost, and nothing else."""
        return self.copied == META and not self.reorder

    @property
    def shortest_s(self) -> float:
        """Minimum time that a packet is held, except for one in ten thousand."""
        return max(0.0, self.delay_s - 4 * self.jitter_s)


class Damaged(NamedTuple):
    """What is sent in place of a packet: other content, or the packet and a copy."""

    content: bytes
    copy: bytes


class Chances:
    """Random draws for the packets of a queue, in order: each one's deviation from the delay, and whether it is lost.

    Each has a stream of its own: more jitter must not move the losses.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._in_burst = False
        self._delays, self._losses = streams(behaviour.seed, "delay", "loss")

    def change(self, behaviour: Behaviour) -> None:
        """Draw by other rules from now on; the streams continue unless the seed changes."""
        if behaviour.seed != self._behaviour.seed:
            self._delays, self._losses = streams(behaviour.seed, "delay", "loss")
        self._behaviour = behaviour

    def copy(self) -> "Chances":
        """Return others that will draw the same."""
        twin = copy(self)
        twin._delays, twin._losses = copy(self._delays), copy(self._losses)
        return twin

    def jitter_s(self) -> float:
        """Return the next packet's deviation from the delay."""
        spread_s = self._behaviour.jitter_s
        if not spread_s:
            return 0.0
        if self._behaviour.distribution == "uniform":
            return self._delays.uniform(-1.0, 1.0) * math.sqrt(3) * spread_s
        return self._delays.gauss(0.0, spread_s)

    def is_lost(self) -> bool:
        """Return whether the next packet is lost."""
        behaviour = self._behaviour
        if behaviour.bursts is None:
            return bool(behaviour.loss) and self._losses.random() < behaviour.loss
        begins, ends = behaviour.bursts
        lost = self._in_burst
        self._in_burst = self._losses.random() < (1 - ends if lost else begins)
        return lost


def streams(seed: int, *names: str) -> tuple[random.Random, ...]:
    """Return a random stream of its own for each of these names."""
    return tuple(random.Random(f"{seed} {name}") for name in names)


class DelayLine:
    """The packets of one queue, in order, each with its due time and its fate.

    A lost packet waits like any other: at the head of the kernel's list it is found at once, in the middle only after
    a long search.
    """

    def __init__(self, behaviour: Behaviour, downlink: "Downlink") -> None:
        self.taken = self.lost = 0  # packets that arrived; those that random loss dropped
        self._downlink = downlink
        self._last_due = 0.0
        self._chances = Chances(behaviour)
        (self._harm,) = streams(behaviour.seed, "harm")
        self._held: deque[tuple[float, int, int | Damaged]] = deque()  # due, packet's number, fate
        self._follow(behaviour)

    def change(self, behaviour: Behaviour) -> None:
        """Apply other rules to packets from now on; packets that are held keep their due time."""
        if behaviour.seed != self.behaviour.seed:
            (self._harm,) = streams(behaviour.seed, "harm")
        self._chances.change(behaviour)
        self._follow(behaviour)

    def _follow(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self._harms = bool(behaviour.duplicate or behaviour.corrupt or behaviour.reorder)
        others = behaviour.limited or behaviour.is_chancy or self._harms
        self._only_delay_s = None if others else behaviour.delay_s

    def admit(self, packet: int, arrived: float, size: int = 0, content: bytes = b"") -> int:
        """Take a packet that arrived at this moment. Returns HELD, FIRST or AT_ONCE (then it is not held).

        Args:
            packet: its number.
            arrived: when, in seconds.
            size: in bytes, with its IP header; needed if the behaviour wants the SIZE or the WHOLE.
            content: from its IP header on; needed if the behaviour wants it WHOLE. Packets that were announced before
                it did have less, and are not harmed.
        """
        self.taken += 1
        fate: int | Damaged = ACCEPT
        if self._only_delay_s is not None:  # most packets of most links
            due = arrived + self._only_delay_s
        else:
            due, fate = self._decide(arrived, size)
            if self._harms and fate == ACCEPT:
                if self._harm.random() < self.behaviour.reorder:
                    return AT_ONCE
                fate = self._do_harm(size, content)
        if due < self._last_due:
            due = self._last_due
        self._last_due = due
        held = self._held
        held.append((due, packet, fate))
        return HELD if len(held) > 1 else FIRST

    def _decide(self, arrived: float, size: int) -> tuple[float, int]:
        """Return when a packet would go if it were the only one, and whether it is lost."""
        fate = ACCEPT
        if self._chances.is_lost():
            fate = DROP
            self.lost += 1
        elif self.behaviour.limited:
            through = self._downlink.pass_on(arrived, size)
            if through is None:
                fate = DROP
            else:
                arrived = through
        return arrived + self.behaviour.delay_s + self._chances.jitter_s(), fate

    def _do_harm(self, size: int, content: bytes) -> int | Damaged:
        corrupted = self._harm.random() < self.behaviour.corrupt
        twice = self._harm.random() < self.behaviour.duplicate
        is_whole = bool(content) and len(content) == size
        if not (is_whole and (corrupted or twice)):
            return ACCEPT
        if corrupted:
            content = flip_bit(content, self._harm.random())
        return Damaged(content if corrupted else b"", content if twice else b"")

    def next_due(self) -> float:
        """Return when the first packet may go; infinity if there is none."""
        return self._held[0][0] if self._held else float("inf")

    def count_due(self, before: float) -> int:
        """Return how many packets were due before a moment."""
        return sum(1 for _ in takewhile(lambda packet: packet[0] < before, self._held))

    def take_due(self, now: float) -> list[PacketVerdict]:
        """Release all packets that are due, with one verdict for each run of packets with the same fate."""
        held, verdicts = self._held, []
        what, last = ACCEPT, -1
        while held and held[0][0] <= now:
            _, packet, fate = held.popleft()
            if fate != what and last >= 0:
                verdicts.append(PacketVerdict(what, last))
                last = -1
            if isinstance(fate, Damaged):
                verdicts.append(PacketVerdict(ACCEPT, packet, fate.content, fate.copy))
            else:
                what, last = fate, packet
        if last >= 0:
            verdicts.append(PacketVerdict(what, last))
        return verdicts


class Downlink:
    """The limit on what a node receives on all its links together: a queue in front of a rate, before the delays.

    Args:
        bytes_per_s: Ethernet headers included.
        longest_s: the longest wait of a packet; one that would wait longer is dropped.
    """

    HEADER = 14

    def __init__(self, bytes_per_s: float, longest_s: float) -> None:
        self._bytes_per_s, self._longest_s = bytes_per_s, longest_s
        self._free_at = 0.0

    def change(self, bytes_per_s: float, longest_s: float) -> None:
        """Set other values; packets that wait go on waiting."""
        self._bytes_per_s, self._longest_s = bytes_per_s, longest_s

    def pass_on(self, arrived: float, size: int) -> float | None:
        """Return when a packet of this size, IP header included, is through; None if there is no room for it."""
        start = max(arrived, self._free_at)
        if start - arrived > self._longest_s:
            return None
        self._free_at = start + (size + self.HEADER) / self._bytes_per_s
        return self._free_at


def flip_bit(content: bytes, chance: float) -> bytes:
    """Return a packet with one bit flipped after its IP header, which has been checked already.

    Args:
        content: from the IP header on.
        chance: which bit, as a number from 0 to 1.
    """
    header = 4 * (content[0] & 15) if content[0] >> 4 == IPV4 else IPV6_HEADER
    place = 8 * header + int(chance * 8 * (len(content) - header))
    if place >= 8 * len(content):
        return content
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
