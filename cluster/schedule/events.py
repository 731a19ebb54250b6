"""Events of a schedule, as pure values; `cluster.schedule.runner` executes them.

`cluster.schedule.schedule_file` parses them, and documents what they mean.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.base.errors import UsageError, unknown
from cluster.engine.resources import ResourceRequest
from cluster.links.changes import Change, check_pairs
from cluster.links.link import paths
from cluster.links.profiles import Profile
from cluster.links.traces import Playback
from protocol.link import CUT_PCT, Link


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        words: the event in words, for the reader.
        after_s: seconds from the start of the ranks, or from `step`.
        step: a step of rank 0, or None.
        for_s: its duration in seconds, from `after_s`; None: to the end of the run.
        profile: the links' new profile; None keeps the current one.
        changes: new values of single links.
        playback: a trace on some links; it has its own duration.
        partition: sets of nodes between which no packet gets through.
        cpus: the number of cores that nodes may use from then on; None removes the limit.
        heal: whether it restores the state at the start.
    """

    words: str
    after_s: float = 0.0
    step: int | None = None
    for_s: float | None = None
    profile: Profile | None = None
    changes: tuple[Change, ...] = ()
    playback: Playback | None = None
    partition: tuple[tuple[str, ...], ...] = ()
    cpus: Mapping[str, float | None] = field(default_factory=dict)
    heal: bool = False

    @property
    def until_s(self) -> float:
        """When it is over, in seconds that count as `after_s` does; infinity: not by itself."""
        lasts_s = self.for_s if self.playback is None else self.playback.lasts_s
        if lasts_s is None:
            return math.inf
        # 1.1 + 2.2 is to be 3.3, so that what begins then follows.
        return round(self.after_s + lasts_s, 6)

    def changes_on(self, links: Sequence[Link]) -> tuple[Change, ...]:
        """Return its changes, plus the cuts between the sets of its partition."""
        side = {node: number for number, nodes in enumerate(self.partition) for node in nodes}
        cuts = (
            Change(link.src, link.dst, {"loss_pct": CUT_PCT})
            for link in links
            if side.get(link.src, -1) != side.get(link.dst, -1)
            and {link.src, link.dst} <= set(side)
        )
        return (*self.changes, *cuts)

    def fields(self) -> set[tuple[str, str, str]]:
        """Return the link values that it sets, as (src, dst, field); without cuts, as these override everything."""
        changed = {
            (change.src, change.dst, field)
            for change in self.changes
            for field, value in change.values.items()
            if not (field == "loss_pct" and value == CUT_PCT)
        }
        if self.playback is None:
            return changed
        return changed | {
            (*pair, field) for pair in self.playback.pairs for field in self.playback.trace.fields
        }


def check_events(
    events: Sequence[Event],
    *,
    nodes: Collection[str],
    steps: int,
    links: Sequence[Link] | None,
    slow_start_after_idle: bool,
) -> None:
    """Refuse a schedule that is impossible, before anything is started.

    Args:
        events: the schedule.
        nodes: the names of the cluster's nodes.
        steps: how many steps the program has, 0 if it counts none.
        links: the links at the start; None: not known yet, and neither is `slow_start_after_idle`.
        slow_start_after_idle: whether the nodes have it.

    Raises:
        UsageError: see the functions below.
    """
    check_steps(events, steps)
    check_nodes(events, nodes)
    if links is not None:
        check_schedule(events, links)
        check_slow_start(events, is_on=slow_start_after_idle)


def check_steps(events: Sequence[Event], steps: int) -> None:
    """Refuse steps that the program never reaches; `steps` is how many it has, 0 if it counts none.

    Raises:
        UsageError: there is no such step.
    """
    for event in events:
        if event.step is not None and not steps:
            raise UsageError(f"{event.words}: only node.train counts steps", "at: 12s")
        if event.step is not None and not 1 <= event.step <= steps:
            raise UsageError(f"{event.words}: the run has steps 1 to {steps}", "at: step 1")


def check_nodes(events: Sequence[Event], nodes: Collection[str]) -> None:
    """Refuse CPU limits for nodes that do not exist.

    Raises:
        UsageError: names the node.
    """
    for event in events:
        if event.cpus:
            ResourceRequest(event.cpus, {}).limits(nodes, {})


def check_schedule(events: Sequence[Event], links: Sequence[Link]) -> None:
    """Refuse events that are impossible on these links, before anything is started.

    Raises:
        UsageError: a node or link does not exist, packets could bypass a partition, or another event would change the
            links of a trace while it plays.
    """
    pairs = {link.ends for link in links}
    nodes = {link.src for link in links}
    routed = bool(paths(links))
    for event in events:
        if event.cpus or event.heal:
            continue  # nodes need no links for CPU limits, and healing names none
        traced = event.playback.pairs if event.playback else ()
        check_pairs([*((change.src, change.dst) for change in event.changes), *traced], pairs)
        named = set(itertools.chain.from_iterable(event.partition))
        for node in sorted(named - nodes):
            raise unknown("node", node, nodes)
        if named and routed and named != nodes:
            left = ", ".join(sorted(nodes - named))
            raise UsageError(
                f"{event.words}: packets could bypass the partition over {left}",
                "put every node into a set",
            )
    _check_traces(events)


def check_slow_start(events: Sequence[Event], *, is_on: bool) -> None:
    """Refuse profiles whose slow start after idle is not `is_on`, as a running node cannot change it.

    Raises:
        UsageError: names the profile.
    """
    for event in events:
        if event.profile is not None and event.profile.slow_start_after_idle != is_on:
            words = ("on", "off") if is_on else ("off", "on")
            raise UsageError(
                "{}: slow start after idle is {} and would be {}, which a running node cannot change".format(
                    event.words, *words
                ),
                "set slow_start_after_idle to the same value in all profiles of a run",
            )


def _check_traces(events: Sequence[Event]) -> None:
    for trace in (event for event in events if event.playback is not None):
        for other in events:
            if other is trace or not _may_begin_during(other, trace):
                continue
            for src, dst, name in sorted(trace.fields() & other.fields()):
                raise UsageError(
                    f"{trace.words}: during this trace, {other.words!r} would change {name} of {src}:{dst}, too",
                    "end the trace earlier with for: TIME; if either begins at a step, begin both at a time",
                )


def _may_begin_during(event: Event, trace: Event) -> bool:
    """Return whether an event may begin while a trace plays; True if one counts seconds and the other steps."""
    if event.step is not None and trace.step is not None and event.step != trace.step:
        return event.step > trace.step
    if event.step != trace.step:
        return True
    return trace.after_s <= event.after_s < trace.until_s
