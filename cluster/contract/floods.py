"""Plans floods of datagrams that measure link rates: how many, how long, when; one order per node. Pure.

No round trip between host and nodes stands between two floods: each node has all of its own beforehand, as a timetable.
What arrives is counted by sender (each has a port of its own), so it does not matter if a node is a little late.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.contract.impairments import clumping, fate_variance
from cluster.contract.probe_rounds import plan_rounds
from protocol.link import Link
from protocol.ports import FIRST_FLOOD_PORT
from protocol.probe import FloodCount, FloodOrder, FloodSend

FRAME_BYTES = 1514  # of a datagram at MTU 1500, for what is planned; what is found is computed by those that were sent
# What does not count at the beginning, besides a pace's own: until a link that jitters is as late as it gets.
SKIP_JITTERS = 4.0
# What does count, besides: so long that such jitter does not move the rate, and so many that loss does not.
LONGEST_S, LEAST_JITTERS, LEAST_DATAGRAMS = 10.0, 25.0, 200
# Of links that lose or double some; how many times as many where they do it in bursts, at most.
FLOOD_DATAGRAMS, MOST_CLUMPING = 1000, 4.0
# So many losses tell their share to a factor of 1.5 with 99 % (cluster.contract.power); at most for so long on a link.
TELLING_LOSSES, LONGEST_FOR_LOSSES_S = 165.0, 65.0
# Of node.probe.flood's median, in standard errors of the mean: from simulated floods.
MEDIAN_ERROR = 1.25
SHARED_SKIP_S, SHARED_S = 0.3, 1.0  # until links have shared out what they have together
QUEUE_MS, QUEUE_SHARE = 20.0, 0.5  # what a sender has in the link's queue
SUPER_PACKET_MS = 0.2  # what a link takes whole, as time on it: node.wire.segmentation
BURST_MS, BURST_SHARE, MOST_AT_ONCE = 2.0, 0.1, 40  # in one call, which takes 64 KB at most
# Any machine carries this much: where one that is asked for no more does not, it is busy, and not at its limit.
HOST_LIMIT_MBYTE_S = 100.0
# What frames cost of that: a slow day's two cores pass 33,000 of them a second, or 50 MB/s (docs/LOG.md, 2026-11-23).
FRAME_COST = 4.0
LEAD_S, TAIL_S = 0.3, 0.3  # until all nodes have their order; until all has come


class Pace(NamedTuple):
    """How quickly links are flooded one after the other.

    Attributes:
        skip_s: what of a flood does not count.
        least_s: what does, of a link without flaws.
        pause_s: between two rounds: what a sender may have left in its queue.
        budget_mbyte_s: how much goes side by side.
    """

    skip_s: float
    least_s: float
    pause_s: float
    budget_mbyte_s: float


# A timer's grain does not move such a rate. Datagrams that nobody reads cost less than half of what TCP does.
USUAL = Pace(skip_s=0.06, least_s=0.2, pause_s=0.04, budget_mbyte_s=200.0)
# For thousands of links: it may, on a busy machine; what is then not as asked is measured again, as usual.
BRISK = Pace(skip_s=0.03, least_s=0.06, pause_s=0.02, budget_mbyte_s=300.0)


@dataclass(frozen=True)
class Flood:
    """Datagrams on one link.

    Attributes:
        link: which.
        at_s: when they begin.
        seconds: for how long.
        skip_s: what of it does not count.
        pause_s: until the next one may begin.
        shares: whether others at the same time have a part of what there is.
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
    """Whether a link is asked for more than any machine carries."""
    return mbyte_s > HOST_LIMIT_MBYTE_S


def link_floods(
    links: Sequence[Link],
    nodes: Sequence[str],
    pace: Pace = USUAL,
    share: float = 1.0,
    *,
    losses: bool = False,
) -> list[Flood]:
    """Each link by itself, side by side as far as a machine carries them; a `share` of that, and so much longer.

    With `losses`, so long that the wire's own count tells how many of them a link loses, and not only its rate.
    """
    most_mbyte_s = share * pace.budget_mbyte_s
    rounds = plan_rounds(links, nodes, most_mbyte_s, load_mbyte_s=_load_mbyte_s)
    floods = [[_flood(link, pace, 1 / share) for link in some] for some in rounds]
    if losses:
        floods = [[_for_losses(flood) for flood in some] for some in floods]
    return _one_after_another(floods)


def shared_floods(links: Iterable[Sequence[Link]]) -> list[Flood]:
    """All links of an uplink or downlink at once, and one of these after the other."""
    rounds = []
    for own in links:
        floods = [_flood(link) for link in own]
        skip_s = max(SHARED_SKIP_S, *(flood.skip_s for flood in floods))
        seconds = max(skip_s + SHARED_S, *(flood.seconds for flood in floods))
        rounds.append([Flood(link, 0.0, seconds, skip_s, shares=True) for link in own])
    return _one_after_another(rounds)


def floods_s(floods: Sequence[Flood]) -> float:
    """How long they take in all, until the last datagram has come."""
    ends = [
        flood.over_s + (flood.link.delay_ms + 6 * flood.link.jitter_ms) / 1e3 for flood in floods
    ]
    return TAIL_S + max(ends, default=0.0)


def flood_orders(floods: Sequence[Flood], addresses: Mapping[str, str]) -> dict[str, FloodOrder]:
    """What each node must send and count: each link once. `addresses` by node, in the nodes' order."""
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
    """The port to which each node sends its datagrams, wherever they go."""
    return {name: FIRST_FLOOD_PORT + index for index, name in enumerate(nodes)}


def _flood_send(flood: Flood, address: str, port: int) -> FloodSend:
    return FloodSend(
        at_s=round(flood.at_s, 3),
        address=address,
        port=port,
        at_once=at_once(flood.link),
        queued_bytes=queued_bytes(flood.link),
        seconds=round(flood.seconds, 3),
    )


def flooded_mbyte_s(link: Link, datagrams_s: float, frame_bytes: int = FRAME_BYTES) -> float:
    """The rate behind what arrived, in bytes on the wire: what is to be lost has been there, too, second copies not."""
    return carried(link, datagrams_s * frame_bytes / 1e6)


def carried(link: Link, arrived: float) -> float:
    """How much was on a link of which so much arrived: without second copies, with what was to be lost."""
    once = arrived / (1 + link.duplicate_pct / 100)
    return once / (1 - link.lost_pct / 100) if link.lost_pct < 100 else 0.0


def flood_error(link: Link) -> float:
    """The standard error of that, as a share of it, by the chance with which datagrams are lost or doubled."""
    lost = link.lost_pct / 100
    if lost >= 1:
        return 0.0
    flood = _flood(link)
    datagrams = (flood.seconds - flood.skip_s) / _datagram_s(link)
    return MEDIAN_ERROR * math.sqrt(fate_variance(link) / datagrams) / (1 - lost)


def at_once(link: Link) -> int:
    """How many datagrams may be sent as one: no more than fit into the queue, and few enough to tell a rate.

    Where the link takes several whole, no more than that: what it has to cut costs the machine many times as much.
    """
    room_ms = min(BURST_MS, link.buffer_ms * BURST_SHARE)
    most = MOST_AT_ONCE if _takes_frames(link) else _whole(link)
    return max(1, min(MOST_AT_ONCE, most, int(room_ms / 1e3 / _datagram_s(link))))


def _whole(link: Link) -> int:
    """How many frames the link takes as one, where it is not flawed."""
    return int(SUPER_PACKET_MS / 1e3 / _datagram_s(link))


def _takes_frames(link: Link) -> bool:
    return link.is_impaired or _whole(link) < 2


def _load_mbyte_s(link: Link) -> float:
    return link.rate_mbyte_s * (FRAME_COST if _takes_frames(link) else 1.0)


def queued_bytes(link: Link) -> int:
    """How much a sender may have in the link's queue: enough to sleep a while, and never all that the queue holds."""
    return round(link.rate_mbyte_s * 1e3 * min(QUEUE_MS, link.buffer_ms * QUEUE_SHARE))


def _flood(link: Link, pace: Pace = USUAL, longer: float = 1.0) -> Flood:
    jitter_s = link.jitter_ms / 1e3
    skip_s = pace.skip_s + SKIP_JITTERS * jitter_s
    flawed = FLOOD_DATAGRAMS * min(clumping(link), MOST_CLUMPING)
    datagrams = flawed if link.is_impaired else LEAST_DATAGRAMS
    least_s = USUAL.least_s if link.is_impaired else pace.least_s  # `flood_error` counts on it
    enough_s = max(least_s, LEAST_JITTERS * jitter_s, datagrams * _datagram_s(link))
    return Flood(link, 0.0, skip_s + min(longer * enough_s, LONGEST_S), skip_s, pace.pause_s)


def _for_losses(flood: Flood) -> Flood:
    """The same, so long that as many are lost as tell their share, where that can be had."""
    link = flood.link
    if not 0 < link.loss_pct < 100:
        return flood
    datagrams = 100 * TELLING_LOSSES * clumping(link) / link.loss_pct
    counted_s = min(datagrams * _datagram_s(link), LONGEST_FOR_LOSSES_S)
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
    """How long one full datagram takes."""
    return FRAME_BYTES / (link.rate_mbyte_s * 1e6)
