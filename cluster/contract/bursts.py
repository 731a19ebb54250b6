"""Plans bursts that measure how much the queue in front of each link holds, and computes it from what arrived. Pure.

A burst is twice as large as the queue, and is sent at once: what arrives of it is what the queue held, and what the
link carried meanwhile. `node.probe.burst` sends and counts.
"""

import math
from collections.abc import Mapping, Sequence

from cluster.contract.floods import (
    FRAME_BYTES,
    USUAL,
    at_once,
    carried,
    may_be_clipped,
    sender_ports,
)
from cluster.contract.impairments import fate_variance
from cluster.links.expected import Expected
from protocol.link import Link
from protocol.probe import BurstOrder, BurstSend

TIMES = 2  # of the queue, in a burst
FEWEST_FRAMES = 40  # in a queue: of fewer one more or less is too much of an error
# Until all nodes have their order; besides the time in which a queue runs empty.
LEAD_S, PAUSE_S = 0.3, 0.1
HTB_BURST_MS = 1.0  # of the rate, which a link that was idle may send at once (node.wire.node_cap)


def burst_links(asked: Expected) -> list[Link]:
    """Those whose queue can be told by a burst: it holds some frames, and the machine can fill it."""
    return [
        link
        for link in asked.links
        if not asked.is_cut(link)
        and not may_be_clipped(link.rate_mbyte_s)
        and asked.rate_mbyte_s(link) == link.rate_mbyte_s
        and queue_frames(link) >= FEWEST_FRAMES
    ]


def queue_frames(link: Link) -> int:
    """How many full frames the queue of a link is asked to hold."""
    return round(link.bytes_per_s * link.buffer_ms / 1e3 / FRAME_BYTES)


def burst_orders(links: Sequence[Link], addresses: Mapping[str, str]) -> dict[str, BurstOrder]:
    """What each node must send and count. `addresses` by node, in the nodes' order."""
    ports = sender_ports(addresses)
    seconds = bursts_s(links)
    orders: dict[str, BurstOrder] = {}
    for link, at_s in _timed(links):
        for name in link.ends:
            orders.setdefault(name, BurstOrder(sends={}, counts={}, seconds=seconds))
        datagrams = TIMES * queue_frames(link)
        orders[link.src].sends[link.dst] = BurstSend(
            at_s=round(at_s, 3),
            address=addresses[link.dst],
            port=ports[link.src],
            at_once=min(at_once(link), datagrams),
            datagrams=datagrams,
        )
        orders[link.dst].counts[link.src] = ports[link.src]
    return orders


def bursts_s(links: Sequence[Link]) -> float:
    """How long they take in all, until the last datagram has come."""
    return max((at_s + _drained_s(link) for link, at_s in _timed(links)), default=0.0)


def _timed(links: Sequence[Link]) -> list[tuple[Link, float]]:
    """When each burst begins: side by side as many as a machine carries, whoever sends them."""
    timed, at_s = [], LEAD_S
    for some in _rounds(sorted(links, key=_drained_s)):
        timed += [(link, at_s) for link in some]
        at_s += max(map(_drained_s, some))
    return timed


def _rounds(links: Sequence[Link]) -> list[list[Link]]:
    rounds: list[list[Link]] = []
    room = 0.0
    for link in links:
        if link.rate_mbyte_s > room or not rounds:
            rounds.append([])
            room = USUAL.budget_mbyte_s
        rounds[-1].append(link)
        room -= link.rate_mbyte_s
    return rounds


def _drained_s(link: Link) -> float:
    """Until all of a burst has come."""
    return PAUSE_S + (2 * link.buffer_ms + link.delay_ms + 6 * link.jitter_ms) / 1e3


def buffer_ms(link: Link, arrived: int, sent_s: float, frame_bytes: int = FRAME_BYTES) -> float:
    """How long a full queue takes to run empty, by what arrived of a burst.

    Args:
        link: which; what it is asked to lose and to double is put right.
        arrived: datagrams.
        sent_s: in which the burst was sent, and the link carried some of it.
        frame_bytes: of each, on the wire.
    """
    return 1e3 * (carried(link, arrived) * frame_bytes / link.bytes_per_s - sent_s) - HTB_BURST_MS


def buffer_error(link: Link) -> float:
    """The standard error of that, as a share of it, by the chance with which datagrams are lost or doubled."""
    lost = link.lost_pct / 100
    if lost >= 1:
        return 0.0
    return math.sqrt(fate_variance(link) / max(1, queue_frames(link))) / (1 - lost)
