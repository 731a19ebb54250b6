"""Measures the network between hosts, by probes of one unshaped node on each of them."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from cluster.base.errors import NodeError
from cluster.contract.probe_plan import send_order
from cluster.contract.probe_results import ping_each_pair
from cluster.contract.probe_session import ProbeSession
from cluster.links.underlay import HostPath
from cluster.ssh.fleet import Fleet
from protocol.link import Link, Pair
from protocol.probe import Goodput, PingOrder

PINGS, INTERVAL_MS = 60, 4.0
# For the last echo; hosts farther apart are pinged again, with more patience.
WAIT_MS, PATIENT_WAIT_MS = 100.0, 1000.0
# For planning: TCP gets the time that it needs to fill a network of this rate.
PLANNED_MBYTE_S = 125.0
# Swarm's hosts tell each other by gossip behind which of them a new node is: after seconds if they are busy.
READY_S, AGAIN_S = 30.0, 1.0
CLOSED_HINT = (
    "let hosts reach one another by internal_ip: 4789/udp (VXLAN), with `encrypted` also ESP; without Docker the UDP "
    "ports with the numbers of the nodes' SSH ports (docs/hosts.md)"
)
SMALL_HINT = (
    "connect the hosts by a path that carries IP packets of 1500 bytes (VPNs often do not), and remove limits on these "
    "UDP ports: 4789, or without Docker the numbers of the nodes' SSH ports"
)


def measure_underlay(
    fleet: Fleet, nodes: Mapping[str, str], pairs: Sequence[Pair]
) -> dict[Pair, HostPath]:
    """Measure the round trip and the goodput between hosts.

    Args:
        fleet: connections to the nodes.
        nodes: host -> one of its nodes, whose links are not shaped.
        pairs: the pairs of hosts to measure, each once.

    Returns:
        The measurement of each direction, by the hosts where it starts and ends.

    Raises:
        NodeError: a probe failed, or two nodes cannot reach each other within READY_S.
    """
    measured = {nodes[host] for pair in pairs for host in pair}
    hosts = {nodes[host]: host for pair in pairs for host in pair}
    bare = [_bare_link(nodes[src], nodes[dst]) for pair in pairs for src, dst in (pair, pair[::-1])]
    with ProbeSession(fleet, measured) as session:
        round_trips_ms = ping_until_reached(session, bare)
        _check_reached(round_trips_ms)
        goodputs = _fill(session, bare, round_trips_ms)
    return {
        (hosts[src], hosts[dst]): HostPath(
            round(max(0.0, round_trips_ms[src, dst]), 3), round(goodputs[src, dst], 3)
        )
        for src, dst in round_trips_ms
    }


def ping_until_reached(session: ProbeSession, links: Sequence[Link]) -> dict[Pair, float]:
    """Return the round trip of each link in ms, infinity if its ends could not reach each other within READY_S."""
    round_trips_ms: dict[Pair, float] = {}
    until = time.monotonic() + READY_S
    left, wait_ms = links, WAIT_MS
    while True:
        found = ping_each_pair(session, left, left, partial(_ping_order, wait_ms=wait_ms))
        # The first decile: a busy host makes most round trips longer, but few of them all.
        round_trips_ms |= {ends: one.early_rtt_ms for ends, one in found.items()}
        left = [link for link in left if _is_lost(link.ends, round_trips_ms)]
        if not left or time.monotonic() > until:
            return round_trips_ms
        time.sleep(AGAIN_S)
        wait_ms = PATIENT_WAIT_MS


def _is_lost(ends: Pair, round_trips_ms: Mapping[Pair, float]) -> bool:
    """Return whether no ping came back in one of the directions between two nodes."""
    return any(math.isinf(round_trips_ms[way]) for way in (ends, ends[::-1]))


def _bare_link(src: str, dst: str) -> Link:
    return Link(src, dst, PLANNED_MBYTE_S, delay_ms=0.0, jitter_ms=0.0, loss_pct=0.0, buffer_ms=1.0)


def _ping_order(
    links: Sequence[Link], peers: Mapping[str, str], streams: int, *, wait_ms: float
) -> PingOrder:
    del links, streams
    return PingOrder(dict(peers), PINGS, INTERVAL_MS, wait_ms)


def _check_reached(round_trips_ms: Mapping[Pair, float]) -> None:
    lost = [ends for ends, ms in round_trips_ms.items() if math.isinf(ms)]
    if lost:
        words = {
            src: f"cannot reach {', '.join(d for s, d in lost if s == src)}" for src, _ in lost
        }
        raise NodeError("the network between the hosts carries nothing", words, CLOSED_HINT)


def _fill(
    session: ProbeSession, links: Sequence[Link], round_trips_ms: Mapping[Pair, float]
) -> dict[Pair, float]:
    """Return the goodput of each link; both directions of a pair are filled at once."""
    found: dict[Pair, Goodput] = {}
    for some in _rounds(links):
        orders = {
            link.src: send_order(link, round_trips_ms[link.ends], session.address(link.dst))
            for link in some
        }
        answers = session.ask(orders, Goodput)
        found |= {link.ends: answers[link.src] for link in some}
    _check_filled(found)
    return {ends: one.goodput_mbyte_s for ends, one in found.items()}


def _check_filled(found: Mapping[Pair, Goodput]) -> None:
    empty = {src: (dst, one) for (src, dst), one in found.items() if one.goodput_mbyte_s == 0}
    if empty:
        words = {src: f"to {dst}: {one.note or 'no data'}" for src, (dst, one) in empty.items()}
        raise NodeError(
            "the network between the hosts carries small packets, but no full ones",
            words,
            SMALL_HINT,
        )


def _rounds(links: Sequence[Link]) -> Iterator[list[Link]]:
    """Yield rounds of links in both directions, in which each node has only one peer."""
    left = list(links)
    while left:
        busy: set[str] = set()
        some: list[Link] = []
        for link in left:
            if link.ends[::-1] in {one.ends for one in some} or busy.isdisjoint(link.ends):
                some.append(link)
                busy.update(link.ends)
        left = [link for link in left if link not in some]
        yield some
