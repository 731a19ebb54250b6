"""Sends the orders of `cluster.contract.probe_plan` to the nodes, and returns what they measured, by link."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from cluster.contract.bursts import buffer_ms, burst_orders
from cluster.contract.floods import Flood, flood_orders, flooded_mbyte_s
from cluster.contract.measured import Measured, Queue, Rate, summarise_pings
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
from cluster.links.expected import Expected
from cluster.ssh.answers import understood
from protocol.link import Link, Pair
from protocol.probe import (
    Arrivals,
    ArrivalsOrder,
    Burst,
    Flooded,
    Goodput,
    PingOrder,
    Pings,
    Series,
    check_arrivals,
    check_pings,
)
from protocol.reader import FormatError

MakePingOrder = Callable[[Sequence[Link], Mapping[str, str], int], PingOrder]
Pinged = dict[Pair, Measured]
Rates = dict[Pair, Rate]
Number = TypeVar("Number", int, float)


def ping_links(
    probes: ProbeSession,
    links: Sequence[Link],
    asked: Sequence[Link],
    effort: Effort,
    apart: float = 1.0,
) -> Pinged:
    """Measure the idle round trips of all pairs at once: pings are too small to disturb one another.

    Args:
        probes: the probes.
        links: the links to measure.
        asked: these, and all other links between the same nodes.
        effort: how thoroughly to measure.
        apart: as in `cluster.contract.probe_plan.delay_pings`.
    """
    return ping_each_pair(probes, links, asked, partial(delay_pings, effort=effort, apart=apart))


def ping_losses(
    probes: ProbeSession, links: Sequence[Link], asked: Sequence[Link], effort: Effort
) -> Pinged:
    """Measure losses, duplicates and reordering by more pings than `ping_links` sends; arguments as there."""
    return ping_each_pair(probes, links, asked, partial(loss_pings, effort=effort))


def ping_each_pair(
    probes: ProbeSession, links: Sequence[Link], asked: Sequence[Link], order: MakePingOrder
) -> Pinged:
    """Ping once, with one order per node; return the measurement of each link, in both directions.

    Each node that pings also pings itself: the time of that, at the same moment, is the host's own share.
    """
    pairs = ping_pairs(links, probes.nodes)
    orders = {
        src: order(
            [link for link in asked if joins(link, src, peers)],
            {peer: probes.address(peer) for peer in (*peers, src)},
            streams_of(pairs),
        )
        for src, peers in pairs.items()
    }
    pings = probes.ask_of_each(orders, Pings)
    host_ms = {src: pings[src].pop(src).rtt_ms for src in pings}
    arrivals = probes.ask_of_each(_arrival_orders(probes, pings), Arrivals)
    by_ends = {link.ends: link for link in asked}
    measured = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            there = arrivals[peer][src]
            with understood(peer):
                check_arrivals(there, orders[src].pings)
            with understood(src):
                check_pings(ping, orders[src].pings, there)
                measured[src, peer], measured[peer, src] = summarise_pings(
                    ping, there, host_ms[src], by_ends.get((src, peer)), by_ends.get((peer, src))
                )
    return measured


def by_clocks(pinged: Pinged, asked: Expected) -> Pinged:
    """Return the same, without one-way delays between nodes that have no common clock."""
    return {
        ends: found if asked.has_one_clock(ends) else found.without_delays()
        for ends, found in pinged.items()
    }


def _arrival_orders(
    probes: ProbeSession, pings: Mapping[str, Mapping[str, Pings]]
) -> dict[str, ArrivalsOrder]:
    """Return orders that ask every pinged node what arrived there, and from which nodes."""
    series: dict[str, dict[str, Series]] = {}
    for src, answer in pings.items():
        for peer, ping in answer.items():
            series.setdefault(peer, {})[src] = probes.address(src), ping.series
    return {peer: ArrivalsOrder(of) for peer, of in series.items()}


def fill_links(
    probes: ProbeSession, links: Sequence[Link], asked: Expected
) -> dict[Pair, dict[str, float | None]]:
    """Measure goodput and loaded round trip of links by one TCP connection on each; `asked` has both directions."""
    orders = {
        link.src: send_order(link, asked.rtt_ms(link), probes.address(link.dst)) for link in links
    }
    answers = probes.ask(orders, Goodput)
    return {
        (link.src, link.dst): {
            "goodput_mbyte_s": answers[link.src].goodput_mbyte_s,
            "loaded_rtt_ms": _median(answers[link.src].loaded_rtt_ms),
        }
        for link in links
    }


def flood_links(probes: ProbeSession, floods: Sequence[Flood], frame_bytes: int) -> Rates:
    """Measure rates by a timetable of floods, each link once; `frame_bytes`: a datagram's size on the wire."""
    addresses = {name: probes.address(name) for name in probes.nodes}
    found = probes.ask_of_each(flood_orders(floods, addresses), Flooded)
    return {
        flood.link.ends: _rate(
            flood.link, found[flood.link.src], found[flood.link.dst], frame_bytes
        )
        for flood in floods
    }


def burst_buffers(
    probes: ProbeSession, links: Sequence[Link], frame_bytes: int
) -> dict[Pair, Queue]:
    """Measure how long a full queue of each of these links takes to drain, by bursts; sizes as in `flood_links`.

    Raises:
        NodeError: an answer lacks what was asked for.
    """
    addresses = {name: probes.address(name) for name in probes.nodes}
    found = probes.ask_of_each(burst_orders(links, addresses), Burst)
    buffers = {}
    for link in links:
        with understood(link.dst):
            arrived = _said(found[link.dst][link.src].arrived, "arrived")
        with understood(link.src):
            sent_s = _said(found[link.src][link.dst].sent_s, "sent_s")
            short_s = _said(found[link.src][link.dst].short_s, "short_s")
        buffers[link.ends] = Queue(buffer_ms(link, arrived, sent_s, frame_bytes), 1e3 * short_s)
    return buffers


def _rate(
    link: Link, at_src: Mapping[str, Flooded], at_dst: Mapping[str, Flooded], frame_bytes: int
) -> Rate:
    """Return one link's rate, from what each of its ends reports about the other.

    Raises:
        NodeError: an answer lacks what was asked for.
    """
    with understood(link.dst):
        datagrams_s = _said(at_dst[link.src].datagrams_s, "datagrams_s")
    with understood(link.src):
        full_pct = _said(at_src[link.dst].full_pct, "full_pct")
        sent_s = _said(at_src[link.dst].sent_datagrams_s, "sent_datagrams_s")
    return Rate(
        flooded_mbyte_s(link, datagrams_s, frame_bytes), full_pct, sent_s * frame_bytes / 1e6
    )


def _said(value: Number | None, key: str) -> Number:
    if value is None:
        raise FormatError("expected a number, got null", key)
    return value


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
