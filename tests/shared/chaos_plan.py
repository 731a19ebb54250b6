"""Draws the faults to play and their order from a seed. Pure."""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

VERBS = ("up anew", "up again", "shape", "verify", "down")
LAUNCH = ("launch starting", "launch measuring", "launch running", "launch fetching")
RUNNING = ("launch running",)
EVERYWHERE = (*VERBS, *LAUNCH)
WITH_NODES = tuple(phase for phase in EVERYWHERE if phase != "up anew")


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        phases: the phases in which it may happen: a verb, and for a launch also its stage.
        weight: how often it is played, relative to the others.
        ends_run: whether a launch whose ranks run cannot succeed after it.
    """

    phases: tuple[str, ...]
    weight: int = 1
    ends_run: bool = False


KINDS = {
    "command killed": Kind(EVERYWHERE, 3),
    "command killed, not its children": Kind(EVERYWHERE),
    "rank killed": Kind(RUNNING, 3, ends_run=True),
    "rank stopped": Kind(RUNNING, 3, ends_run=True),
    "rank out of memory": Kind(RUNNING, 3, ends_run=True),
    "rank killed, started again": Kind(RUNNING, 3),
    "sshd killed": Kind(WITH_NODES, ends_run=True),
    "sshd stopped": Kind(WITH_NODES, ends_run=True),
    "sshd restarted": Kind(WITH_NODES),
    "connections killed": Kind(WITH_NODES, ends_run=True),
    "node killed": Kind(EVERYWHERE, ends_run=True),
    "node paused": Kind(EVERYWHERE, ends_run=True),
    "node restarted": Kind(EVERYWHERE, ends_run=True),
    "node removed": Kind(EVERYWHERE, ends_run=True),
    "node cut off": Kind(EVERYWHERE, ends_run=True),
    "links cut": Kind(("verify", *LAUNCH), ends_run=True),
    "disk full": Kind(("up anew", "up again", "shape", "launch starting")),
    "node's disk full": Kind(RUNNING, 3, ends_run=True),
    "dockerd restarted": Kind(EVERYWHERE, ends_run=True),
}
NODES = ("node1", "node2")


@dataclass(frozen=True)
class Fault:
    """One fault of a plan.

    Attributes:
        number: its index in the plan; identifies it for a given seed.
        kind: one of KINDS.
        phase: the phase in which it happens.
        moment: when in that phase, from 0 (its start) to 1.
        node: the node that it hits.
    """

    number: int
    kind: str
    phase: str
    moment: float
    node: str

    @property
    def verb(self) -> str:
        """The verb during which it happens."""
        return self.phase.split()[0]


def plan_faults(count: int, seed: int, kinds: Collection[str] = tuple(KINDS)) -> list[Fault]:
    """Draw this number of faults from a seed; a longer plan starts with the shorter one.

    All pairs of a kind and a phase are played, each as often as its weight, before any is repeated.
    """
    draw = random.Random(seed)
    pairs = [(name, phase) for name in kinds for phase in _weighed(KINDS[name])]
    faults: list[Fault] = []
    while len(faults) < count:
        for kind, phase in draw.sample(pairs, len(pairs)):
            faults.append(Fault(len(faults), kind, phase, draw.random(), draw.choice(NODES)))
    return faults[:count]


def _weighed(kind: Kind) -> Sequence[str]:
    return kind.phases * kind.weight


def table(played: Iterable[tuple[str, str]]) -> str:
    """Return the counts of outcomes by kind, as a Markdown table."""
    found = list(played)
    outcomes = sorted({outcome for _, outcome in found})
    rows = [["kind", "faults", *outcomes]]
    for kind in KINDS:
        ours = [outcome for name, outcome in found if name == kind]
        if ours:
            rows.append([kind, str(len(ours)), *(_count(ours, o) for o in outcomes)])
    every = [outcome for _, outcome in found]
    rows.append(["all", str(len(every)), *(_count(every, o) for o in outcomes)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _count(outcomes: Sequence[str], outcome: str) -> str:
    return str(outcomes.count(outcome) or "")
