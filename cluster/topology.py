"""Topologies: which nodes have a link, and by which path packets travel between nodes that have none.

    full    every node has a link to every other
    ring    node1 - node2 - … - nodeN - node1
    star    node1 has a link to every other node

Any other graph is a YAML file (`--topology ./mine.yml`):

    base: ring                                        # full, ring, star; left out: only the links listed here
    links:
      - {ends: [node1, node3], delay_ms: 80}          # a link in both directions; what is not said, the profile draws
      - {src: node1, dst: node2, rate_mbyte_s: 0.5}   # one direction of a link
    nodes:
      node3: {rate_mbyte_s: 1, uplink_mbyte_s: 2}     # every link from and to this node, and what it sends on all
                                                      # of them together (downlink_mbyte_s: what it receives)
    isolated: true                                    # nodes without a link cannot reach each other

Links are physical: packets between nodes without one travel hop by hop over those that exist, along a shortest path;
unless the topology is isolated.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import UsageError, unknown

Pair = tuple[str, str]
Values = dict[str, float]

BASES = ("full", "ring", "star")
LIMITS = {
    "rate_mbyte_s": (0.01, 10_000.0),
    "delay_ms": (0.0, 10_000.0),
    "jitter_ms": (0.0, 5_000.0),
    "loss_pct": (0.0, 100.0),
    "buffer_ms": (1.0, 60_000.0),
    "loss_burst": (1.0, 1000.0),
    "duplicate_pct": (0.0, 100.0),
    "corrupt_pct": (0.0, 100.0),
    "reorder_pct": (0.0, 100.0),
}
ACCESS_LIMITS = {"uplink_mbyte_s": (0.01, 10_000.0), "downlink_mbyte_s": (0.01, 10_000.0)}
KEYS = {
    "topology": ("base", "links", "nodes", "isolated"),
    "link": ("ends", "src", "dst", *LIMITS),
}


@dataclass(frozen=True)
class Topology:
    """A graph of links, and the values that it sets instead of the profile.

    Attributes:
        name: full, ring, star, or the file's name without its ending.
        base: the graph that it starts from; '' for none.
        ends: pairs of nodes that it joins besides.
        nodes: node -> values of every link from and to it.
        access: node -> its own uplink_mbyte_s and downlink_mbyte_s.
        links: (src, dst) -> values of that direction; they win over those of nodes.
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
        """The directed pairs (src, dst) that have a link among these nodes, in their order.

        Raises:
            UsageError: it speaks of a node or a link that is not there, or does not join all nodes.
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
        """What the topology itself says of a link."""
        of_nodes = self.nodes.get(src, {}) | self.nodes.get(dst, {})
        return of_nodes | self.links.get((src, dst), {})

    def document(self) -> str | dict[str, Any]:
        """As JSON values, from which `parse_topology` makes the same again: a name, or what a file says."""
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


def load_topology(name: str) -> Topology:
    """A topology by name, or a user's own by path.

    Raises:
        UsageError: no such topology, no YAML, or a key or value that is not one; the message names file and key.
    """
    if name in BASES:
        return Topology(name, name)
    if not (name.endswith((".yml", ".yaml")) or "/" in name):
        raise unknown("topology", name, BASES)
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"no topology file {name}", f"a file, or one of {', '.join(BASES)}")
    try:
        document = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {error}") from error
    return parse_topology(path.stem, document, str(path))


def parse_topology(name: str, document: object, source: str) -> Topology:
    """A topology from its YAML mapping; `source` is named in errors."""
    if isinstance(document, str):
        return load_topology(document)
    if not isinstance(document, dict):
        raise UsageError(f"{source}: a topology is a mapping of {', '.join(KEYS['topology'])}")
    _check_keys(document, "topology", source)
    base = document.get("base", "")
    if base and base not in BASES:
        raise unknown(f"base in {source}:", str(base), BASES)
    ends, links = _parse_links(document.get("links") or [], source)
    nodes = document.get("nodes") or {}
    if not isinstance(nodes, dict) or not all(isinstance(name, str) for name in nodes):
        raise UsageError(f"{source}: nodes is {nodes!r}", "node3: {rate_mbyte_s: 1}")
    values = {
        node: _parse_values(given, f"{source}: nodes.{node}", LIMITS | ACCESS_LIMITS)
        for node, given in nodes.items()
    }
    of_links, access = (
        {node: kept for node, said in values.items() if (kept := _keep(said, limits))}
        for limits in (LIMITS, ACCESS_LIMITS)
    )
    isolated = document.get("isolated", False)
    if not isinstance(isolated, bool):
        raise UsageError(f"{source}: isolated is {isolated!r}", "true or false")
    return Topology(name, base, ends, of_links, access, links, isolated)


def _keep(values: Values, keys: Iterable[str]) -> Values:
    return {key: value for key, value in values.items() if key in keys}


def next_hops(pairs: Iterable[Pair], names: Sequence[str]) -> dict[Pair, str]:
    """(src, dst) -> the neighbour of src by which a shortest path leads; of several, the first of names."""
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
    """The links that a packet takes from src to dst."""
    links, here = [], src
    while here != dst:
        links.append((here, hops[here, dst]))
        here = hops[here, dst]
    return links


def _distances(neighbours: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    """How many links away every node is. Links have two directions, so from here is as far as to here."""
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
                f"topology {topology.name} speaks of {name}, and there are only {len(names)} nodes",
                "more --nodes",
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
            "links that join all nodes",
        )


def _check_keys(document: Mapping[str, object], kind: str, source: str) -> None:
    for key in document:
        if key not in KEYS[kind] and key != "name":
            raise unknown(f"key in {source}:", str(key), KEYS[kind])


def _parse_links(document: object, source: str) -> tuple[tuple[Pair, ...], dict[Pair, Values]]:
    if not isinstance(document, list):
        raise UsageError(f"{source}: links is {document!r}", "a list: - {ends: [node1, node2]}")
    joined: list[Pair] = []
    links: dict[Pair, Values] = {}
    for number, item in enumerate(document):
        place = f"{source}: links[{number}]"
        if not isinstance(item, dict):
            raise UsageError(f"{place} is {item!r}", "{ends: [node1, node2], delay_ms: 80}")
        _check_keys(item, "link", place)
        values = _parse_values({k: v for k, v in item.items() if k in LIMITS}, place, LIMITS)
        for pair in _parse_ends(item, place):
            links[pair] = links.get(pair, {}) | values
        if "ends" in item:
            joined.append(_pair(item["ends"], place))
    return tuple(joined), {pair: values for pair, values in links.items() if values}


def _parse_ends(item: Mapping[str, object], place: str) -> list[Pair]:
    if ("ends" in item) == ("src" in item and "dst" in item):
        raise UsageError(f"{place} has no two ends", "ends: [node1, node2], or src and dst")
    if "ends" in item:
        first, second = _pair(item["ends"], place)
        return [(first, second), (second, first)]
    return [_pair([item["src"], item["dst"]], place)]


def _pair(value: object, place: str) -> Pair:
    match value:
        case [str(first), str(second)] if first != second:
            return first, second
    raise UsageError(f"{place}: {value!r} are no two nodes", "ends: [node1, node2]")


def _parse_values(
    document: object, place: str, limits: Mapping[str, tuple[float, float]]
) -> Values:
    if not isinstance(document, dict):
        raise UsageError(f"{place} is {document!r}", "{rate_mbyte_s: 1}")
    values = {}
    for key, value in document.items():
        if key not in limits:
            raise unknown(f"key in {place}:", str(key), tuple(limits))
        values[key] = number_within(value, limits[key], f"{place}: {key}")
    return values


def number_within(value: object, limits: tuple[float, float], what: str) -> float:
    """A number from a YAML file; `what` is named in the error.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{what} is {value!r}", f"a number within {low:g} to {high:g}")
    return float(value)
