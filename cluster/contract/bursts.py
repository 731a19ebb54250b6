"""Plans bursts that measure how much the queue in front of each link holds, and computes it from what arrived. Pure.

A burst is twice as large as the queue and is sent at once: what arrives is what the queue held plus what the link
carried meanwhile. `node.probe.burst` sends and counts.
"""

import heapq
import math
from collections.abc import Mapping, Sequence

from cluster.contract.floods import (
    FRAME_BYTES,
    USUAL,
    at_once,
    carried,
    load_mbyte_s,
    may_be_clipped,
    sender_ports,
)
from cluster.contract.impairments import fate_variance
from cluster.links.expected import Expected
from protocol.link import Link
from protocol.probe import BurstOrder, BurstSend

TIMES = 2  # the size of a burst, in queues
FEWEST_FRAMES = 40  # in a queue: with fewer, one frame more or less is too large an error
# Until all nodes have their order; pause after a burst, besides the time in which the queue drains.
LEAD_S, PAUSE_S = 0.3, 0.1
HTB_BURST_MS = 1.0  # of the rate, which an idle link may send at once (node.wire.node_cap)


def burst_links(asked: Expected) -> list[Link]:
    """Return the links whose queue a burst can measure: it holds enough frames, and the machine can fill it."""
    return [
        link
        for link in asked.links
        if not asked.is_cut(link)
        and not may_be_clipped(link.rate_mbyte_s)
        and load_mbyte_s(link) <= USUAL.budget_mbyte_s  # single frames: up to 50 MB/s
        and asked.rate_mbyte_s(link) == link.rate_mbyte_s
        and queue_frames(link) >= FEWEST_FRAMES
    ]


def queue_frames(link: Link) -> int:
    """Return how many full frames the queue of a link is asked to hold."""
    return round(link.bytes_per_s * link.buffer_ms / 1e3 / FRAME_BYTES)


def burst_orders(links: Sequence[Link], addresses: Mapping[str, str]) -> dict[str, BurstOrder]:
    """Return what each node must send and count; `addresses` by node, in the nodes' order."""
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
            queued=queue_frames(link),
            datagrams_s=round(link.bytes_per_s / FRAME_BYTES, 3),
        )
        orders[link.dst].counts[link.src] = ports[link.src]
    return orders


def bursts_s(links: Sequence[Link]) -> float:
    """Return how long bursts take in total, until the last datagram has arrived."""
    return max((at_s + _drained_s(link) for link, at_s in _timed(links)), default=0.0)


def _timed(links: Sequence[Link]) -> list[tuple[Link, float]]:
    """Return when each burst begins: as many side by side as a machine carries, whatever their senders."""
    timed, at_s = [], LEAD_S
    draining: list[tuple[float, float]] = []  # a heap: until when, which load
    for link in sorted(links, key=_drained_s):
        load = load_mbyte_s(link)
        while draining and load + sum(taken for _, taken in draining) > USUAL.budget_mbyte_s:
            at_s, _ = heapq.heappop(draining)
        timed.append((link, at_s))
        heapq.heappush(draining, (at_s + PAUSE_S + link.buffer_ms / 1e3, load))
    return timed


def _drained_s(link: Link) -> float:
    """Return the time until all of a burst has arrived, even from a queue that is twice as large as asked."""
    return PAUSE_S + (2 * link.buffer_ms + link.delay_ms + 6 * link.jitter_ms) / 1e3


def buffer_ms(link: Link, arrived: int, sent_s: float, frame_bytes: int = FRAME_BYTES) -> float:
    """Return how long a full queue takes to drain, computed from what arrived of a burst.

    Args:
        link: the link; the result is corrected for the losses and duplicates asked for.
        arrived: number of datagrams that arrived.
        sent_s: how long sending the burst took, while the link already carried some of it.
        frame_bytes: size of each datagram on the wire.
    """
    return 1e3 * (carried(link, arrived) * frame_bytes / link.bytes_per_s - sent_s) - HTB_BURST_MS


def buffer_error(link: Link) -> float:
    """Return the standard error of a measured buffer, as a share of it, due to random loss and duplication."""
    lost = link.lost_pct / 100
    if lost >= 1:
        return 0.0
    return math.sqrt(fate_variance(link) / max(1, queue_frames(link))) / (1 - lost)
