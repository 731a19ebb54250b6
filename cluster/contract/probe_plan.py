"""Plans pings and TCP streams, as orders for node.probe. Pure; `cluster.contract.floods` plans datagrams."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster.links.link import round_trips_ms
from protocol.link import Link
from protocol.probe import BurstOrder, FloodOrder, Order, PingOrder, SendOrder

# Without jitter: so far apart that a host stall of 0.15 s delays fewer than a tenth, and is not taken for jitter.
QUIET_PINGS, QUIET_INTERVAL_MS = 60, 30.0
NOISY_INTERVAL_MS = 10.0
FEWEST_PINGS = 30  # at least; else as many as fit into the effort's time
LOADED_PING_INTERVAL_MS, LOADED_PING_SHARE = 20.0, 0.005  # share of a link's rate, at most
PING_FRAME_BYTES = 70  # an echo: payload 28, UDP 8, IPv4 20, Ethernet 14
PING_SHARE = 0.1  # of a link's rate, at most
LOSS_INTERVAL_MS = 4.0
# In the whole cluster: each ping is work for two programs and, under nfqueue, two daemons; pings that wait for these
# are late, which is harmless if they measure only loss.
PINGS_S, LOSS_PINGS_S = 1500.0, 6000.0
# For a look, which measures no jitter and hardly any loss: a few quick pings, as many as fit into its time.
LOOK_S, LOOK_INTERVAL_MS, FEWEST_LOOKS, MOST_LOOKS = 0.5, 20.0, 3, 10
# Deviations between pings over several links: which of these have waited cannot be determined.
PATH_APART = 5.0
MIN_WINDOW_S, WINDOW_RTTS = 1.0, 4.0
INITIAL_WINDOW_BYTES = 14_480  # ten segments: RFC 6928
STARTUP_EXTRA_RTTS = 4.0
STREAM_RTTS = 2.0  # to connect, to ask, to answer


class LossGoal(NamedTuple):
    """How many packets floods of links that lose some must count.

    Attributes:
        losses: so many losses are to be expected.
        longest_s: time limit per flood.
        cut_short: whether floods that cannot get there in time last for `longest_s`; if not, they are not extended.
    """

    losses: float
    longest_s: float
    cut_short: bool


# Where 7.6 losses are to be expected, none is rarer than LOSS_CONFIDENCE allows: so a link that loses nothing is found.
ANY_LOSSES = LossGoal(9.0, 15.0, cut_short=False)
# This many determine their share to a factor of 1.5 with 99 % (cluster.contract.power).
TELLING_LOSSES = LossGoal(165.0, 65.0, cut_short=True)


@dataclass(frozen=True)
class Effort:
    """How thoroughly links are measured.

    Attributes:
        pings: number of pings on links that jitter, at most.
        pinging_s: how long these may take.
        loss_pings: number of pings on impaired links.
        speeds: whether goodput, rates, uplinks and downlinks are measured.
        tcp_on_rough: whether TCP is also tried on links whose loss or jitter keeps it from the rate; datagrams
            measure that.
        losses: how many losses of each link the wire is to count; None: those that happen meanwhile.
        bounded: whether TCP is tried on a sample of links if all of them would take too long.
        pace: of the most pings a second that measure delays in the whole cluster, as a share of the usual number.
    """

    pings: int
    pinging_s: float
    loss_pings: int
    speeds: bool
    tcp_on_rough: bool
    losses: LossGoal | None
    bounded: bool
    pace: float = 1.0


EFFORTS = {
    "quick": Effort(100, 5.0, 800, speeds=False, tcp_on_rough=False, losses=None, bounded=True),
    "normal": Effort(
        400, 20.0, 800, speeds=True, tcp_on_rough=False, losses=ANY_LOSSES, bounded=True
    ),
    # 7500 pings find a jitter that is off by 15 % plus 0.45 ms with 99 % probability (cluster.contract.power).
    "full": Effort(
        7500, 120.0, 4000, speeds=True, tcp_on_rough=True, losses=TELLING_LOSSES, bounded=False
    ),
}


def ping_pairs(links: Sequence[Link], nodes: Sequence[str]) -> dict[str, list[str]]:
    """Return which nodes each node pings: every link is measured, by one stream of pings per pair of nodes, not two.

    The pinging side alternates with the distance in the order of nodes, so that no node has to ping all others.
    """
    place = {name: index for index, name in enumerate(nodes)}
    pairs: dict[str, list[str]] = {}
    for low, high in sorted({_in_order(link, place) for link in links}):
        src, dst = (low, high) if (high - low) % 2 else (high, low)
        pairs.setdefault(nodes[src], []).append(nodes[dst])
    return pairs


def joins(link: Link, src: str, peers: Sequence[str]) -> bool:
    """Return whether a link is between a node and one of the peers that it pings, in either direction."""
    return (link.src == src and link.dst in peers) or (link.dst == src and link.src in peers)


def streams_of(pairs: Mapping[str, Sequence[str]]) -> int:
    """Return the number of streams of pings: each node that pings also pings itself."""
    return sum(len(peers) + 1 for peers in pairs.values())


def delay_pings(
    links: Sequence[Link],
    peers: Mapping[str, str],
    streams: int,
    effort: Effort,
    apart: float = 1.0,
) -> PingOrder:
    """Plan the pings that measure delay and jitter: so far apart that most do not wait for the one before them.

    Packets keep their order, so a ping that follows too soon after a late one is late too.

    Args:
        links: the links that they pass.
        peers: name -> address of the nodes that one node pings.
        streams: number of streams of pings in the whole cluster.
        effort: how thoroughly to measure.
        apart: interval in standard deviations of the jitter: one if `cluster.contract.delays` can tell which pings
            waited, five if none may.
    """
    jitter_ms = max(link.jitter_ms for link in links)
    least_ms = streams / (effort.pace * PINGS_S) * 1000
    if not jitter_ms:
        interval_ms = max(QUIET_INTERVAL_MS, least_ms)
        enough = max(
            FEWEST_PINGS, round(QUIET_PINGS * QUIET_INTERVAL_MS / (effort.pace * interval_ms))
        )
        return _ping_order(links, peers, enough, interval_ms)
    if any(link.distribution == "uniform" for link in links):
        apart = PATH_APART  # cluster.contract.delays fits only normal ones
    interval_ms = max(NOISY_INTERVAL_MS, apart * jitter_ms, least_ms)
    # A slower pace takes longer, and sends no fewer pings.
    fitting = max(FEWEST_PINGS, int(effort.pinging_s * 1000 / (effort.pace * interval_ms)))
    return _ping_order(links, peers, min(effort.pings, fitting), interval_ms)


def loss_pings(
    links: Sequence[Link], peers: Mapping[str, str], streams: int, effort: Effort
) -> PingOrder:
    """Plan the pings that distinguish loss from chance: many, in quick succession."""
    interval_ms = max(LOSS_INTERVAL_MS, streams / LOSS_PINGS_S * 1000)
    return _ping_order(links, peers, effort.loss_pings, interval_ms)


def look_pings(links: Sequence[Link], peers: Mapping[str, str], streams: int) -> PingOrder:
    """Plan the pings of a look, which check whether links exist and have the delays asked for."""
    jitter_ms = max(link.jitter_ms for link in links)
    interval_ms = max(LOOK_INTERVAL_MS, jitter_ms, streams / PINGS_S * 1000)
    order = _ping_order(links, peers, FEWEST_LOOKS, interval_ms)
    fitting = int(LOOK_S * 1000 / order.interval_ms)
    return order._replace(pings=min(MOST_LOOKS, max(FEWEST_LOOKS, fitting)))


def send_order(link: Link, rtt_ms: float, peer: str) -> SendOrder:
    """Plan one goodput probe, as long as TCP needs to fill this link and be measured.

    Slow start doubles from ten segments each round trip until the bandwidth-delay product is in flight.
    """
    rtt_s = rtt_ms / 1000
    product = link.rate_mbyte_s * 1e6 * rtt_s
    doublings = math.log2(max(1.0, product / INITIAL_WINDOW_BYTES))
    return SendOrder(
        peer=peer,
        startup_s=0.2 + rtt_s * (doublings + STARTUP_EXTRA_RTTS),
        window_s=max(MIN_WINDOW_S, WINDOW_RTTS * rtt_s),
        ping_interval_ms=max(
            LOADED_PING_INTERVAL_MS,
            _byte_ms(link.rate_mbyte_s) * PING_FRAME_BYTES / LOADED_PING_SHARE,
        ),
    )


def ping_s(order: PingOrder) -> float:
    """Return how long an order to ping takes."""
    return (order.pings * order.interval_ms + order.wait_ms) / 1000


def send_s(order: SendOrder, rtt_ms: float) -> float:
    """Return how long one goodput probe takes."""
    return order.startup_s + order.window_s + STREAM_RTTS * rtt_ms / 1000


def order_s(order: Order) -> float:
    """Return about how long an order of any kind takes."""
    match order:
        case PingOrder():
            return ping_s(order)
        case SendOrder():
            return send_s(order, rtt_ms=0.0)
        case FloodOrder() | BurstOrder():
            return order.seconds
    return 0.0


def _ping_order(
    links: Sequence[Link], peers: Mapping[str, str], count: int, interval_ms: float
) -> PingOrder:
    slowest_mbyte_s = min(link.rate_mbyte_s for link in links)
    interval_ms = max(interval_ms, _byte_ms(slowest_mbyte_s) * PING_FRAME_BYTES / PING_SHARE)
    rtts_ms = round_trips_ms(links)
    longest_ms = max(rtts_ms[link.ends] + 6 * link.jitter_ms for link in links)
    return PingOrder(
        peers=dict(peers),
        pings=count,
        interval_ms=interval_ms,
        wait_ms=longest_ms * 1.2 + 100,
    )


def _byte_ms(rate_mbyte_s: float) -> float:
    """Return how long one byte takes."""
    return 1 / (rate_mbyte_s * 1000)


def _in_order(link: Link, place: Mapping[str, int]) -> tuple[int, int]:
    low, high = sorted((place[link.src], place[link.dst]))
    return low, high
