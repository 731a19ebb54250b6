"""A node's traces: which values each link has at which moment. Plain arithmetic; `player` keeps the time."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from node.wire.layout import Layout
from node.wire.segmentation import super_packet_bytes
from protocol.link import CUT_PCT, Link, Pair
from protocol.node_plan import NodePlan
from protocol.reader import FormatError
from protocol.trace import Ended, NodeTrace

LATE_CHANGE_S = 0.05
"""A change later than this counts as late."""
LONGEST_STANDSTILL_S = 1.0
ROUNDING_S = 1e-6
"""Possible rounding error of sums of floating-point seconds."""


class Trace(NamedTuple):
    """Values of some links over time, prepared for look-up. A trace that lasts longer than a round begins again."""

    links: list[Pair]
    fields: list[str]
    """Which values of the links it sets."""
    times: list[float]
    """When its steps are due within a round, in seconds; the first is 0."""
    rows: list[list[float]]
    """The values of each step, in the order of `fields`. A rate of 0 is an outage."""
    seconds: float
    """Duration of a round."""
    lasts_s: float
    """Duration of the whole trace; infinity: until it is told to end."""

    def due_s(self, step: int) -> float:
        """Return when a step is due; steps count through all rounds."""
        turn, place = divmod(step, len(self.times))
        return turn * self.seconds + self.times[place]

    def step_at(self, seconds: float) -> int:
        """Return the last step that is due by then; -1 if there is none."""
        moment = seconds + ROUNDING_S
        turn = max(0, math.floor(moment / self.seconds))
        return turn * len(self.times) + bisect_right(self.times, moment - turn * self.seconds) - 1

    def values(self, step: int) -> dict[str, float]:
        """Return the values of the links from this step on."""
        return dict(zip(self.fields, self.rows[step % len(self.rows)], strict=True))

    def standstill_s(self, after_s: float) -> float:
        """Return how long nothing passes from this moment on; 0 outside outages."""
        step = self.step_at(after_s)
        for ahead in range(len(self.rows)):
            if self.values(step + ahead).get("rate_mbyte_s", 1.0) > 0:
                return max(0.0, self.due_s(step + ahead) - after_s) if ahead else 0.0
        return math.inf  # an outage for as long as the trace lasts

    def extremes(self, chosen: Callable[[Iterable[float]], float]) -> dict[str, float]:
        """Return the highest (`max`) or lowest (`min`) value of each field that it sets."""
        columns = zip(*self.rows, strict=True)
        return dict(zip(self.fields, map(chosen, columns), strict=True))


class Playing:
    """A trace that is being played, and how punctual its changes are."""

    def __init__(self, trace: Trace, now: float) -> None:
        self.trace = trace
        self.begun = now
        self.ends = now + trace.lasts_s
        # Computed once: there are thousands of steps.
        self._highest, self._lowest = trace.extremes(max), trace.extremes(min)
        self._step, self._since = 0, now
        self._carried_bytes = 0.0
        self._waited_bytes: Mapping[Pair, int] = {}
        self._changes, self._late, self._worst_s = 1, 0, 0.0

    def note_waiting(self, waiting: Mapping[Pair, int]) -> None:
        """Record how many bytes wait at the links that start here, in packets as large as the plan's rate allows."""
        self._waited_bytes = waiting

    def next_due(self) -> float:
        """Return when its next step or its end is due."""
        return min(self.begun + self.trace.due_s(self._step + 1), self.ends)

    def advance(self, now: float) -> bool:
        """Advance to what is due by now. Returns whether anything changes.

        A step whose successor is due as well is skipped, and counts as late.
        """
        before_end_s = self.trace.lasts_s - 2 * ROUNDING_S
        step = self.trace.step_at(min(now - self.begun, before_end_s))
        passed = step - self._step
        if passed <= 0:
            return False
        rate_mbyte_s = self.trace.values(self._step).get("rate_mbyte_s", 0.0)
        self._carried_bytes += rate_mbyte_s * 1e6 * (now - self._since)
        self._since = now
        self._changes += passed
        self._late += passed - 1
        self._step = step
        return True

    def done(self, now: float) -> None:
        """Record that the current step is in force."""
        late_s = now - self.begun - self.trace.due_s(self._step)
        self._worst_s = max(self._worst_s, late_s)
        self._late += late_s > LATE_CHANGE_S

    def is_standing_still(self) -> bool:
        """Return whether it is in an outage."""
        return self.trace.values(self._step).get("rate_mbyte_s") == 0

    def at_most(self, link: Link) -> Link:
        """Return a link with the highest values that the trace sets."""
        rate_mbyte_s = self._highest.get("rate_mbyte_s") or link.rate_mbyte_s
        return Link(**(link._asdict() | self._highest | {"rate_mbyte_s": rate_mbyte_s}))

    def applied_to(self, link: Link, now: float, frame: int) -> Link:
        """Return a link with the values of this moment; `frame` is its largest frame in bytes.

        Its queue keeps its size in bytes at the trace's highest rate. If the size followed the rate, each fall of the
        rate would drop waiting packets. A link that is cut stays cut.
        """
        values = self.trace.values(self._step)
        if link.loss_pct == CUT_PCT:
            values.pop("loss_pct", None)
        if "rate_mbyte_s" in values:
            rate = values["rate_mbyte_s"] or self._standstill_mbyte_s(link, now, frame)
            buffer_ms = link.buffer_ms * self.at_most(link).rate_mbyte_s / rate
            values |= {"rate_mbyte_s": rate, "buffer_ms": buffer_ms}
        return Link(**(link._asdict() | values))

    def _standstill_mbyte_s(self, link: Link, now: float, frame: int) -> float:
        """Return the rate of a link during an outage.

        HTB knows no standstill: after each packet it waits as long as the packet takes at the rate. So the rate is
        such that one packet takes as long as the standstill, and LONGEST_STANDSTILL_S at most: a link whose outage
        ends early may take that long to go on.
        """
        left_s = min(self.trace.standstill_s(now - self.begun), self.ends - now)
        standstill_s = min(max(left_s, 1e-3), LONGEST_STANDSTILL_S)
        return self._largest_packet(link, frame) / standstill_s / 1e6

    def _largest_packet(self, link: Link, frame: int) -> int:
        """Return the size in bytes of the largest packet that may wait: since the trace began, or from before."""
        loss_pct = self._lowest.get("loss_pct", link.loss_pct)
        largest = super_packet_bytes(self.at_most(link)._replace(loss_pct=loss_pct), frame)
        if self._carried_bytes >= self._waited_bytes.get(link.ends, math.inf):
            return largest
        return max(largest, super_packet_bytes(link, frame))

    def report(self, name: str) -> Ended:
        """Return how many changes came, how many late or never, and the worst lateness; `name` is the trace's."""
        worst_ms = round(self._worst_s * 1e3, 1)
        return Ended(ended=name, changes=self._changes, late=self._late, worst_ms=worst_ms)


def under_traces(layout: Layout, traces: Iterable[Playing], now: float) -> Layout:
    """Return a layout with the values that traces give its links at a moment."""
    links = {link.ends: link for link in layout.plan.links}
    highest: dict[Pair, Link] = {}
    for playing in traces:
        for pair in playing.trace.links:
            highest[pair] = playing.at_most(highest.get(pair, links[pair]))
            links[pair] = playing.applied_to(links[pair], now, layout.frame)
    plan = layout.plan._replace(links=list(links.values()))
    return layout._replace(plan=plan, highest=highest)


def make_trace(told: NodeTrace) -> Trace:
    """Return a trace prepared for look-up, from its description."""
    return Trace(
        links=told.links,
        fields=told.fields,
        times=[step[0] for step in told.steps],
        rows=[step[1:] for step in told.steps],
        seconds=told.seconds,
        lasts_s=math.inf if told.lasts_s is None else told.lasts_s,
    )


def check_links(trace: Trace, plan: NodePlan, key: str) -> None:
    """Refuse a trace of links that a node does not have.

    Raises:
        FormatError: names the link.
    """
    there = {link.ends for link in plan.links}
    for src, dst in trace.links:
        if (src, dst) not in there:
            raise FormatError(f"{plan.node} has no link from {src} to {dst}", f"{key}.links")
