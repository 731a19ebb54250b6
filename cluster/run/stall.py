"""Stall detection: whether nothing moves on any rank, and which rank holds up the others. Pure.

Ranks are only observed from outside (node/supervisor/rank_states.py), so programs need no change: the state of their
processes, the processor time that these used, the bytes that went through their connections, and the bytes queued in
them. Ranks of node.train also tell which collective they are in.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import protocol.telemetry
from cluster.accounting.clocks import Clocks, correction_of
from cluster.accounting.open_collective import OpenCollective, read_collective
from cluster.base.spec import Node
from cluster.run.rank_placement import RankPlacement
from protocol.reader import read

# A share of one processor, and bytes: libraries poll clocks and send keep-alives even if nothing goes on.
IDLE_SHARE, IDLE_BYTES = 0.02, 2048
SUSPECT_STATES = {
    "T": "it is stopped (T): kill -CONT lets it go on",
    "t": "it is held by a debugger (t)",
    "D": "it waits for a disk or a device (D)",
    "Z": "it has ended, and its parent has not noticed (Z)",
}
STOPPED = "Tt"
MOST_ADDRESSES = 5  # that a rank's line lists
STATE_WORDS = SUSPECT_STATES | {"R": "it runs (R)", "S": "it waits (S)"}


@dataclass(frozen=True)
class RankState:
    """What one rank is doing.

    Attributes:
        state: process state as in ps(1); T or t if any of its processes is stopped.
        cpu_s: processor time that it has used.
        carried_bytes: what went through its connections, and to and from disks.
        unread: bytes received but not read, by source address.
        unsent: bytes not sent or not acknowledged, by destination address.
        collective: the collective that it is in; None for programs that do not tell.
    """

    state: str
    cpu_s: float
    carried_bytes: int
    unread: Mapping[str, int] = field(default_factory=dict)
    unsent: Mapping[str, int] = field(default_factory=dict)
    collective: OpenCollective | None = None


@dataclass(frozen=True)
class Stall:
    """A time in which nothing moved on any rank.

    Attributes:
        seconds: its length so far.
        place: placement of the rank that holds up the others; None if unknown.
        why: what that rank does, or does not do.
        lines: a line for each rank.
    """

    seconds: float
    place: RankPlacement | None
    why: str
    lines: Sequence[str]

    def words(self) -> str:
        """Return the whole stall in words, for a user."""
        head = f"nothing has moved for {self.seconds:.0f} s: no output, no computing, no bytes sent"
        held = (
            [f"  rank {self.place.rank} on {self.place.node} holds the others up: {self.why}"]
            if self.place
            else []
        )
        return "\n".join([head, *(f"  {line}" for line in self.lines), *held])


def read_state(said: object) -> RankState | None:
    """Return a rank's state as reported by its node; None if the report is invalid."""
    try:
        state = read(protocol.telemetry.RankState, said, ignore_unknown=True)
        collective = read_collective(state.collective)
    except (ValueError, OverflowError):  # FormatError is one
        return None
    return RankState(state.state, state.cpu_s, state.bytes, state.unread, state.unsent, collective)


def has_moved(before: RankState, now: RankState, seconds: float) -> bool:
    """Return whether a rank did anything in the seconds between two looks, or waits for a processor."""
    return (
        now.state == "R"
        or now.cpu_s - before.cpu_s > IDLE_SHARE * seconds
        or now.carried_bytes - before.carried_bytes > IDLE_BYTES
    )


def find_stall(
    states: Mapping[RankPlacement, RankState | None],
    nodes: Sequence[Node],
    seconds: float,
    now: float,
    clocks: Clocks,
) -> Stall:
    """Find what each rank waits for, and which rank the others wait for.

    Args:
        states: states of the running ranks; None if a node did not report one.
        nodes: the nodes of the cluster.
        seconds: how long nothing has moved.
        now: Unix time, by this machine's clock.
        clocks: those of nodes on other hosts.
    """
    names = {node.address: node.name for node in nodes}
    known = {place: state for place, state in states.items() if state}
    place, why = _suspect(known, names)
    lines = [
        f"rank {place.rank} on {place.node}: {_describe(state, names, now + correction_of(clocks, place.node))}"
        for place, state in sorted(states.items(), key=lambda item: item[0].rank)
    ]
    cut = [
        f"{dst} does not acknowledge what {src} sends: the link, or the one back, carries nothing"
        for src, dst in _cut(known, nodes)
    ]
    return Stall(seconds, place, why, [*lines, *cut])


def _cut(states: Mapping[RankPlacement, RankState], nodes: Sequence[Node]) -> list[tuple[str, str]]:
    """Return the pairs of nodes of which one sends bytes that the other does not acknowledge.

    If a rank there did not read them, they would be acknowledged until its buffer is full, and unread in it.
    """
    known = [node for node in nodes if any(place.node == node.name for place in states)]
    unsent = {(place.node, to) for place, state in states.items() for to in state.unsent}
    unread = {(place.node, of) for place, state in states.items() for of in state.unread}
    return [
        (src.name, dst.name)
        for src, dst in itertools.permutations(known, 2)
        if (src.name, dst.address) in unsent and (dst.name, src.address) not in unread
    ]


def _suspect(
    states: Mapping[RankPlacement, RankState], names: Mapping[str, str]
) -> tuple[RankPlacement | None, str]:
    """Return the rank that holds up the others, and why; None if there is no clear one.

    Tried in order: a rank in a suspect state, stopped ones first; the essential rank that has begun fewer collectives
    than others; the only rank that does not read. Collectives of ranks that are not essential do not count: these ranks
    begin others, or begin anew.
    """
    for letter, words in SUSPECT_STATES.items():
        for place, state in states.items():
            if state.state == letter:
                return place, words
    essential = {place: state for place, state in states.items() if place.is_essential}
    begun = {place: s.collective.begun for place, s in essential.items() if s.collective}
    if begun and len(begun) == len(essential) and min(begun.values()) < max(begun.values()):
        last = min(begun, key=lambda place: begun[place])
        return last, f"it has begun {begun[last]} collectives, another one {max(begun.values())}"
    deaf = [place for place, state in states.items() if state.unread]
    if len(deaf) == 1:
        return deaf[0], f"it does not read {_amounts(states[deaf[0]].unread, names, 'of')}"
    return None, ""


def _describe(state: RankState | None, names: Mapping[str, str], now: float) -> str:
    """Return what a rank does, in words; `now` is by its node's clock."""
    if state is None:
        return "its node reports no state"
    said = [STATE_WORDS.get(state.state, f"its state is {state.state!r}")]
    if state.collective and state.collective.words:
        said.append(f"in {state.collective.words} for {now - state.collective.began_at:.0f} s")
    elif state.collective:
        said.append(
            f"between collectives {state.collective.begun} and {state.collective.begun + 1}"
        )
    if state.unread:
        said.append(f"has not read {_amounts(state.unread, names, 'of')}")
    if state.unsent:
        said.append(f"cannot send {_amounts(state.unsent, names, 'to')}")
    return ", ".join(said)


def _amounts(amounts: Mapping[str, int], names: Mapping[str, str], word: str) -> str:
    """Return bytes by address in words, the largest MOST_ADDRESSES: nodes may tell of any number."""
    largest = heapq.nlargest(MOST_ADDRESSES, amounts.items(), key=lambda amount: amount[1])
    parts = [
        f"{count:,} bytes {word} {names.get(address, address)}"
        for address, count in sorted(largest)
    ]
    more = len(amounts) - len(largest)
    return " and ".join([*parts, *([f"{word} {more:,} more"] if more else [])])
