"""Topologies from a user's YAML file (`--topology ./mine.yml`).

base: ring                                        # full, ring, star; left out: only the links listed here
links:
  - {ends: [node1, node3], delay_ms: 80}          # a link in both directions; the profile draws the other values
  - {src: node1, dst: node2, rate_mbyte_s: 0.5}   # one direction of a link
nodes:
  node3: {rate_mbyte_s: 1, uplink_mbyte_s: 2}     # every link from and to this node, and what it sends on all
                                                  # of them together (downlink_mbyte_s: what it receives)
isolated: true                                    # nodes without a link cannot reach each other
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.yaml_file import is_file, is_file_name, number_within, read_yaml
from cluster.links.topology import BASES, Topology, Values
from protocol.link import ACCESS_LIMITS, LIMITS, Pair
from protocol.values import NAME

KEYS = {
    "topology": ("base", "links", "nodes", "isolated"),
    "link": ("ends", "src", "dst", *LIMITS),
}


# The guide to the containers, and some libraries, call it so.
OTHER_NAMES = {"fully_connected": "full"}


def load_topology(name: str) -> Topology:
    """Return a topology by name, or a user's own by path.

    Raises:
        UsageError: no such topology, no valid YAML, or an invalid key or value; the message names file and key.
    """
    name = OTHER_NAMES.get(name, name)
    if name in BASES:
        return Topology(name, name)
    if not is_file_name(name):
        raise unknown("topology", name, BASES)
    path = Path(name)
    if not is_file(path):
        raise UsageError(f"no topology file {name}", f"a file, or one of {', '.join(BASES)}")
    return parse_topology(path.stem, read_yaml(path), str(path))


def parse_topology(name: str, document: object, source: str) -> Topology:
    """Return the topology of a YAML mapping; `source` is named in errors."""
    if document in BASES:
        return Topology(str(document), str(document))
    if isinstance(document, str):
        raise unknown(f"topology in {source}:", document, BASES)
    if not isinstance(document, dict):
        raise UsageError(f"{source}: a topology is a mapping of {', '.join(KEYS['topology'])}")
    _check_keys(document, "topology", source)
    base = document.get("base", "")
    if base and base not in BASES:
        raise unknown(f"base in {source}:", base, BASES)
    ends, links = _parse_links(document.get("links") or [], source)
    nodes = document.get("nodes") or {}
    if not isinstance(nodes, dict) or not all(isinstance(name, str) for name in nodes):
        raise UsageError(f"{source}: nodes is {shown(nodes)}", "node3: {rate_mbyte_s: 1}")
    values = {
        _node(node, f"{source}: nodes"): _parse_values(
            given, f"{source}: nodes.{node}", LIMITS | ACCESS_LIMITS
        )
        for node, given in nodes.items()
    }
    of_links, access = (
        {node: kept for node, said in values.items() if (kept := _keep(said, limits))}
        for limits in (LIMITS, ACCESS_LIMITS)
    )
    isolated = document.get("isolated", False)
    if not isinstance(isolated, bool):
        raise UsageError(f"{source}: isolated is {shown(isolated)}", "true or false")
    return Topology(name, base, ends, of_links, access, links, isolated)


def _keep(values: Values, keys: Iterable[str]) -> Values:
    return {key: value for key, value in values.items() if key in keys}


def _check_keys(document: Mapping[str, object], kind: str, source: str) -> None:
    for key in document:
        if key not in KEYS[kind] and key != "name":
            raise unknown(f"key in {source}:", str(key), KEYS[kind])


def _parse_links(document: object, source: str) -> tuple[tuple[Pair, ...], dict[Pair, Values]]:
    if not isinstance(document, list):
        raise UsageError(
            f"{source}: links is {shown(document)}", "a list: - {ends: [node1, node2]}"
        )
    joined: list[Pair] = []
    links: dict[Pair, Values] = {}
    for number, item in enumerate(document):
        place = f"{source}: links[{number}]"
        if not isinstance(item, dict):
            raise UsageError(f"{place} is {shown(item)}", "{ends: [node1, node2], delay_ms: 80}")
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
            return _node(first, place), _node(second, place)
    raise UsageError(f"{place}: {shown(value)} are no two nodes", "ends: [node1, node2]")


def _node(name: str, place: str) -> str:
    """Check that a name may be a node's; which nodes there are is known only later."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{place}: {shown(name)} is no name of a node", "node1, node2, …")
    return name


def _parse_values(
    document: object, place: str, limits: Mapping[str, tuple[float, float]]
) -> Values:
    if not isinstance(document, dict):
        raise UsageError(f"{place} is {shown(document)}", "{rate_mbyte_s: 1}")
    values = {}
    for key, value in document.items():
        if key not in limits:
            raise unknown(f"key in {place}:", str(key), tuple(limits))
        values[key] = number_within(value, limits[key], f"{place}: {key}")
    return values
