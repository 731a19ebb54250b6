"""When a held packet may go, and whether it is lost: the part of the nfqueue wire that is plain arithmetic."""

import random
from collections import deque
from typing import NamedTuple

from node.wire.nfnetlink import ACCEPT, DROP, Verdict


class Behaviour(NamedTuple):
    """What one queue does to its packets."""

    delay_s: float
    jitter_s: float
    """Standard deviation of the delay, which is normally distributed (but no packet overtakes another)."""
    loss: float
    """Share of packets dropped, 0 to 1."""
    seed: int
    max_packets: int


class HoldingLine:
    """The packets of one queue, in order, each with its time and its fate.

    A lost packet waits like any other: at the head of the kernel's list it is found at once, in the
    middle only after a long search.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self._random = random.Random(behaviour.seed)
        self._last_due = 0.0
        self._held: deque[tuple[float, int, int]] = deque()  # due, packet's number, verdict

    def change(self, behaviour: Behaviour) -> None:
        """Treat packets from now on by other rules; those that are held keep their time."""
        if behaviour.seed != self.behaviour.seed:
            self._random.seed(behaviour.seed)
        self.behaviour = behaviour

    def admit(self, packet: int, now: float) -> bool:
        """Take a packet that arrived at `now`, in seconds. Returns whether it is the only one."""
        delay_s, jitter_s, loss, _, _ = self.behaviour
        due = now + delay_s
        if jitter_s:
            due += self._random.gauss(0.0, jitter_s)
        if due < self._last_due:
            due = self._last_due
        self._last_due = due
        verdict = DROP if loss and self._random.random() < loss else ACCEPT
        held = self._held
        held.append((due, packet, verdict))
        return len(held) == 1

    def next_due(self) -> float:
        """When the first packet may go; infinity if there is none."""
        return self._held[0][0] if self._held else float("inf")

    def release(self, now: float) -> list[Verdict]:
        """Let go of all packets that are due, as one verdict for each run of packets with the same fate."""
        held, verdicts = self._held, []
        what, last = ACCEPT, -1
        while held and held[0][0] <= now:
            _, packet, fate = held.popleft()
            if fate != what and last >= 0:
                verdicts.append(Verdict(what, last))
            what, last = fate, packet
        if last >= 0:
            verdicts.append(Verdict(what, last))
        return verdicts
