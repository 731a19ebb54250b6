"""Parses the link plan of one node, strictly: a misspelt key is an error and never a default.

The types are named tuples rather than dataclasses: as immutable, and `import dataclasses` alone
would cost a tenth of the time that `apply` takes (8 ms for `inspect` and its like, on every node at
every start).
"""

import json
import math
import socket
from typing import Any, NamedTuple

WIRE_CHOICES = ("auto", "netem", "nfqueue")
DISTRIBUTIONS = ("normal", "uniform")
MIN_RATE_MBYTE_S, MAX_RATE_MBYTE_S = (
    0.001,
    12_500.0,
)  # 8 kbit/s to 100 Gbit/s, the rate of the parent class
MAX_DELAY_MS = 60_000.0
LINK_LIMITS = {
    "rate_mbyte_s": (MIN_RATE_MBYTE_S, MAX_RATE_MBYTE_S),
    "delay_ms": (0.0, MAX_DELAY_MS),
    "jitter_ms": (0.0, MAX_DELAY_MS),
    "loss_pct": (0.0, 100.0),
    "buffer_ms": (0.0, MAX_DELAY_MS),
    "loss_burst": (1.0, 1000.0),
    "duplicate_pct": (0.0, 100.0),
    "corrupt_pct": (0.0, 100.0),
    "reorder_pct": (0.0, 100.0),
}


class PlanError(ValueError):
    """The plan is no plan; the message names the key."""


class Link(NamedTuple):
    """One directed link between two nodes."""

    src: str
    dst: str
    rate_mbyte_s: float
    """10^6 bytes a second, Ethernet headers included."""
    delay_ms: float
    """One way."""
    jitter_ms: float
    """Standard deviation of the one-way delay; packets keep their order."""
    loss_pct: float
    """Per cent of packets, at random."""
    buffer_ms: float
    """The drop-tail queue in front of the rate limit, as time at that rate."""
    loss_burst: float = 1.0
    """How many packets are lost in a row, on average; 1: each is lost or not by itself."""
    duplicate_pct: float = 0.0
    """Per cent of packets that arrive twice."""
    corrupt_pct: float = 0.0
    """Per cent of packets that arrive with one bit wrong."""
    reorder_pct: float = 0.0
    """Per cent of packets that do not wait, and so overtake those before them."""
    distribution: str = "normal"
    """Of the delay, where it jitters: `normal` or `uniform`."""

    @property
    def bytes_per_s(self) -> float:
        """The rate in bytes a second."""
        return self.rate_mbyte_s * 1e6

    @property
    def is_flawed(self) -> bool:
        """Whether it loses, doubles, damages or reorders packets."""
        return any((self.loss_pct, self.duplicate_pct, self.corrupt_pct, self.reorder_pct))


class Peer(NamedTuple):
    """The neighbour at the other end of a link."""

    address: str
    mac: str
    """What tells neighbours apart, also for packets that are only passing through."""


class Route(NamedTuple):
    """A node that is no neighbour."""

    address: str
    via: str
    """The peer that takes packets on to it."""


class NodePlan(NamedTuple):
    """What one node must do, and all that it need know of the others."""

    node: str
    address: str
    wire: str
    tcp: str
    """The congestion control of connections to the peers, e.g. `cubic`."""
    slow_start_after_idle: bool
    """Whether a connection that was idle begins as a new one. The node cannot set it, and sees that it is so."""
    seed: int
    uplink_mbyte_s: float | None
    """What this node can send on all its links together; None is as much as they carry."""
    downlink_mbyte_s: float | None
    """What it can receive on all of them together."""
    peers: dict[str, Peer]
    routes: dict[str, Route]
    isolated: bool
    """Whether nobody takes packets on: a node that is no neighbour cannot be reached, but for the ranks to meet."""
    links: list[Link]
    origin: dict[str, Any]
    """What the links were drawn from (profile, topology, seed): kept for the reader, of no effect here."""

    def document(self) -> dict[str, Any]:
        """The plan as JSON, as it came."""
        return self._asdict() | {
            "peers": {name: peer._asdict() for name, peer in self.peers.items()},
            "routes": {name: route._asdict() for name, route in self.routes.items()},
            "links": [link._asdict() for link in self.links],
        }

    def outgoing(self) -> dict[str, Link]:
        """The links that start here, by peer."""
        return {link.dst: link for link in self.links if link.src == self.node}

    def incoming(self) -> dict[str, Link]:
        """The links that end here, by peer."""
        return {link.src: link for link in self.links if link.dst == self.node}


def parse_plan(text: str) -> NodePlan:
    """Read the JSON document that docs/formats.md defines.

    Raises:
        PlanError: naming the key that is missing, unknown or wrong.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(f"the plan is not JSON: {error}") from error
    return plan_of(document)


def plan_of(document: object) -> NodePlan:
    """Check a parsed JSON document and make a plan of it."""
    required = tuple(name for name in NodePlan._fields if name != "origin")
    fields = _object(document, "plan", required, optional=("origin",))
    node = _word(fields["node"], "node")
    peers = _peers(fields["peers"])
    plan = NodePlan(
        node=node,
        address=_address(fields["address"], "address"),
        wire=_choice(fields["wire"], "wire", WIRE_CHOICES),
        tcp=_word(fields["tcp"], "tcp"),
        slow_start_after_idle=_flag(fields["slow_start_after_idle"], "slow_start_after_idle"),
        seed=_integer(fields["seed"], "seed"),
        uplink_mbyte_s=_access_rate(fields["uplink_mbyte_s"], "uplink_mbyte_s"),
        downlink_mbyte_s=_access_rate(fields["downlink_mbyte_s"], "downlink_mbyte_s"),
        peers=peers,
        routes=_routes(fields["routes"], peers),
        isolated=_flag(fields["isolated"], "isolated"),
        links=_links(fields["links"], node, peers),
        origin=_object(fields.get("origin", {}), "origin", (), tuple(fields.get("origin", {}))),
    )
    if node in peers:
        raise PlanError(f"peers.{node}: a node is not its own peer")
    return plan


def _access_rate(value: object, key: str) -> float | None:
    return None if value is None else _within(value, LINK_LIMITS["rate_mbyte_s"], key)


def _peers(value: object) -> dict[str, Peer]:
    if not isinstance(value, dict):
        raise PlanError(f"peers: expected an object, got {value!r}")
    peers = {_word(name, "peers"): _peer(peer, f"peers.{name}") for name, peer in value.items()}
    for field in Peer._fields:
        values = [getattr(peer, field) for peer in peers.values()]
        for twice in {value for value in values if values.count(value) > 1}:
            raise PlanError(f"peers: two of them have the {field} {twice}")
    return peers


def _routes(value: object, peers: dict[str, Peer]) -> dict[str, Route]:
    if not isinstance(value, dict):
        raise PlanError(f"routes: expected an object, got {value!r}")
    return {
        _word(name, "routes"): _route(route, f"routes.{name}", peers)
        for name, route in value.items()
    }


def _route(value: object, key: str, peers: dict[str, Peer]) -> Route:
    fields = _object(value, key, Route._fields)
    via = _choice(fields["via"], f"{key}.via", tuple(peers))
    return Route(_address(fields["address"], f"{key}.address"), via)


def _peer(value: object, key: str) -> Peer:
    fields = _object(value, key, Peer._fields)
    return Peer(_address(fields["address"], f"{key}.address"), _mac(fields["mac"], f"{key}.mac"))


def _links(value: object, node: str, peers: dict[str, Peer]) -> list[Link]:
    if not isinstance(value, list):
        raise PlanError(f"links: expected a list, got {value!r}")
    links = [_link(link, f"links[{index}]", node, peers) for index, link in enumerate(value)]
    ends = [(link.src, link.dst) for link in links]
    for src, dst in {pair for pair in ends if ends.count(pair) > 1}:
        raise PlanError(f"links: {src} to {dst} is there twice")
    return links


def _link(value: object, key: str, node: str, peers: dict[str, Peer]) -> Link:
    # `wire` says what a link got; so a report's links may stand in a plan, where it has no effect.
    fields = _object(value, key, Link._fields, optional=("wire",))
    src, dst = _word(fields["src"], f"{key}.src"), _word(fields["dst"], f"{key}.dst")
    if node not in (src, dst):
        raise PlanError(f"{key}: {src} to {dst} neither starts nor ends at {node}")
    peer = dst if src == node else src
    if peer not in peers:
        raise PlanError(f"{key}: {peer} is missing in peers")
    numbers = {
        name: _within(fields[name], limits, f"{key}.{name}") for name, limits in LINK_LIMITS.items()
    }
    distribution = _choice(fields["distribution"], f"{key}.distribution", DISTRIBUTIONS)
    return Link(src=src, dst=dst, distribution=distribution, **numbers)


def _object(
    value: object, key: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PlanError(f"{key}: expected an object, got {value!r}")
    for name in value:  # before what is missing: a misspelt key is both
        if name not in required and name not in optional:
            raise PlanError(f"{key}.{name}: unknown key{_nearest(name, required)}")
    for name in required:
        if name not in value:
            raise PlanError(f"{key}.{name}: missing")
    return value


def _nearest(name: str, known: tuple[str, ...]) -> str:
    import difflib  # only an error needs it, and every start would pay for it

    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else ""


def _word(value: object, key: str) -> str:
    if not isinstance(value, str) or not value or value.split() != [value]:
        raise PlanError(f"{key}: expected one word, got {value!r}")
    return value


def _choice(value: object, key: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise PlanError(f"{key}: expected one of {', '.join(choices)}, got {value!r}")
    return str(value)


def _flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise PlanError(f"{key}: expected true or false, got {value!r}")
    return value


def _integer(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanError(f"{key}: expected a whole number, got {value!r}")
    return value


def _number(value: object, key: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise PlanError(f"{key}: expected a number, got {value!r}")
    return float(value)


def _within(value: object, limits: tuple[float, float], key: str) -> float:
    number, (low, high) = _number(value, key), limits
    if not low <= number <= high:
        raise PlanError(f"{key}: {number:g} is not between {low:g} and {high:g}")
    return number


def _address(value: object, key: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, _word(value, key))
    except OSError as error:
        raise PlanError(f"{key}: expected an IPv4 address, got {value!r}") from error
    return str(value)


def _mac(value: object, key: str) -> str:
    parts = _word(value, key).lower().split(":")
    if len(parts) != 6 or any(
        len(part) != 2 or set(part) - set("0123456789abcdef") for part in parts
    ):
        raise PlanError(f"{key}: expected a MAC address such as 02:67:77:00:00:02, got {value!r}")
    return ":".join(parts)
