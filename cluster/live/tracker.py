"""What is known about a run so far, updated by news. Pure; callers pass the time, in Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cluster.accounting.clocks import Clocks, correction_of
from cluster.live.news import (
    ClocksMeasured,
    Happened,
    Measured,
    News,
    Noted,
    Phase,
    RankEnded,
    RankRestarted,
)
from cluster.live.rank_state import Seen
from cluster.live.sample import NO_STATE, RankSample, Sample
from cluster.live.state import EventRow, HistoryRow
from protocol.link import Link

MOST_EVENTS, MOST_NOTES = 20, 10
LEAST_STEP_S = 0.05  # the least time between two looks that are compared


@dataclass(frozen=True)
class LiveRank:
    """A rank and its placement."""

    name: str
    node: str
    rank: int
    is_essential: bool = True


@dataclass(frozen=True)
class NodeFacts:
    """What is known about one node.

    Attributes:
        now, before: its last two lines of telemetry.
        heard_at: when the last line arrived.
        carried: bytes and dropped packets by peer, since its first line.
        looks: by rank, the number of looks at which it computed, was only in a collective, and of all looks.
        spent: CPU seconds of its telemetry, and the seconds in which it used them, since its first line.
    """

    now: Sample
    heard_at: float
    before: Sample | None = None
    carried: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    looks: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    spent: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Tracker:
    """All that is known about a run.

    Attributes:
        steps: number of steps planned; None if unknown.
        links: the links as asked for when the run began.
        ranks_at: when the ranks were started; None before.
        exits: exit codes by rank name; `restarts` likewise.
        clocks: those of nodes on other hosts, by node.
    """

    run: str
    folder: str
    program: str
    profile: str
    steps: int | None
    began_at: float
    ranks: tuple[LiveRank, ...]
    links: tuple[Link, ...]
    interval_s: float = 1.0
    phase: str = "starting"
    ranks_at: float | None = None
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=dict)
    events: tuple[EventRow, ...] = ()
    notes: tuple[str, ...] = ()
    history: tuple[HistoryRow, ...] = ()


def update(tracker: Tracker, news: News, at: float) -> Tracker:
    """Return the tracker with one piece of news added."""
    match news:
        case Phase(name):
            began = at if name == "running" else tracker.ranks_at
            return replace(tracker, phase=name, ranks_at=began)
        case Measured(node, sample):
            facts = _add_sample(tracker.nodes.get(node), sample, at)
            return replace(tracker, nodes={**tracker.nodes, node: facts})
        case RankEnded(name, exit_code):
            return replace(tracker, exits={**tracker.exits, name: exit_code})
        case RankRestarted(name, restarts):
            return replace(tracker, restarts={**tracker.restarts, name: restarts})
        case Happened(after_s, what):
            events = (*tracker.events, EventRow(after_s, what))
            return replace(tracker, events=events[-MOST_EVENTS:])
        case ClocksMeasured(clocks):
            return replace(tracker, clocks=clocks)
        case Noted(words):
            return replace(tracker, notes=(*tracker.notes, words)[-MOST_NOTES:])


def seen_of(tracker: Tracker, rank: LiveRank) -> Seen:
    """Return what the last two looks at a rank show."""
    facts = tracker.nodes.get(rank.node)
    if facts is None:
        return Seen(RankSample(), 0.0)
    seen = _seen(facts.before, facts.now, rank.rank)
    return replace(seen, ahead_s=correction_of(tracker.clocks, rank.node))


def _add_sample(facts: NodeFacts | None, sample: Sample, at: float) -> NodeFacts:
    if facts is None:
        return NodeFacts(sample, at, looks=_add_looks({}, None, sample))
    if sample.time <= facts.now.time:  # its clock was set back: nothing to compare with
        return replace(facts, now=sample, before=None, heard_at=at)
    spent_s, over_s = facts.spent
    spent = (
        spent_s + max(0.0, sample.spent_s - facts.now.spent_s),
        over_s + sample.time - facts.now.time,
    )
    return NodeFacts(
        sample,
        at,
        facts.now,
        _add_carried(facts, sample),
        _add_looks(facts.looks, facts.now, sample),
        spent,
    )


def _add_carried(facts: NodeFacts, sample: Sample) -> dict[str, tuple[float, float]]:
    """Return the sums with the growth since the last line; a counter that fell was reset and adds nothing."""
    carried = dict(facts.carried)
    for peer, link in sample.links.items():
        sent, dropped = carried.get(peer, (0.0, 0.0))
        if before := facts.now.links.get(peer):
            sent += max(0.0, link.sent_bytes - before.sent_bytes)
            dropped += max(0.0, link.dropped_packets - before.dropped_packets)
        carried[peer] = (sent, dropped)
    return carried


def _add_looks(
    looks: Mapping[int, tuple[int, int, int]], before: Sample | None, sample: Sample
) -> dict[int, tuple[int, int, int]]:
    added = dict(looks)
    for rank, now in sample.ranks.items():
        seen = _seen(before, sample, rank)
        if now.state != NO_STATE:
            computing, collective, count = added.get(rank, (0, 0, 0))
            added[rank] = (
                computing + seen.is_computing,
                collective + (seen.is_in_collective and not seen.is_computing),
                count + 1,
            )
    return added


def _seen(before: Sample | None, now: Sample, rank: int) -> Seen:
    """Return what two looks show of a rank: its last state, and its CPU use in between."""
    here = now.ranks.get(rank, RankSample())
    then = before.ranks.get(rank) if before else None
    over_s = now.time - before.time if before else 0.0
    if then is None or over_s < LEAST_STEP_S:
        return Seen(here, now.time)
    shares = [(here.cpu_s - then.cpu_s) / over_s, (here.main_s - then.main_s) / over_s]
    return Seen(here, now.time, *shares)
