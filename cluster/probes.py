"""What is sent to measure links: orders for node.probe, and rounds in which they do not disturb one another. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.expected import FLOOD_DATAGRAMS
from cluster.links import Link, rtt_ms

# So far apart that a stall of the host of 0.15 s is late for fewer than a tenth of the quiet ones: no jitter is seen.
QUIET_PINGS, QUIET_INTERVAL_MS = 60, 30.0
NOISY_INTERVAL_MS = 10.0
FEWEST_PINGS = 30  # noisy links get as many as fit into the time that an effort allows
LOADED_PING_INTERVAL_MS, LOADED_PING_SHARE = 20.0, 0.005  # the share of a link's rate, at most
FLOOD_S, LONGEST_FLOOD_S = 2.0, 10.0
FLOOD_SKIP_S, FLOOD_SKIP_JITTERS = 0.3, 4.0
FLOOD_FRAME_BYTES = 1514
FLOOD_SHARE, MOST_AT_ONCE = (
    0.1,
    40,
)  # of a link's queue; datagrams: 64 KB are the most that one call takes
PING_FRAME_BYTES = 66  # an echo: 24 of ours, UDP 8, IPv4 20, Ethernet 14
PING_SHARE = 0.1  # of a link's rate, at most
LOSS_PINGS, LOSS_INTERVAL_MS = 800, 4.0
ROUND_BUDGET_MBYTE_S = 60.0  # links measured side by side must leave the CPU some room
MIN_WINDOW_S, WINDOW_RTTS = 1.0, 4.0
INITIAL_WINDOW_BYTES = 14_480  # ten segments: RFC 6928
STARTUP_EXTRA_RTTS = 4.0


@dataclass(frozen=True)
class Effort:
    """How thoroughly links are measured.

    Attributes:
        pings: on links that jitter, at most.
        pinging_s: how long that may take.
        speeds: whether goodput, rates and uplinks are measured.
        tcp_on_rough: whether TCP is tried also where loss or jitter keep it from the rate, which datagrams tell.
    """

    pings: int
    pinging_s: float
    speeds: bool
    tcp_on_rough: bool


EFFORTS = {
    "quick": Effort(100, 5.0, speeds=False, tcp_on_rough=False),
    "normal": Effort(400, 20.0, speeds=True, tcp_on_rough=False),
    "full": Effort(1000, 120.0, speeds=True, tcp_on_rough=True),
}


def flooded(links: Sequence[Link], effort: Effort) -> list[Link]:
    """The links whose speed datagrams tell: those that TCP cannot fill."""
    return [link for link in links if effort.speeds and link.is_rough]


def streamed(links: Sequence[Link], effort: Effort) -> list[Link]:
    """The links on which a TCP connection is tried."""
    if not effort.speeds:
        return []
    floods = [] if effort.tcp_on_rough else flooded(links, effort)
    return [link for link in links if link not in floods]


def planned_s(links: Sequence[Link], nodes: Sequence[str], effort: Effort) -> float:
    """About how long it takes to measure these links, if none must be measured again."""
    pinging = [_order_s(delay_pings(links, {}, effort))]
    lossy = [link for link in links if link.loss_pct]
    pinging += [_order_s(loss_pings(links, {}))] if lossy else []
    streams = [
        max(_order_s(send_order(link, links, "")) for link in some)
        for some in plan_rounds(streamed(links, effort), nodes)
    ]
    floods = [
        max(_order_s(flood_order([link], {link.dst: ""})) for link in some)
        for some in plan_rounds(flooded(links, effort), nodes)
    ]
    return sum(pinging) + sum(streams) + sum(floods)


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


def delay_pings(
    links: Sequence[Link], peers: Mapping[str, str], effort: Effort, apart: float = 1.0
) -> dict[str, Any]:
    """The pings that tell delay and jitter: so far apart that most do not wait for the one before them.

    Packets keep their order, so a ping that follows too soon after a late one is late too. `apart` is how many standard
    deviations of the jitter: one, where `cluster.delays` can tell who waited, and five where nobody may.
    """
    jitter_ms = max(link.jitter_ms for link in links)
    if not jitter_ms:
        return _ping_order(links, peers, QUIET_PINGS, QUIET_INTERVAL_MS)
    interval_ms = max(NOISY_INTERVAL_MS, apart * jitter_ms)
    fitting = max(FEWEST_PINGS, int(effort.pinging_s * 1000 / interval_ms))
    return _ping_order(links, peers, min(effort.pings, fitting), interval_ms)


def loss_pings(links: Sequence[Link], peers: Mapping[str, str]) -> dict[str, Any]:
    """The pings that tell loss from chance: many, in quick succession."""
    return _ping_order(links, peers, LOSS_PINGS, LOSS_INTERVAL_MS)


def send_order(link: Link, links: Sequence[Link], peer: str) -> dict[str, Any]:
    """One goodput probe, as long as TCP needs to fill this link and show it.

    Slow start doubles from ten segments each round trip until it has the bandwidth-delay product under way.
    """
    rtt_s = rtt_ms(links, link.src, link.dst) / 1000
    product = link.rate_mbyte_s * 1e6 * rtt_s
    doublings = math.log2(max(1.0, product / INITIAL_WINDOW_BYTES))
    return {
        "do": "send",
        "peer": peer,
        "startup_s": 0.2 + rtt_s * (doublings + STARTUP_EXTRA_RTTS),
        "window_s": max(MIN_WINDOW_S, WINDOW_RTTS * rtt_s),
        "ping_interval_ms": max(
            LOADED_PING_INTERVAL_MS,
            _byte_ms(link.rate_mbyte_s) * PING_FRAME_BYTES / LOADED_PING_SHARE,
        ),
    }


def flood_order(links: Sequence[Link], addresses: Mapping[str, str]) -> dict[str, Any]:
    """Datagrams on these links of one node, all at once, for as long as it takes to count enough of them."""
    enough_s = max(
        FLOOD_DATAGRAMS * FLOOD_FRAME_BYTES * _byte_ms(link.rate_mbyte_s) / 1000 for link in links
    )
    return {
        "do": "flood",
        "peers": {
            link.dst: {"address": addresses[link.dst], "at_once": _at_once(link)} for link in links
        },
        "seconds": flood_skip_s(links) + min(max(FLOOD_S, enough_s), LONGEST_FLOOD_S),
    }


def _at_once(link: Link) -> int:
    """How many datagrams may be sent as one: not so many that they would not fit into the link's queue."""
    room = link.rate_mbyte_s * 1e3 * link.buffer_ms * FLOOD_SHARE / FLOOD_FRAME_BYTES
    return max(1, min(MOST_AT_ONCE, int(room)))


def flood_skip_s(links: Sequence[Link]) -> float:
    """What of a flood does not count: until a link with jitter that keeps the order is as late as it gets."""
    return FLOOD_SKIP_S + FLOOD_SKIP_JITTERS * max(link.jitter_ms for link in links) / 1000


def flooded_mbyte_s(link: Link, datagrams: int, seconds: float) -> float:
    """The rate behind what arrived, in bytes on the wire: what the link is asked to lose has been on it, too."""
    if not seconds:
        return 0.0
    arrived = datagrams * FLOOD_FRAME_BYTES / seconds / 1e6
    return arrived / (1 - link.loss_pct / 100) if link.loss_pct < 100 else 0.0


def plan_rounds(links: Sequence[Link], nodes: Sequence[str]) -> list[list[Link]]:
    """Rounds in which no node sends twice, none receives twice, and no two probes share a link.

    Node i sends to node i+k in the rounds of shift k. A round carries at most ROUND_BUDGET_MBYTE_S, or a single link.
    """
    place = {name: index for index, name in enumerate(nodes)}
    rounds: list[list[Link]] = []
    for shift in range(1, len(nodes)):
        same = [link for link in links if (place[link.dst] - place[link.src]) % len(nodes) == shift]
        open_rounds: list[list[Link]] = []
        for link in same:
            fits = next((r for r in open_rounds if _fits(link, r)), None)
            if fits is None:
                open_rounds.append([link])
            else:
                fits.append(link)
        rounds += open_rounds
    return rounds


def _ping_order(
    links: Sequence[Link], peers: Mapping[str, str], count: int, interval_ms: float
) -> dict[str, Any]:
    slowest_mbyte_s = min(link.rate_mbyte_s for link in links)
    interval_ms = max(interval_ms, _byte_ms(slowest_mbyte_s) * PING_FRAME_BYTES / PING_SHARE)
    longest_ms = max(rtt_ms(links, link.src, link.dst) + 6 * link.jitter_ms for link in links)
    return {
        "do": "ping",
        "peers": dict(peers),
        "count": count,
        "interval_ms": interval_ms,
        "wait_ms": longest_ms * 1.2 + 100,
    }


def _order_s(order: Mapping[str, Any]) -> float:
    match order["do"]:
        case "ping":
            return float(order["count"] * order["interval_ms"] + order["wait_ms"]) / 1000
        case "send":
            return float(order["startup_s"] + order["window_s"])
    return float(order["seconds"])


def _byte_ms(rate_mbyte_s: float) -> float:
    """How long one byte takes."""
    return 1 / (rate_mbyte_s * 1000)


def _in_order(link: Link, place: Mapping[str, int]) -> tuple[int, int]:
    low, high = sorted((place[link.src], place[link.dst]))
    return low, high


def _fits(link: Link, others: Sequence[Link]) -> bool:
    taken = {(other.dst, other.src) for other in others}
    load = sum(other.rate_mbyte_s for other in others) + link.rate_mbyte_s
    return (link.src, link.dst) not in taken and load <= ROUND_BUDGET_MBYTE_S
