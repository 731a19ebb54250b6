"""Lower bound on the time of a collective for any algorithm: what these links allow at best. Pure.

`bounds` follows gloo: its ring, its rank order, its two messages in flight. Here nothing is assumed about who sends
what to whom. What remains holds for every algorithm, because data must get from the ranks that have it to those that
need it:

1. **Between two nodes.** b bytes that only rank a has, and that node n needs, leave a's node, take the shortest path
   (by delay, over any links), and enter n: entered(a) + delay(a, n) + b / min(out(a), in(n)), where `out` is the total
   rate of all links that start at a node, or its uplink's if that is less, and `in` likewise.
2. **Into a node.** All bytes that it needs arrive over its own links: the first after the shortest path of any, then
   b / in(n).
3. **Out of a node.** All bytes that only its ranks have leave over its own links, and the last then still has the
   shortest path of any before it.
4. **All nodes together.** All transfers that are necessary, over the links of all nodes.

With S bytes of tensor, K nodes and q(n) of the N ranks on node n, these bytes are, for each kind of collective:

    all_reduce   1: S, as the sum that others need depends on all of a's tensor. 2 and 3 follow. 4: 2(K-1)·S. The node
                 that first knows the sum of a number has got data of K-1 others, in K-1 transfers; these K-1 must
                 still get the sum (Harary and Schwenk, 1974: 2K-2 one-way calls).
    all_gather   1: S. 2: (N - q(n))·S. 3: q(n)·S, as others can forward it. 4: the sum of 2.
    all_to_all, exchange   what each sends to each; 4 follows from 2.

With equal links and simultaneous arrivals, 4 is Patarasuk and Yuan's (2009) 2(N-1)/N·S for each node, over all of its
links instead of one. A rank that arrives early may have sent before the last one arrives: times count from when each
entered. Traffic between ranks of one node uses no link. Compression is the strategy's business, and changes S.

As with gloo's bound, a delay is the mean if there is jitter, and a rate is the measured one: a collective that is
quicker by chance may be below the bound.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster.accounting.bounds import RINGS, Network, flows_of
from cluster.accounting.collectives import Collective
from protocol.link import Pair


@dataclass(frozen=True)
class Reach:
    """The total rates of each node's links, and the shortest paths between nodes.

    Attributes:
        nodes: the node of each rank, by rank.
        out_byte_s, in_byte_s: by node, payload bytes a second.
        delay_s: one way, by (sender, receiver), if there is a path.
    """

    nodes: Sequence[str]
    out_byte_s: Mapping[str, float]
    in_byte_s: Mapping[str, float]
    delay_s: Mapping[Pair, float]


class _Need(NamedTuple):
    """Bytes that one rank has, and another node needs.

    Attributes:
        rank: the rank that has them, on the node `src`.
        since: when it arrived, Unix time.
    """

    rank: int
    since: float
    src: str
    dst: str
    size: int


def reach_of(network: Network) -> Reach | None:
    """Return the reach of a network; None if its links are unknown."""
    if not network.nodes or not network.delay_s:
        return None
    links = {name: _ends(name) for name in network.delay_s}
    out = dict.fromkeys((*network.nodes, *(src for src, _ in links.values())), 0.0)
    into = dict.fromkeys((*network.nodes, *(dst for _, dst in links.values())), 0.0)
    for name, (src, dst) in links.items():
        out[src] += network.byte_s[name]
        into[dst] += network.byte_s[name]
    limits = network.byte_s
    onward: dict[str, list[tuple[str, float]]] = {}
    for name, (src, dst) in links.items():
        onward.setdefault(src, []).append((dst, network.delay_s[name]))
    return Reach(
        network.nodes,
        {node: min(s, limits.get(f"{node} uplink", s)) for node, s in out.items()},
        {node: min(s, limits.get(f"{node} downlink", s)) for node, s in into.items()},
        {(n, to): s for n in set(network.nodes) for to, s in _shortest_s(n, onward).items()},
    )


def links_bound_s(collective: Collective, reach: Reach) -> float | None:
    """Return the least time from the last arrival until all can have what they need, in seconds; 0: at once.

    Holds for any algorithm. Returns None for a rank that only sends, and if a required path does not exist.
    """
    if not flows_of(collective):
        return None
    needs = list(_needs(collective, reach.nodes))
    if any((need.src, need.dst) not in reach.delay_s for need in needs):
        return None
    ends = [*_between(needs, reach), *_into(collective, needs, reach)]
    ends += [*_out_of(collective, needs, reach), *_of_all(collective, needs, reach)]
    return max(0.0, max(ends, default=0.0) - collective.complete_at)


def _needs(collective: Collective, nodes: Sequence[str]) -> Iterator[_Need]:
    """Yield what other nodes need; in ring collectives, each of them needs all that a rank has."""
    if collective.key[0] in RINGS:
        used = dict.fromkeys(nodes[part.rank] for part in collective.parts)
        for part in collective.parts:
            src = nodes[part.rank]
            for dst in (node for node in used if node != src):
                yield _Need(part.rank, part.entered, src, dst, part.size)
        return
    for part, peer in flows_of(collective):
        src, dst = nodes[part.rank], nodes[peer]
        if src != dst:
            yield _Need(part.rank, part.entered, src, dst, part.to[peer])


def _between(needs: Sequence[_Need], reach: Reach) -> Iterator[float]:
    for need in needs:
        byte_s = min(reach.out_byte_s[need.src], reach.in_byte_s[need.dst])
        yield need.since + reach.delay_s[need.src, need.dst] + need.size / byte_s


def _into(collective: Collective, needs: Sequence[_Need], reach: Reach) -> Iterator[float]:
    """Yield the bound into each node; none for an all-reduce, as `_between` already has its bytes."""
    if collective.key[0] == "all_reduce":
        return
    for node, own in _by_node(needs, "dst").items():
        first = min(need.since + reach.delay_s[need.src, node] for need in own)
        yield first + sum(need.size for need in own) / reach.in_byte_s[node]


def _out_of(collective: Collective, needs: Sequence[_Need], reach: Reach) -> Iterator[float]:
    """Yield the bound out of each node, for an all-gather once per rank; none for an all-reduce, as in `_into`."""
    kind = collective.key[0]
    if kind == "all_reduce":
        return
    for node, own in _by_node(needs, "src").items():
        once = {need.rank: need.size for need in own}
        size = sum(once.values()) if kind == "all_gather" else sum(need.size for need in own)
        first = min(need.since for need in own)
        last_s = min(reach.delay_s[node, need.dst] for need in own)
        yield first + size / reach.out_byte_s[node] + last_s


def _by_node(needs: Sequence[_Need], end: str) -> dict[str, list[_Need]]:
    """Group needs by the node at one end: src or dst."""
    groups: dict[str, list[_Need]] = {}
    for need in needs:
        groups.setdefault(getattr(need, end), []).append(need)
    return groups


def _of_all(collective: Collective, needs: Sequence[_Need], reach: Reach) -> Iterator[float]:
    """Yield the bound over the links of all nodes; for kinds other than rings it follows from those of each node."""
    kind = collective.key[0]
    if kind not in RINGS or not needs:
        return
    nodes = {need.src for need in needs}
    size = sum(need.size for need in needs)
    if kind == "all_reduce":
        size = 2 * (len(nodes) - 1) * needs[0].size
    byte_s = min(sum(of[node] for node in nodes) for of in (reach.out_byte_s, reach.in_byte_s))
    last_s = min(reach.delay_s[need.src, need.dst] for need in needs)
    yield min(need.since for need in needs) + size / byte_s + last_s


def _ends(link: str) -> Pair:
    src, _, dst = link.partition("->")
    return src, dst


def _shortest_s(src: str, onward: Mapping[str, Sequence[tuple[str, float]]]) -> dict[str, float]:
    """Return the delay of the shortest path from a node to each other (Dijkstra, 1959).

    `onward` has, for each node, the ends and delays of the links that start there.
    """
    found: dict[str, float] = {}
    queue = [(0.0, src)]
    while queue:
        so_far_s, node = heapq.heappop(queue)
        if node in found:
            continue
        found[node] = so_far_s
        for end, s in onward.get(node, ()):
            if end not in found:
                heapq.heappush(queue, (so_far_s + s, end))
    return found
