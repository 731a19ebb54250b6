"""Plans floods of datagrams that measure link rates: how many, how long, when; one order per node. Pure.

Rates of links are those that their nodes' uplinks and downlinks leave (`Expected.as_limited`).

No round trip between host and nodes separates two floods: each node gets all of its floods beforehand, as a
timetable. Arrivals are counted per sender (each has its own port), so it does not matter if a node is a little late.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.contract.impairments import clumping, fate_variance
from cluster.contract.probe_concurrency import Probe, by_shift, plan_starts
from cluster.contract.probe_plan import LossGoal
from cluster.links.expected import Access, Expected
from protocol.link import Link
from protocol.ports import FIRST_FLOOD_PORT
from protocol.probe import FloodCount, FloodOrder, FloodSend

FRAME_BYTES = 1514  # of a datagram at MTU 1500, for planning; results are computed with the size that was sent
# The start of a flood that does not count, besides the pace's own: until a jittery link reaches its full delay.
SKIP_JITTERS = 4.0
# The part that counts: long enough that jitter does not move the rate, enough datagrams that loss does not; with an
# upper limit.
LONGEST_S, LEAST_JITTERS, LEAST_DATAGRAMS = 10.0, 25.0, 200
# Datagrams on impaired links, and the largest factor on that if losses come in bursts.
FLOOD_DATAGRAMS, MOST_CLUMPING = 1000, 4.0
# Standard error of node.probe.flood's median, in standard errors of the mean: from simulated floods.
MEDIAN_ERROR = 1.25
MOST_TIMES_LONGER = 4.0  # a flood of a later pass
SHARED_SKIP_S = 0.3  # until links have settled on their shares
# What counts after that, at least. If many links share little: this many datagrams for each on average, within the time
# limit, because the slowest need two to be counted.
SHARED_S = 1.0
SHARED_DATAGRAMS, LONGEST_SHARED_S = 6, 20.0
# What a sender keeps in the link's queue, at most: so long may a busy machine stop it. Links that share an uplink or
# downlink keep less, because a queue behind them must drain after all of it.
QUEUE_MS, SHARED_QUEUE_MS, QUEUE_SHARE = 100.0, 20.0, 0.5
SUPER_PACKET_MS = 0.2  # a super-packet that a link takes whole: node.wire.segmentation
BURST_MS, BURST_SHARE, MOST_AT_ONCE = 2.0, 0.1, 40  # for one call, at most 64 KB
# Any machine carries this much: one that carries less is busy, not at its limit.
HOST_LIMIT_MBYTE_S = 100.0
# Of single frames, two cores on a slow day pass 33,000 a second, or 50 MB/s (docs/LOG.md, 2026-11-23).
MOST_FRAMES_MBYTE_S, MOST_FRAMES_PER_S = 50.0, 33_000
LEAD_S, TAIL_S = 0.3, 0.3  # until all nodes have their order; until everything has arrived


class Pace(NamedTuple):
    """How quickly floods of links follow one another.

    Attributes:
        skip_s: the start of a flood that does not count.
        least_s: the shortest part that counts, on a link without impairments.
        pause_s: between two rounds, for what a sender may have left in its queue.
        budget_mbyte_s: the total rate that is flooded side by side, where links take super-packets.
    """

    skip_s: float
    least_s: float
    pause_s: float
    budget_mbyte_s: float


# Timer granularity does not move such a rate. Datagrams that no program reads cost less than half of what TCP does.
USUAL = Pace(skip_s=0.06, least_s=0.2, pause_s=0.04, budget_mbyte_s=200.0)
# For thousands of links: timer granularity may move a rate on a busy machine; a link that fails is measured again at
# the usual pace.
BRISK = Pace(skip_s=0.03, least_s=0.06, pause_s=0.02, budget_mbyte_s=300.0)


@dataclass(frozen=True)
class Flood:
    """Datagrams on one link.

    Attributes:
        link: the link.
        at_s: when they begin.
        seconds: for how long.
        skip_s: the first part, which does not count.
        pause_s: until the next flood may begin.
        shares: whether other floods share its uplink or downlink at the same time.
    """

    link: Link
    at_s: float
    seconds: float
    skip_s: float
    pause_s: float = USUAL.pause_s
    shares: bool = False

    @property
    def over_s(self) -> float:
        """When the link's queue is empty again."""
        return (
            self.at_s
            + self.seconds
            + self.pause_s
            + 2 * at_once(self.link) * _datagram_s(self.link)
        )


def may_be_clipped(mbyte_s: float) -> bool:
    """Return whether a rate is more than every machine carries."""
    return mbyte_s > HOST_LIMIT_MBYTE_S


def link_floods(
    links: Sequence[Link],
    nodes: Sequence[str],
    pace: Pace = USUAL,
    share: float = 1.0,
    losses: LossGoal | None = None,
) -> list[Flood]:
    """Plan a flood per link, side by side within the pace's budget.

    With a `share` of what would go side by side, they are longer by 1 / `share`, at most by MOST_TIMES_LONGER.
    With `losses`, floods last until so many losses are to be expected, and not only until a link's rate is known.
    """
    longer = min(1 / share, MOST_TIMES_LONGER)
    floods = [_flood(link, pace, longer) for link in by_shift(links, nodes)]
    if losses:
        floods = [_for_losses(flood, losses) for flood in floods]
    probes = [Probe(flood.link, flood.over_s, load_mbyte_s(flood.link, pace)) for flood in floods]
    starts_s = plan_starts(probes, pace.budget_mbyte_s, share)
    return [
        replace(flood, at_s=LEAD_S + at_s) for flood, at_s in zip(floods, starts_s, strict=True)
    ]


def access_floods(asked: Expected, accesses: Iterable[Access]) -> list[Flood]:
    """Plan floods of all links of an uplink or downlink at once, one uplink or downlink after the other."""
    return _one_after_another(
        _shared([asked.as_limited(link) for link in access.links], asked.access_mbyte_s(access))
        for access in accesses
    )


def _shared(links: Sequence[Link], mbyte_s: float) -> list[Flood]:
    """Return floods of these links at once, which end when what they queued for their shared limit has drained."""
    floods = [_flood(link) for link in links]
    skip_s = max(SHARED_SKIP_S, *(flood.skip_s for flood in floods))
    enough_s = SHARED_DATAGRAMS * len(links) * FRAME_BYTES / (mbyte_s * 1e6)
    counted_s = max(SHARED_S, min(enough_s, LONGEST_SHARED_S))
    seconds = max(skip_s + counted_s, *(flood.seconds for flood in floods))
    pause_s = max(USUAL.pause_s, len(links) * SHARED_QUEUE_MS / 1e3)
    return [Flood(link, 0.0, seconds, skip_s, pause_s, shares=True) for link in links]


def floods_s(floods: Sequence[Flood]) -> float:
    """Return how long floods take in total, until the last datagram has arrived."""
    ends = [
        flood.over_s + (flood.link.delay_ms + 6 * flood.link.jitter_ms) / 1e3 for flood in floods
    ]
    return TAIL_S + max(ends, default=0.0)


def flood_orders(floods: Sequence[Flood], addresses: Mapping[str, str]) -> dict[str, FloodOrder]:
    """Return what each node must send and count, each link once; `addresses` by node, in the nodes' order."""
    ports = sender_ports(addresses)
    seconds = floods_s(floods)
    orders: dict[str, FloodOrder] = {}
    for flood in floods:
        src, dst = flood.link.ends
        for name in (src, dst):
            orders.setdefault(name, FloodOrder(sends={}, counts={}, seconds=seconds))
        orders[src].sends[dst] = _flood_send(flood, addresses[dst], ports[src])
        orders[dst].counts[src] = FloodCount(
            port=ports[src],
            skip_s=flood.skip_s,
            until_s=flood.seconds if flood.shares else None,
        )
    return orders


def sender_ports(nodes: Iterable[str]) -> dict[str, int]:
    """Return the port to which each node sends its datagrams, whatever their destination."""
    return {name: FIRST_FLOOD_PORT + index for index, name in enumerate(nodes)}


def _flood_send(flood: Flood, address: str, port: int) -> FloodSend:
    return FloodSend(
        at_s=round(flood.at_s, 3),
        address=address,
        port=port,
        at_once=at_once(flood.link),
        queued_bytes=queued_bytes(flood.link, SHARED_QUEUE_MS if flood.shares else QUEUE_MS),
        seconds=round(flood.seconds, 3),
        datagrams=None if flood.shares else math.ceil(flood.seconds / _datagram_s(flood.link)),
    )


def flooded_mbyte_s(link: Link, datagrams_s: float, frame_bytes: int = FRAME_BYTES) -> float:
    """Return the link's rate, in bytes on the wire, if `datagrams_s` arrived; corrected as in `carried`."""
    return carried(link, datagrams_s * frame_bytes / 1e6)


def carried(link: Link, arrived: float) -> float:
    """Return how much a link carried, from how much of it arrived: plus the loss asked for, minus duplicates."""
    once = arrived / (1 + link.duplicate_pct / 100)
    return once / (1 - link.lost_pct / 100) if link.lost_pct < 100 else 0.0


def flood_error(link: Link) -> float:
    """Return the standard error of a flooded rate, as a share of it, due to random loss and duplication."""
    lost = link.lost_pct / 100
    if lost >= 1:
        return 0.0
    flood = _flood(link)
    datagrams = (flood.seconds - flood.skip_s) / _datagram_s(link)
    return MEDIAN_ERROR * math.sqrt(fate_variance(link) / datagrams) / (1 - lost)


def access_error(asked: Expected, access: Access) -> float:
    """Return the standard error of what an access's floods carry, as a share of it, due to loss and duplication.

    Each link contributes in proportion to its rate, as node.wire.node_cap divides the limit, and its own chance with
    it. Losses before a downlink that is full all the same do not change what it carries, nor do netem's duplicates.
    """
    mbyte_s = asked.access_mbyte_s(access)
    is_full_downlink = access.kind == "downlink" and mbyte_s == access.mbyte_s
    links = [_behind(link) if is_full_downlink else link for link in access.links]
    flood, *_ = _shared([asked.as_limited(link) for link in access.links], mbyte_s)
    datagrams = (flood.seconds - flood.skip_s) * mbyte_s * 1e6 / FRAME_BYTES
    total = sum(link.rate_mbyte_s for link in links)
    variance = sum(
        link.rate_mbyte_s / total * fate_variance(link) / (1 - link.lost_pct / 100) ** 2
        for link in links
    )
    return math.sqrt(variance / datagrams)


def _behind(link: Link) -> Link:
    """Return a link with those of its impairments alone that change how much arrives behind a full downlink."""
    after_pct = 0.0 if link.wire == "netem" else link.duplicate_pct
    return link._replace(loss_pct=0.0, duplicate_pct=after_pct)


def at_once(link: Link) -> int:
    """Return how many datagrams may be sent as one: no more than fit into the queue, and few enough to measure a rate.

    If the link takes several whole, no more than that: cutting a larger one costs the machine many times as much.
    """
    room_ms = min(BURST_MS, link.buffer_ms * BURST_SHARE)
    most = MOST_AT_ONCE if takes_frames(link) else _whole(link)
    return max(1, min(MOST_AT_ONCE, most, int(room_ms / 1e3 / _datagram_s(link))))


def _whole(link: Link) -> int:
    """Return how many frames the link takes as one if it is not impaired."""
    return int(SUPER_PACKET_MS / 1e3 / _datagram_s(link))


def takes_frames(link: Link) -> bool:
    """Return whether everything that the link carries is cut into single frames."""
    return link.is_impaired or _whole(link) < 2


def load_mbyte_s(link: Link, pace: Pace = USUAL) -> float:
    """Return how much of a pace's budget a link takes: frames cost a machine more than super-packets."""
    cost = pace.budget_mbyte_s / MOST_FRAMES_MBYTE_S if takes_frames(link) else 1.0
    return link.rate_mbyte_s * cost


def queued_bytes(link: Link, most_ms: float = QUEUE_MS) -> int:
    """Return how much a sender may keep in the link's queue: enough to sleep a while, but never a full queue."""
    return round(link.rate_mbyte_s * 1e3 * min(most_ms, link.buffer_ms * QUEUE_SHARE))


def _flood(link: Link, pace: Pace = USUAL, longer: float = 1.0) -> Flood:
    jitter_s = link.jitter_ms / 1e3
    skip_s = pace.skip_s + SKIP_JITTERS * jitter_s
    flawed = FLOOD_DATAGRAMS * min(clumping(link), MOST_CLUMPING)
    datagrams = flawed if link.is_impaired else LEAST_DATAGRAMS
    least_s = USUAL.least_s if link.is_impaired else pace.least_s  # `flood_error` relies on it
    enough_s = max(least_s, LEAST_JITTERS * jitter_s, datagrams * _datagram_s(link))
    return Flood(link, 0.0, skip_s + min(longer * enough_s, LONGEST_S), skip_s, pace.pause_s)


def _for_losses(flood: Flood, goal: LossGoal) -> Flood:
    """Extend a flood until as many losses are to be expected as the goal asks for, within its time limit."""
    link = flood.link
    if not 0 < link.loss_pct < 100:
        return flood
    datagrams = 100 * goal.losses * clumping(link) / link.loss_pct
    is_too_long = datagrams * max(_datagram_s(link), 1 / MOST_FRAMES_PER_S) > goal.longest_s
    if is_too_long and not goal.cut_short:
        return flood
    counted_s = min(datagrams * _datagram_s(link), goal.longest_s)
    return replace(flood, seconds=max(flood.seconds, flood.skip_s + counted_s))


def _one_after_another(rounds: Iterable[Sequence[Flood]]) -> list[Flood]:
    timed: list[Flood] = []
    at_s = LEAD_S
    for floods in rounds:
        now = [replace(flood, at_s=at_s) for flood in floods]
        timed += now
        at_s = max(flood.over_s for flood in now)
    return timed


def _datagram_s(link: Link) -> float:
    """Return how long the link takes for one full datagram."""
    return FRAME_BYTES / (link.rate_mbyte_s * 1e6)
