"""Sends the orders of `cluster.contract.probe_plan` to the nodes, and returns what they measured, by link."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cluster.contract.floods import Flood, flood_orders, flooded_mbyte_s
from cluster.contract.measured import Measured, summarise_pings
from cluster.contract.probe_plan import (
    Effort,
    delay_pings,
    joins,
    loss_pings,
    ping_pairs,
    send_order,
    streams_of,
)
from cluster.contract.probe_session import ProbeSession
from protocol.link import Link

PingOrder = Callable[[Sequence[Link], Mapping[str, str], int], dict[str, Any]]
Pinged = dict[tuple[str, str], Measured]  # by (src, dst)
Rates = dict[tuple[str, str], float]  # likewise, in MB/s on the wire


def ping_links(
    prober: ProbeSession,
    links: Sequence[Link],
    asked: Sequence[Link],
    effort: Effort,
    apart: float = 1.0,
) -> Pinged:
    """Idle round trips of all pairs at once: pings are too small to disturb one another.

    Args:
        prober: at whose nodes.
        links: what is to be told of.
        asked: these, and whatever else joins the same nodes.
        effort: how thoroughly.
        apart: as `cluster.contract.probe_plan.delay_pings` has it.
    """
    measured = _ping_pairs(prober, links, asked, partial(delay_pings, effort=effort, apart=apart))
    flawed = [link for link in links if link.is_impaired]
    if flawed:
        order = partial(loss_pings, effort=effort)
        for pair, many in _ping_pairs(prober, flawed, asked, order).items():
            measured[pair] = replace(
                measured[pair],
                sent=many.sent,
                arrived=many.arrived,
                reordered=many.reordered,
                twice=many.twice,
                gaps=many.gaps,
            )
    return measured


def _ping_pairs(
    prober: ProbeSession, links: Sequence[Link], asked: Sequence[Link], order: PingOrder
) -> Pinged:
    """Each node that pings also pings itself: what that takes, at the same moment, is the host's own share."""
    pairs = ping_pairs(links, prober.nodes)
    orders = {
        src: order(
            [link for link in asked if joins(link, src, peers)],
            {peer: prober.address(peer) for peer in (*peers, src)},
            streams_of(pairs),
        )
        for src, peers in pairs.items()
    }
    pings = prober.ask(orders)
    host_ms = {src: pings[src].pop(src)["rtt_ms"] for src in pings}
    arrivals = prober.ask(_arrival_orders(prober, pings))
    measured = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            jitter = any(link.jitter_ms for link in asked if {link.src, link.dst} == {src, peer})
            there, back = summarise_pings(ping, arrivals[peer][src], host_ms[src], jitter=jitter)
            measured[src, peer], measured[peer, src] = there, back
    return measured


def _arrival_orders(
    prober: ProbeSession, pings: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Ask every node that was pinged what arrived there, and from whom."""
    series: dict[str, dict[str, Any]] = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            series.setdefault(peer, {})[src] = [prober.address(src), ping["series"]]
    return {peer: {"do": "arrivals", "series": of} for peer, of in series.items()}


def fill_links(
    prober: ProbeSession, links: Sequence[Link], asked: Sequence[Link]
) -> dict[tuple[str, str], dict[str, float | None]]:
    """Goodput and loaded round trip of these links, by one TCP connection on each; `asked` has both directions."""
    orders = {link.src: send_order(link, asked, prober.address(link.dst)) for link in links}
    answers = prober.ask(orders)
    return {
        (link.src, link.dst): {
            "goodput_mbyte_s": float(answers[link.src]["goodput_mbyte_s"]),
            "loaded_rtt_ms": _median(answers[link.src]["loaded_rtt_ms"]),
        }
        for link in links
    }


def flood_links(prober: ProbeSession, floods: Sequence[Flood]) -> Rates:
    """The rates of links, by a timetable of floods."""
    found = prober.ask(flood_orders(floods, {name: prober.address(name) for name in prober.nodes}))
    links = [flood.link for flood in floods]
    return {
        (link.src, link.dst): flooded_mbyte_s(link, found[link.dst][link.src]["datagrams_s"])
        for link in links
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
