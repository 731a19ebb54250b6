"""Plans pings and TCP streams, as orders for node.probe. Pure; `cluster.contract.floods` plans datagrams."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.links.link import round_trips_ms
from protocol.link import Link
from protocol.probe import BurstOrder, FloodOrder, Order, PingOrder, SendOrder

# So far apart that a stall of the host of 0.15 s is late for fewer than a tenth of the quiet ones: no jitter is seen.
QUIET_PINGS, QUIET_INTERVAL_MS = 60, 30.0
NOISY_INTERVAL_MS = 10.0
FEWEST_PINGS = 30  # else as many as fit into the time that an effort allows
LOADED_PING_INTERVAL_MS, LOADED_PING_SHARE = 20.0, 0.005  # the share of a link's rate, at most
PING_FRAME_BYTES = 66  # an echo: 24 of ours, UDP 8, IPv4 20, Ethernet 14
PING_SHARE = 0.1  # of a link's rate, at most
LOSS_INTERVAL_MS = 4.0
# In all of a cluster: each ping is work for two programs and, under nfqueue, two daemons; who waits for them is late,
# which does no harm to those that tell loss.
PINGS_S, LOSS_PINGS_S = 1500.0, 6000.0
# Of a look, which tells no jitter and hardly any loss: a few, quickly, as many as fit into its time.
LOOK_S, LOOK_INTERVAL_MS, FEWEST_LOOKS, MOST_LOOKS = 0.5, 20.0, 3, 10
PATH_APART = (
    5.0  # deviations between pings over several links, where nobody could tell who has waited
)
MIN_WINDOW_S, WINDOW_RTTS = 1.0, 4.0
INITIAL_WINDOW_BYTES = 14_480  # ten segments: RFC 6928
STARTUP_EXTRA_RTTS = 4.0
STREAM_RTTS = 2.0  # to connect, to ask, to answer


@dataclass(frozen=True)
class Effort:
    """How thoroughly links are measured.

    Attributes:
        pings: on links that jitter, at most.
        pinging_s: how long that may take.
        loss_pings: on links that lose packets, or harm them.
        speeds: whether goodput, rates, uplinks and downlinks are measured.
        tcp_on_rough: whether TCP is tried also where loss or jitter keep it from the rate, which datagrams tell.
        losses: whether links that lose packets are flooded so long that the wire's count tells how many they lose.
        bounded: whether TCP is tried on a sample of links where on all of them it would take too long.
    """

    pings: int
    pinging_s: float
    loss_pings: int
    speeds: bool
    tcp_on_rough: bool
    losses: bool
    bounded: bool


EFFORTS = {
    "quick": Effort(100, 5.0, 800, speeds=False, tcp_on_rough=False, losses=False, bounded=True),
    "normal": Effort(400, 20.0, 800, speeds=True, tcp_on_rough=False, losses=False, bounded=True),
    # 7500 pings find a jitter that is 15 % off with 99 %, and 0.45 ms (cluster.contract.power).
    "full": Effort(7500, 120.0, 4000, speeds=True, tcp_on_rough=True, losses=True, bounded=False),
}


def ping_pairs(links: Sequence[Link], nodes: Sequence[str]) -> dict[str, list[str]]:
    """Who pings whom, so that every link is measured and each pair of nodes has one stream of pings, not two.

    Neighbours in the order of nodes take turns at pinging, so that no node has to ping all others.
    """
    place = {name: index for index, name in enumerate(nodes)}
    pairs: dict[str, list[str]] = {}
    for low, high in sorted({_in_order(link, place) for link in links}):
        src, dst = (low, high) if (high - low) % 2 else (high, low)
        pairs.setdefault(nodes[src], []).append(nodes[dst])
    return pairs


def joins(link: Link, src: str, peers: Sequence[str]) -> bool:
    """Whether a link is between a node and one of those that it pings, whichever way."""
    return (link.src == src and link.dst in peers) or (link.dst == src and link.src in peers)


def streams_of(pairs: Mapping[str, Sequence[str]]) -> int:
    """How many streams of pings that makes: each node that pings also pings itself."""
    return sum(len(peers) + 1 for peers in pairs.values())


def delay_pings(
    links: Sequence[Link],
    peers: Mapping[str, str],
    streams: int,
    effort: Effort,
    apart: float = 1.0,
) -> PingOrder:
    """The pings that tell delay and jitter: so far apart that most do not wait for the one before them.

    Packets keep their order, so a ping that follows too soon after a late one is late too.

    Args:
        links: the links that they pass.
        peers: name and address of whom one node pings.
        streams: of pings in all of the cluster.
        effort: how thoroughly.
        apart: how many standard deviations of the jitter: one, where `cluster.contract.delays` can tell who waited, and
            five where nobody may.
    """
    jitter_ms = max(link.jitter_ms for link in links)
    least_ms = streams / PINGS_S * 1000
    if not jitter_ms:
        interval_ms = max(QUIET_INTERVAL_MS, least_ms)
        enough = max(FEWEST_PINGS, round(QUIET_PINGS * QUIET_INTERVAL_MS / interval_ms))
        return _ping_order(links, peers, enough, interval_ms)
    if any(link.distribution == "uniform" for link in links):
        apart = PATH_APART  # cluster.contract.delays fits normal ones
    interval_ms = max(NOISY_INTERVAL_MS, apart * jitter_ms, least_ms)
    fitting = max(FEWEST_PINGS, int(effort.pinging_s * 1000 / interval_ms))
    return _ping_order(links, peers, min(effort.pings, fitting), interval_ms)


def loss_pings(
    links: Sequence[Link], peers: Mapping[str, str], streams: int, effort: Effort
) -> PingOrder:
    """The pings that tell loss from chance: many, in quick succession."""
    interval_ms = max(LOSS_INTERVAL_MS, streams / LOSS_PINGS_S * 1000)
    return _ping_order(links, peers, effort.loss_pings, interval_ms)


def look_pings(links: Sequence[Link], peers: Mapping[str, str], streams: int) -> PingOrder:
    """The pings that see whether links are there, and as long as asked."""
    jitter_ms = max(link.jitter_ms for link in links)
    interval_ms = max(LOOK_INTERVAL_MS, jitter_ms, streams / LOSS_PINGS_S * 1000)
    order = _ping_order(links, peers, FEWEST_LOOKS, interval_ms)
    fitting = int(LOOK_S * 1000 / order.interval_ms)
    return order._replace(pings=min(MOST_LOOKS, max(FEWEST_LOOKS, fitting)))


def send_order(link: Link, rtt_ms: float, peer: str) -> SendOrder:
    """One goodput probe, as long as TCP needs to fill this link and show it.

    Slow start doubles from ten segments each round trip until it has the bandwidth-delay product under way.
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
    """How long an order to ping takes."""
    return (order.pings * order.interval_ms + order.wait_ms) / 1000


def send_s(order: SendOrder, rtt_ms: float) -> float:
    """How long one goodput probe takes."""
    return order.startup_s + order.window_s + STREAM_RTTS * rtt_ms / 1000


def order_s(order: Order) -> float:
    """How long an order takes, about, whatever it orders."""
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
    """How long one byte takes."""
    return 1 / (rate_mbyte_s * 1000)


def _in_order(link: Link, place: Mapping[str, int]) -> tuple[int, int]:
    low, high = sorted((place[link.src], place[link.dst]))
    return low, high
