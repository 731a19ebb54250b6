"""Causes: what slowed a run down, with the seconds that each cost, largest first. Pure.

A cause is one thing that is worse than its peers, or that went wrong; its seconds are the time by which the run would
have been shorter if that thing had been like its peers:

    slow_link       a link with less rate than the median of the links
    far_link        a link with more delay than the median of the links
    narrow_access   an uplink or downlink that its node's links have to share
    lossy_link      a link that lost packets: TCP waited for timeouts, and restarted with small windows
    idle_window     pauses, after which TCP restarts with small windows (RFC 2861)
    slow_node       a rank that works longer than its peers before a collective, while they wait
    throttled_node  the same, on a node that reached its CPU limit meanwhile
    evaluation, startup, checkpoint   what a rank did while its peers waited
    event           of a schedule: collectives during it took longer than others of their kind

A network that is slow everywhere has no cause: `better_link` says which improvement would help. How much quicker
collectives would be on other links is predicted by the model of gloo (gloo_timing.py); what ranks and events cost was
measured. Then the run is replayed without it (run_replay.py).
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median
from typing import Any

from cluster.accounting.attribution import attribute
from cluster.accounting.better_link import with_delay, with_rate
from cluster.accounting.bounds import Network, flows_of
from cluster.accounting.collectives import Collective, Part, by_key
from cluster.accounting.rank_time import RankTime
from cluster.accounting.run_replay import Quicker, RunReplay, Transfer, transfers_of
from cluster.accounting.tcp_timing import SocketState
from cluster.accounting.tcp_windows import windows_of_run
from cluster.accounting.transfer_model import (
    TransferModel,
    affordable_samples,
    carriers_in_use,
    take_samples,
)
from cluster.base.wording import times_as_long

MOST_STEPS = 1_000_000  # messages of all ranks that are replayed: some seconds
MOST_SAMPLES = 32  # per kind, purpose and size: losses are rare
REPLAYS = 5  # of each collective, to find its parts
MOST_TOLD = 5
LEAST_S, LEAST_SHARE = 0.05, 0.01  # seconds, and share of the run
OVER = "over: "  # prefix of the end of an event, in events.jsonl
WORK = {"eval": "evaluation", "startup": "startup", "checkpoint": "checkpoint"}  # else slow_node
Found = dict["Cause", Quicker]
"""What would have been quicker without each cause, whose `seconds` are not known yet."""
Carrier = tuple["Cause", Network]
"""What is worse with a carrier, and the network without that."""


@dataclass(frozen=True)
class Cause:
    """One cause.

    Attributes:
        cause: one of the names in the module docstring.
        of: a link, uplink, rank or event; empty if it concerns all connections.
        seconds: its cost.
        factor: how many times worse it is than its peers; None if that is meaningless.
    """

    cause: str
    of: str
    seconds: float = 0.0
    factor: float | None = None

    @property
    def words(self) -> str:
        """The cause in words, for the user."""
        match self.cause:
            case "slow_link":
                return f"{self.of} takes {self._times} per byte as the median link"
            case "far_link":
                return f"{self.of} delays packets {self._times} as the median link"
            case "narrow_access":
                return f"{self.of}: links share it"
            case "lossy_link":
                return f"{self.of} loses packets"
            case "idle_window":
                return "TCP begins slowly after pauses"
            case "slow_node":
                return f"{self.of} works longer than its peers"
            case "throttled_node":
                return f"{self.of} works longer than its peers, held back by its CPU limit"
            case "evaluation":
                return f"{self.of} tests while its peers wait"
            case "startup":
                return f"{self.of} starts later than its peers"
            case "checkpoint":
                return f"{self.of} writes checkpoints while its peers wait"
            case _:
                return self.of

    @property
    def _times(self) -> str:
        return times_as_long(self.factor or 1.0)


@dataclass(frozen=True)
class Interval:
    """The time during which an event of a schedule was in force.

    Attributes:
        what: the schedule's words.
        since: start, Unix time; `until`: end, infinite if none was logged.
    """

    what: str
    since: float
    until: float = math.inf


def find_causes(
    collectives: Sequence[Collective],
    ranks: Sequence[RankTime],
    network: Network | None,
    events: Sequence[Interval] = (),
    throttled_s: Mapping[str, float] | None = None,
    *,
    slow_start: bool = False,
) -> list[Cause]:
    """Return the causes that cost most, largest first; those that cost anything.

    Args:
        collectives: all of the run.
        ranks: in order, if all of them are known.
        network: links; None if they changed, or are unknown.
        events: of its schedule.
        throttled_s: node -> how long its CPU limit stopped it.
        slow_start: whether an idle connection restarts with slow start.
    """
    found = _slow_ranks(collectives, ranks) | _events(collectives, events)
    seconds: Mapping[Transfer, float] = {}
    if network is not None:
        worse = _worse_carriers(carriers_in_use(collectives, network), network)
        names = [cause.of for cause, _ in worse]
        samples, count = affordable_samples(collectives, network, names, MOST_STEPS)
        model = TransferModel(samples, network)
        found |= {cause: model.quicker_on(then, cause.of) for cause, then in worse[:count]}
        found |= _windows(collectives, network, slow_start=slow_start)
        seconds = model.seconds
    largest = RunReplay(collectives, seconds).largest(found, MOST_TOLD)
    costly = [replace(cause, seconds=s) for cause, s in largest]
    return [_throttled(one, throttled_s or {}) for one in costly]


def causes_summary(causes: Iterable[Cause], wall_s: float) -> list[dict[str, object]]:
    """Return `causes` of summary.json: those large enough to mention."""
    least_s = max(LEAST_S, LEAST_SHARE * wall_s)
    told = [one for one in causes if one.seconds >= least_s]
    return [
        {
            "cause": one.cause,
            "of": one.of,
            "seconds": round(one.seconds, 3),
            "factor": None if one.factor is None else round(one.factor, 2),
            "words": one.words,
        }
        for one in told
    ]


def sentence(causes: Sequence[Mapping[str, object]]) -> str:
    """Return a sentence for the user with the first two causes of summary.json; '' if there is none."""
    if not causes:
        return ""
    told = ", ".join(f"{one['words']} ({one['seconds']:.1f} s)" for one in causes[:2])
    return f"slowed down by: {told}"


def parse_events(lines: Iterable[Mapping[str, Any]]) -> list[Interval]:
    """Parse the lines of events.jsonl into intervals, in order."""
    intervals: list[Interval] = []
    for line in lines:
        what, at = str(line["what"]), float(line["time"])
        if not what.startswith(OVER):
            intervals.append(Interval(what, at))
            continue
        for index, one in enumerate(intervals):
            if one.what == what.removeprefix(OVER) and one.until == math.inf:
                intervals[index] = replace(one, until=at)
                break
    return intervals


def _worse_carriers(used: Sequence[str], network: Network) -> list[tuple[Cause, Network]]:
    """Return links in use that are worse than the median link, and uplinks and downlinks; and each without that cause.

    By rate, by delay and of access in turn, the worst first: not all of them may be tried, and how many times slower a
    link is says nothing beside how many times as long another one is.
    """
    if not used:
        return []
    typical_byte_s = median(s for name, s in network.byte_s.items() if "->" in name)
    typical_delay_s = median(network.delay_s.values()) if network.delay_s else 0.0
    slow, far, narrow = list[Carrier](), list[Carrier](), list[Carrier]()
    for name in sorted(used, key=lambda name: network.byte_s[name]):
        byte_s, delay_s = network.byte_s[name], network.delay_s.get(name, 0.0)
        if "->" not in name:
            narrow.append((Cause("narrow_access", name), with_rate(network, name, math.inf)))
            continue
        if byte_s < typical_byte_s:
            cause = Cause("slow_link", name, factor=typical_byte_s / byte_s)
            slow.append((cause, with_rate(network, name, typical_byte_s)))
        if delay_s > typical_delay_s > 0:
            cause = Cause("far_link", name, factor=delay_s / typical_delay_s)
            far.append((cause, with_delay(network, name, typical_delay_s)))
    far.sort(key=lambda one: -(one[0].factor or 0.0))
    return [one for turn in zip_longest(slow, far, narrow) for one in turn if one is not None]


def _windows(collectives: Sequence[Collective], network: Network, *, slow_start: bool) -> Found:
    """Return the cost of losses, by link, and of pauses."""
    samples = take_samples(collectives, network, MOST_SAMPLES)
    if sum(sample.steps for sample in samples) * REPLAYS > MOST_STEPS:
        return {}
    windows = windows_of_run(collectives, network, slow_start=slow_start)
    lossy = _lossy_flows(collectives)
    transfers: defaultdict[Cause, defaultdict[Transfer, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    for sample in samples:
        for one, alike in zip(sample.collectives, sample.stands_for, strict=True):
            if (parts := attribute(one, network, windows(one))) is None:
                continue
            # A model of windows that took longer than the collective did explains only what was measured.
            window_s = max(0.0, parts["window"] + min(0.0, parts["unexplained"]))
            costs = [(_small_window(one, network, lossy), window_s)]
            if (flow := _worst_loss(one)) is not None:
                costs.append((Cause("lossy_link", _link_name(network, flow)), parts["loss"]))
            for cause, s in costs:
                for transfer in (t for other in alike for t in transfers_of(other)):
                    transfers[cause][transfer] += s
    return {cause: Quicker(quicker) for cause, quicker in transfers.items()}


def _small_window(one: Collective, network: Network, lossy: Collection[tuple[int, int]]) -> Cause:
    """Return the cause of small windows: losses on a link, or pauses."""
    small = _smallest_window(one, network)
    if small is not None and small in lossy and not _was_idle(one, small):
        return Cause("lossy_link", _link_name(network, small))
    return Cause("idle_window", "")


def _lossy_flows(collectives: Iterable[Collective]) -> set[tuple[int, int]]:
    """Return the (sender, receiver) pairs between which TCP has retransmitted anything."""
    return {
        (part.rank, peer)
        for one in collectives
        for part in one.parts
        for peer, state in part.tcp.items()
        if state.sent_again
    }


def _states(collective: Collective) -> dict[tuple[int, int], SocketState]:
    return {
        (part.rank, peer): part.tcp[peer] for part, peer in flows_of(collective) if peer in part.tcp
    }


def _worst_loss(collective: Collective) -> tuple[int, int] | None:
    """Return the connection that may have waited longest for its retransmissions."""
    waits = {flow: s.sent_again * s.rto_s for flow, s in _states(collective).items()}
    worst = max(waits, key=lambda flow: waits[flow], default=None)
    return worst if worst is not None and waits[worst] > 0 else None


def _smallest_window(collective: Collective, network: Network) -> tuple[int, int] | None:
    """Return the connection that its window slows down most: window over (round trip times rate)."""

    def fullness(flow: tuple[int, int], state: SocketState) -> float:
        routes = [network.routes.get(pair) for pair in (flow, flow[::-1])]
        rtt_s = sum(route.delay_s for route in routes if route)
        byte_s = routes[0].byte_s if routes[0] else math.inf
        return state.window.size_bytes / (rtt_s * byte_s) if rtt_s and byte_s else math.inf

    states = _states(collective)
    return min(states, key=lambda flow: fullness(flow, states[flow]), default=None)


def _was_idle(collective: Collective, flow: tuple[int, int]) -> bool:
    state = _states(collective)[flow]
    return state.idle_s > state.rto_s


def _link_name(network: Network, flow: tuple[int, int]) -> str:
    """Return the names of the links between two ranks; on a path of several hops there are several."""
    route = network.routes.get(flow)
    links = [name for name in route.carriers if "->" in name] if route else []
    return ", ".join(links) or f"rank {flow[0]}->rank {flow[1]}"


def _slow_ranks(collectives: Sequence[Collective], ranks: Sequence[RankTime]) -> Found:
    """Return ranks that arrived last, by what they did longer than their peers since each one's previous collective."""
    ended = _ends(collectives, len(ranks))
    began = min((rank.start for rank in ranks), default=0.0)
    computing: defaultdict[Cause, dict[int, float]] = defaultdict(dict)
    for one in collectives:
        late = _late(one)
        if late is None or not all(part.rank < len(ranks) for part in (late[0], *late[1])):
            continue
        last, others, late_s = late
        own = _work(last, ranks, ended, began)
        peers = [_work(part, ranks, ended, began) for part in others]
        more = {what: s - median(p.get(what, 0.0) for p in peers) for what, s in own.items()}
        more = {what: s for what, s in more.items() if s > 0}
        costs: defaultdict[Cause, float] = defaultdict(float)
        for what, s in more.items():
            cause = Cause(WORK.get(what, "slow_node"), ranks[last.rank].name)
            costs[cause] += late_s * s / sum(more.values())
        for cause, s in costs.items():
            # A part of an exchange can be last in its own and in its peers'.
            computing[cause][id(last)] = max(s, computing[cause].get(id(last), 0.0))
    return {cause: Quicker(computing=quicker) for cause, quicker in computing.items()}


def _throttled(cause: Cause, throttled_s: Mapping[str, float]) -> Cause:
    """Return a slow node's cause: its CPU limit, if that stopped it for at least half of the cost."""
    stopped_s = throttled_s.get(cause.of.partition("-")[0], 0.0)
    is_throttled = cause.cause == "slow_node" and stopped_s >= cause.seconds / 2
    return replace(cause, cause="throttled_node") if is_throttled else cause


def _ends(collectives: Iterable[Collective], ranks: int) -> list[list[float]]:
    """Return by rank when its collectives ended, in order."""
    ended: list[list[float]] = [[] for _ in range(ranks)]
    for one in collectives:
        for part in one.parts:
            if part.rank < ranks:
                ended[part.rank].append(part.ended)
    return [sorted(own) for own in ended]


def _late(collective: Collective) -> tuple[Part, Sequence[Part], float] | None:
    """Return the rank that arrived last, all others, and how long they waited for it alone; None if not at all."""
    parts = sorted(collective.all_parts, key=lambda part: part.entered)
    if len(parts) < 2:
        return None
    last, others = parts[-1], parts[:-1]
    late_s = last.entered - others[-1].entered
    # A rank that was hidden computed on: it did not wait.
    waits_s = [collective.waiting_s(part) for part in others if not part.hidden]
    waited_s = min(late_s, max(waits_s, default=0.0))
    return (last, others, waited_s) if waited_s > 0 else None


def _work(
    part: Part, ranks: Sequence[RankTime], ended: Sequence[Sequence[float]], began: float
) -> dict[str, float]:
    """Return the seconds since the rank's previous collective, by activity."""
    own = ended[part.rank]
    before = bisect_left(own, part.entered)
    since = own[before - 1] if before else began
    return ranks[part.rank].between(since, part.entered)


def _events(collectives: Iterable[Collective], events: Sequence[Interval]) -> Found:
    """Return by how much collectives during an event took longer than the median of others of their kind."""
    transfers: defaultdict[Cause, dict[Transfer, float]] = defaultdict(dict)
    for group in by_key(one for one in collectives if not one.hidden).values():
        during = {id(one): _event_of(one, events) for one in group}
        others = [_took_s(one) for one in group if during[id(one)] is None]
        if not others:
            continue
        typical_s = median(others)
        for one in group:
            if (event := during[id(one)]) is not None:
                longer_s = max(0.0, _took_s(one) - typical_s)
                transfers[Cause("event", event.what)] |= dict.fromkeys(transfers_of(one), longer_s)
    return {cause: Quicker(quicker) for cause, quicker in transfers.items()}


def _event_of(collective: Collective, events: Sequence[Interval]) -> Interval | None:
    """Return the event that began last of those that overlap the collective."""
    until = max(part.ended for part in collective.parts)
    found = [one for one in events if one.since < until and collective.complete_at < one.until]
    return max(found, key=lambda one: one.since, default=None)


def _took_s(collective: Collective) -> float:
    return max(part.ended for part in collective.parts) - collective.complete_at
