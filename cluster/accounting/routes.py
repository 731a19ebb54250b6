"""Routes between ranks, for `cluster.accounting.bounds`: the links in force, and what was measured of them. Pure."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from cluster.accounting.bounds import Network, RankRoute
from cluster.contract.checks import carried_mbyte_s
from cluster.links.expected import payload_share
from cluster.links.link import round_trips_ms
from cluster.links.topology import next_hops, trace_path
from protocol.link import Link, Pair

Contract = Mapping[str, Any]
AT_HOME = RankRoute(delay_s=0.0, byte_s=math.inf, carriers=())  # between ranks of one node


def make_network(
    nodes: Sequence[str],
    links: Sequence[Link],
    limits: Mapping[str, Mapping[str, float]],
    mtu: int = 1500,
    contract: Contract | None = None,
    *,
    isolated: bool = False,
) -> Network:
    """Return routes and rates between ranks; rank r runs on nodes[r].

    Args:
        nodes: names, by rank; a node with several ranks occurs as often.
        links: in force; empty if nothing is shaped: then no routes lead to other nodes.
        limits: 'uplink' and 'downlink': node -> MB/s.
        mtu: of the data network.
        contract: contract.json of the run; without it, links have the values that were asked for.
        isolated: whether nodes without a link cannot reach each other.
    """
    share = payload_share(mtu)
    measured = {
        (row["link"]["src"], row["link"]["dst"]): row["measured"]
        for row in (contract or {}).get("links", ())
    }
    rtts_ms = round_trips_ms(links)
    delays_s = {link.ends: _delay_s(link, rtts_ms[link.ends], measured) for link in links}
    byte_s = {_name(*link.ends): _byte_s(link, mtu, measured) for link in links}
    for kind, of in limits.items():
        byte_s |= {f"{node} {kind}": rate * 1e6 * share for node, rate in of.items()}
    routes = dict.fromkeys(zip(nodes, nodes, strict=True), AT_HOME)
    for (src, dst), path in link_paths(nodes, links, isolated=isolated).items():
        carriers = [name for pair in path for name in _carriers(pair) if name in byte_s]
        routes[src, dst] = RankRoute(
            delay_s=sum(delays_s[pair] for pair in path),
            byte_s=min(byte_s[name] for name in carriers),
            carriers=tuple(carriers),
        )
    pairs = permutations(range(len(nodes)), 2)
    homes = {(a, b): (nodes[a], nodes[b]) for a, b in pairs}
    between = {pair: routes[home] for pair, home in homes.items() if home in routes}
    by_name = {_name(*pair): delay_s for pair, delay_s in delays_s.items()}
    source = "measured" if measured else "asked"
    return Network(between, byte_s, source, by_name, tuple(nodes))


def link_paths(
    nodes: Sequence[str], links: Sequence[Link], *, isolated: bool = False
) -> dict[Pair, list[Pair]]:
    """Return the links on the path from each node to each other that it can reach."""
    there = {link.ends for link in links}
    if isolated or not there:
        return {pair: [pair] for pair in there}
    hops = next_hops([link.ends for link in links], list(dict.fromkeys(nodes)))
    return {pair: trace_path(hops, *pair) for pair in hops}


def _carriers(pair: Pair) -> tuple[str, str, str]:
    src, dst = pair
    return f"{src} uplink", _name(src, dst), f"{dst} downlink"


def _name(src: str, dst: str) -> str:
    return f"{src}->{dst}"


def _delay_s(link: Link, asked_rtt_ms: float, measured: Mapping[Pair, Any]) -> float:
    """Return the one-way delay, corrected by half of the deviation of the measured round trip from the asked one."""
    found_ms = measured.get(link.ends, {}).get("rtt_ms")
    more_ms = (found_ms - asked_rtt_ms) / 2 if found_ms is not None else 0.0
    return max(0.0, link.delay_ms + more_ms) / 1000


def _byte_s(link: Link, mtu: int, measured: Mapping[Pair, Any]) -> float:
    """Return the payload rate, by what the contract has judged.

    TCP's goodput on a link with jitter or impairments does not tell what is achievable, only what is at least.
    """
    found = measured.get(link.ends, {})
    rate, goodput = found.get("rate_mbyte_s"), found.get("goodput_mbyte_s")
    if rate is None and goodput is not None and not link.is_rough:
        return float(goodput) * 1e6
    asked = link.rate_mbyte_s
    carried = asked if rate is None else carried_mbyte_s(float(rate), goodput, asked, mtu)
    return carried * 1e6 * payload_share(mtu)
