"""Chooses TCP or datagrams for each link's speed, and estimates how long the measurement takes. Pure.

TCP shows what a program gets of a link, but keeps a core busy for more than a second per link. If that would take
longer than an effort allows, datagrams measure the rate of every link, in a fraction of a second, and TCP is tried on
one link out of each node, or of every second, fourth, … node; `ProbeSchedule.note` says so. Thousands of links are
flooded at a brisker pace.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.base.errors import UsageError
from cluster.contract.bursts import burst_links, bursts_s
from cluster.contract.floods import (
    BRISK,
    USUAL,
    Pace,
    access_floods,
    floods_s,
    link_floods,
    may_be_clipped,
    takes_frames,
)
from cluster.contract.probe_concurrency import path_groups, plan_rounds
from cluster.contract.probe_plan import (
    PATH_APART,
    Effort,
    LossGoal,
    delay_pings,
    loss_pings,
    ping_pairs,
    ping_s,
    send_order,
    send_s,
    streams_of,
)
from cluster.links.expected import Expected
from protocol.link import Link

# Of TCP side by side, which must leave the CPU some room. Of single frames, half: at 100, 64 nodes on two cores carried
# a third of the connections too slowly.
STREAM_BUDGET_MBYTE_S, STREAM_FRAME_COST = 100.0, 2.0
# How long a bounded measurement may take with TCP on every link: with few nodes, with more.
FEW_NODES, FEW_BUDGET_S, BUDGET_S = 3, 14.5, 58.0
# If that is too long: time limits for floods at the usual pace, and for TCP on a sample of the links at either pace.
MOST_FLOODS_S, MOST_SAMPLE_S, BRISK_SAMPLE_S = 60.0, 30.0, 18.0
MOST_LOSSES_S = 30.0  # for losses that are only told from none: else the contract has a note
MOST_BURSTS_S = 6.0  # for queues, even if all else takes the whole time
PROBERS_S, PROBER_S = 0.3, 0.1  # until the probes run: a fixed part, and per node
ASK_S = 0.05  # to send an order and receive its answers


@dataclass(frozen=True)
class ProbeSchedule:
    """How the speeds of all links are measured, and how long that takes.

    Attributes:
        streamed: the links on which a TCP connection is tried.
        flooded: the links whose rate datagrams measure.
        burst: the links whose queue a burst measures.
        seconds: estimated time of the whole measurement, if no link must be measured again.
        pace: the pace of the floods, except for links that are measured again.
        note: a remark for the user; '' if there is none.
        losses: how many losses floods are to count; None: those that happen meanwhile.
    """

    streamed: frozenset[Link]
    flooded: frozenset[Link]
    burst: frozenset[Link]
    seconds: float
    pace: Pace = USUAL
    note: str = ""
    losses: LossGoal | None = None


def budget_s(nodes: int, effort: Effort) -> float:
    """Return how long an effort may take with TCP on every link, in seconds."""
    if not effort.bounded:
        return math.inf
    return FEW_BUDGET_S if nodes <= FEW_NODES else BUDGET_S


def check_budget(most_s: float | None, effort: Effort) -> None:
    """Refuse a budget that is none, or of an effort that has no use for it.

    Raises:
        UsageError: it is below 0 or not a number, or the effort measures no speeds.
    """
    if most_s is None:
        return
    if not most_s >= 0:  # nan, too
        raise UsageError(f"a budget of {most_s:g} s", "0 or more: --budget 60")
    if not effort.speeds:
        raise UsageError(
            "a budget is for TCP, which --quick leaves out", "leave --quick or --budget out"
        )


def make_probe_schedule(
    asked: Expected,
    paths: Sequence[Link],
    nodes: Sequence[str],
    effort: Effort,
    seed: int,
    budget_s: float,
) -> ProbeSchedule:
    """Choose how to measure speeds, within the time that the effort allows if possible.

    Args:
        asked: all links, uplinks and downlinks.
        paths: pairs of nodes without a link, as links from end to end.
        nodes: the nodes' names, in order.
        effort: how thoroughly to measure.
        seed: chooses the links on which TCP is tried, if not all.
        budget_s: time limit with TCP on all links.
    """
    effort = replace(effort, losses=_loss_goal(asked, nodes, effort))
    rest_s = _rest_s(asked, paths, nodes, effort)
    if not effort.speeds:
        # The verdict says so.
        return ProbeSchedule(frozenset(), frozenset(), frozenset(), rest_s)
    links = burst_links(asked)
    few = _few_queues(links, nodes, seed)
    few_s = bursts_s(few)
    speeds = _schedule_speeds(asked, nodes, effort, seed, budget_s, rest_s + few_s)
    with_all_s = speeds.seconds - few_s + bursts_s(links)
    if with_all_s <= budget_s:
        return replace(speeds, burst=frozenset(links), seconds=with_all_s, losses=effort.losses)
    notes = (speeds.note, _queues_note(few, links))
    note = "; ".join(filter(None, notes))
    return replace(speeds, burst=frozenset(few), note=note, losses=effort.losses)


def _loss_goal(asked: Expected, nodes: Sequence[str], effort: Effort) -> LossGoal | None:
    """Return how many losses are counted: as the effort says, unless that takes a bounded one too long."""
    lossy = [link for link in asked.links if link.is_impaired and not asked.is_cut(link)]
    if not effort.bounded or effort.losses is None or not lossy:
        return effort.losses
    without = replace(effort, losses=None)
    more_s = _floods_s(asked, lossy, nodes, effort) - _floods_s(asked, lossy, nodes, without)
    return effort.losses if more_s <= MOST_LOSSES_S else None


def _schedule_speeds(
    asked: Expected,
    nodes: Sequence[str],
    effort: Effort,
    seed: int,
    budget_s: float,
    rest_s: float,
) -> ProbeSchedule:
    """Return a schedule for everything but queues, if all but speeds takes `rest_s`."""
    alive = [link for link in asked.links if not asked.is_cut(link)]
    flooded = [link for link in alive if link.is_rough or may_be_clipped(asked.rate_mbyte_s(link))]
    streams = alive if effort.tcp_on_rough else [link for link in alive if not link.is_rough]
    seconds = rest_s + _streams_s(asked, streams, nodes) + _floods_s(asked, flooded, nodes, effort)
    if seconds <= budget_s or not streams:
        return ProbeSchedule(frozenset(streams), frozenset(flooded), frozenset(), seconds)
    pace, flooding_s = USUAL, _floods_s(asked, alive, nodes, effort)
    if effort.bounded and flooding_s > MOST_FLOODS_S:
        pace, flooding_s = BRISK, _floods_s(asked, alive, nodes, effort, BRISK)
    sample_s = MOST_SAMPLE_S if pace is USUAL else BRISK_SAMPLE_S
    sample = _sample(asked, streams, nodes, seed, sample_s)
    note = (
        f"TCP on every link would have taken about {seconds:.0f} s: TCP measured {len(sample)} of {len(streams)} links "
        f"(no two out of one node, drawn by seed {seed}), and datagrams the rates of all; --full uses TCP on all"
    )
    seconds = rest_s + _streams_s(asked, sample, nodes) + flooding_s
    return ProbeSchedule(frozenset(sample), frozenset(alive), frozenset(), seconds, pace, note)


def _sample(
    asked: Expected, links: Sequence[Link], nodes: Sequence[str], seed: int, most_s: float
) -> list[Link]:
    """Return the links on which TCP is tried if not on all: one out of each node, or of fewer within the time limit."""
    sample = one_of_each(links, nodes, seed)
    while len(sample) > 1 and _streams_s(asked, sample, nodes) > most_s:
        sample = sample[::2]
    return sample


def _few_queues(links: Sequence[Link], nodes: Sequence[str], seed: int) -> Sequence[Link]:
    """Return the links whose queue is measured even if time is short: all, one out of each node, or none."""
    if bursts_s(links) <= MOST_BURSTS_S:
        return links
    sample = one_of_each(links, nodes, seed)
    return sample if bursts_s(sample) <= MOST_BURSTS_S else []


def _queues_note(measured: Sequence[Link], links: Sequence[Link]) -> str:
    """Return a remark if not all queues are measured that could be."""
    if len(measured) == len(links):
        return ""
    return f"queues were measured on {len(measured)} of {len(links)} links; --full measures all"


def one_of_each(links: Sequence[Link], nodes: Sequence[str], seed: int) -> list[Link]:
    """Return one link out of each node that has one: to the node a seeded number of places on, or the next possible."""
    place = {name: index for index, name in enumerate(nodes)}
    places = random.Random(f"{seed}/tcp").randrange(1, len(nodes))

    def distance(link: Link) -> int:
        return (place[link.dst] - place[link.src] - places) % len(nodes)

    own = [[link for link in links if link.src == name] for name in nodes]
    return [min(some, key=distance) for some in own if some]


def stream_rounds(
    asked: Expected, links: Sequence[Link], nodes: Sequence[str], share: float = 1.0
) -> list[list[Link]]:
    """Return the rounds in which TCP is tried; `share`: of what usually goes side by side.

    A node receives acknowledgements for what it sends, 2 to 4 % of that, which its downlink then lacks.
    """
    single = {*asked.uplinks, *asked.downlinks}
    return plan_rounds(links, nodes, STREAM_BUDGET_MBYTE_S, single, _stream_load_mbyte_s, share)


def _stream_load_mbyte_s(link: Link) -> float:
    return link.rate_mbyte_s * (STREAM_FRAME_COST if takes_frames(link) else 1.0)


def _rest_s(asked: Expected, paths: Sequence[Link], nodes: Sequence[str], effort: Effort) -> float:
    """Return the time of everything but speeds: the start of the probes, round trips, jitter, loss."""
    pinged = [(asked.links, 1.0), *((group, PATH_APART) for group in path_groups(paths, nodes))]
    pings_s = sum(_pings_s(links, nodes, effort, apart) for links, apart in pinged)
    return PROBERS_S + PROBER_S * len(nodes) + pings_s


def _pings_s(links: Sequence[Link], nodes: Sequence[str], effort: Effort, apart: float) -> float:
    lossy = [link for link in links if link.is_impaired]
    streams, lossy_streams = (streams_of(ping_pairs(some, nodes)) for some in (links, lossy))
    delays_s = ping_s(delay_pings(links, {}, streams, effort, apart)) + 2 * ASK_S
    if not lossy:
        return delays_s
    return delays_s + ping_s(loss_pings(lossy, {}, lossy_streams, effort)) + 2 * ASK_S


def _streams_s(asked: Expected, links: Sequence[Link], nodes: Sequence[str]) -> float:
    """Return how long TCP on these links takes."""
    return sum(
        max(_stream_s(link, asked.rtt_ms(link)) for link in some) + ASK_S
        for some in stream_rounds(asked, links, nodes)
    )


def _stream_s(link: Link, rtt_ms: float) -> float:
    return send_s(send_order(link, rtt_ms, ""), rtt_ms)


def _floods_s(
    asked: Expected,
    links: Sequence[Link],
    nodes: Sequence[str],
    effort: Effort,
    pace: Pace = USUAL,
) -> float:
    """Return how long datagrams on these links take, and on all uplinks and downlinks."""
    limited = [asked.as_limited(link) for link in links]
    alone = link_floods(limited, nodes, pace, losses=effort.losses)
    together = access_floods(asked, asked.accesses())
    return sum(floods_s(some) + ASK_S for some in (alone, together) if some)
