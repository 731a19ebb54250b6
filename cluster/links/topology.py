"""Topologies: which nodes have a link, and the path of packets between nodes that have none.

    full    every node has a link to every other
    ring    node1 - node2 - … - nodeN - node1
    star    node1 has a link to every other node

Any other graph is a YAML file: `cluster.links.topology_file`.

Links are physical: packets between nodes without a link travel hop by hop over existing links, along a shortest path,
unless the topology is isolated.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.base.errors import UsageError
from protocol.link import Pair

Values = dict[str, float]

BASES = ("full", "ring", "star")


@dataclass(frozen=True)
class Topology:
    """A graph of links, and the values in it that override the profile.

    Attributes:
        name: full, ring, star, or the file's name without its ending.
        base: the graph that it starts from; '' for none.
        ends: further pairs of nodes that it joins.
        nodes: node -> values of every link from and to it.
        access: node -> its own uplink_mbyte_s and downlink_mbyte_s.
        links: (src, dst) -> values of that direction; they override those of nodes.
        isolated: whether nodes without a link cannot reach each other.
    """

    name: str
    base: str = ""
    ends: tuple[Pair, ...] = ()
    nodes: Mapping[str, Values] = field(default_factory=dict)
    access: Mapping[str, Values] = field(default_factory=dict)
    links: Mapping[Pair, Values] = field(default_factory=dict)
    isolated: bool = False

    def pairs(self, names: Sequence[str]) -> list[Pair]:
        """Return the directed pairs (src, dst) of these nodes that have a link, in the nodes' order.

        Raises:
            UsageError: the topology names a node or a link that does not exist, or does not join all nodes.
        """
        joined = {frozenset(pair) for pair in (*_base_pairs(self.base, names), *self.ends)}
        _check_names(self, names)
        for src, dst in self.links:
            if frozenset((src, dst)) not in joined:
                raise UsageError(
                    f"topology {self.name}: {src} and {dst} have no link whose values could be set",
                    f"- {{ends: [{src}, {dst}]}}",
                )
        pairs = [(a, b) for a in names for b in names if a != b and frozenset((a, b)) in joined]
        _check_connected(self.name, pairs, names)
        return pairs

    def values(self, src: str, dst: str) -> Values:
        """Return the values of a link that the topology itself sets."""
        of_nodes = self.nodes.get(src, {}) | self.nodes.get(dst, {})
        return of_nodes | self.links.get((src, dst), {})

    def document(self) -> str | dict[str, object]:
        """Return JSON values from which `parse_topology` makes the same topology: a name, or the content of a file."""
        if self == Topology(self.name, self.name):
            return self.name
        return {
            "name": self.name,
            **({"base": self.base} if self.base else {}),
            "links": [
                *({"ends": list(ends)} for ends in self.ends),
                *({"src": src, "dst": dst} | values for (src, dst), values in self.links.items()),
            ],
            "nodes": {
                node: {**self.nodes.get(node, {}), **self.access.get(node, {})}
                for node in sorted(set(self.nodes) | set(self.access))
            },
            "isolated": self.isolated,
        }


def next_hops(pairs: Iterable[Pair], names: Sequence[str]) -> dict[Pair, str]:
    """Return (src, dst) -> the neighbour of src on a shortest path to dst; of several, the first in `pairs`."""
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for src, dst in pairs:
        neighbours[src].append(dst)
    hops: dict[Pair, str] = {}
    for dst in names:
        distance = _distances(neighbours, dst)
        for src in names:
            if src != dst:
                hops[src, dst] = min(neighbours[src], key=lambda n: distance[n])
    return hops


def trace_path(hops: Mapping[Pair, str], src: str, dst: str) -> list[Pair]:
    """Return the links that a packet takes from src to dst."""
    links, here = [], src
    while here != dst:
        links.append((here, hops[here, dst]))
        here = hops[here, dst]
    return links


def _distances(neighbours: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    """Return how many links away every node is. Links have two directions, so the distance back is the same."""
    distance, waiting = {start: 0}, deque([start])
    while waiting:
        here = waiting.popleft()
        for node in neighbours[here]:
            if node not in distance:
                distance[node] = distance[here] + 1
                waiting.append(node)
    return distance


def _base_pairs(base: str, names: Sequence[str]) -> list[Pair]:
    match base:
        case "full":
            return [(a, b) for a in names for b in names if a != b]
        case "ring":
            return [(names[i - 1], names[i]) for i in range(len(names)) if len(names) > 1]
        case "star":
            return [(names[0], name) for name in names[1:]]
    return []


def _check_names(topology: Topology, names: Sequence[str]) -> None:
    spoken_of = {name for pair in (*topology.ends, *topology.links) for name in pair}
    for name in sorted(spoken_of | set(topology.nodes) | set(topology.access)):
        if name not in names:
            raise UsageError(
                f"topology {topology.name} names {name}, but there are only {len(names)} nodes",
                "increase --nodes",
            )


def _check_connected(name: str, pairs: Sequence[Pair], names: Sequence[str]) -> None:
    neighbours: dict[str, list[str]] = {node: [] for node in names}
    for src, dst in pairs:
        neighbours[src].append(dst)
    reached = _distances(neighbours, names[0])
    lonely = [node for node in names if node not in reached]
    if lonely:
        raise UsageError(
            f"topology {name} has no path from {names[0]} to {', '.join(lonely)}",
            "add links until all nodes are connected",
        )
