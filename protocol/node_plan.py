"""The link plan of one node: what it must do, and all that it needs to know of the other nodes.

Standard input of `python -m node.wire apply`, and `/run/keys/plan.json` of a new node, which applies it while it boots.
Applying a plan again changes links in place: no queued packet is lost.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from protocol.link import ACCESS_LIMITS, LIMITS, WIRE_CHOICES, Link
from protocol.reader import (
    ADDRESS,
    MAC,
    WORD,
    FormatError,
    ReadBy,
    one_of,
    parse,
    read,
    shown,
    within,
)

ORIGIN_KEYS = ("profile", "topology", "seed", "wire", "underlay")
Rate = Annotated[float, within(*ACCESS_LIMITS["uplink_mbyte_s"])]
Delay = Annotated[float, within(*LIMITS["delay_ms"])]


def read_origin(value: object) -> dict[str, object]:
    """Return the origin of links: an object with some of ORIGIN_KEYS and no others.

    Raises:
        FormatError: it is none, or has too many values in all; it may come from a node, and the host keeps it.
    """
    if not isinstance(value, dict):
        raise FormatError(f"expected an object, got {shown(value)}")
    for name in value:
        if name not in ORIGIN_KEYS:
            raise FormatError(f"unknown key, expected {', '.join(ORIGIN_KEYS)}", str(name)[:80])
    read(object, value)
    return value


Origin = Annotated[
    dict[str, object], ReadBy(read_origin, f"object: {', '.join(ORIGIN_KEYS)} → any")
]


class Peer(NamedTuple):
    """The neighbour at the other end of a link."""

    address: Annotated[str, ADDRESS]
    """Its address on the data network."""
    mac: Annotated[str, MAC]
    """Tells which neighbour sent a packet, also one that it only forwards."""


class Route(NamedTuple):
    """A node that is not a neighbour."""

    address: Annotated[str, ADDRESS]
    """Its address on the data network."""
    via: Annotated[str, WORD]
    """The peer that forwards packets to it."""


class NodePlan(NamedTuple):
    """The link plan of one node."""

    node: Annotated[str, WORD]
    """The node's name."""
    address: Annotated[str, ADDRESS]
    """Its own address on the data network, by which it finds the network device."""
    wire: Annotated[str, one_of(*WIRE_CHOICES)]
    """`auto` tries netem, then nfqueue, and takes the first that really works on this kernel."""
    tcp: Annotated[str, WORD]
    """The congestion control of connections to the peers, e.g. `cubic`."""
    slow_start_after_idle: bool
    """Whether an idle connection begins with slow start again. A node with the other setting refuses the plan."""
    seed: int
    """Seed of the links' random losses and delays."""
    uplink_mbyte_s: Rate | None
    """What this node can send on all its links together; null: as much as they carry."""
    downlink_mbyte_s: Rate | None
    """What it can receive on all its links together; null likewise."""
    isolated: bool
    """Whether nodes without a link are isolated from each other. `routes` then serve only TCP connections, which are
    reset when they carry data (packets of more than 300 bytes), except for the rendezvous."""
    peers: dict[str, Peer]
    """The neighbours at the other ends of its links, by name."""
    routes: dict[str, Route]
    """All nodes that are not neighbours, by name; empty if every pair of nodes has a link."""
    links: list[Link]
    """The links that start here (rate and queue are shaped here) or end here (delay and loss happen here)."""
    origin: Origin = {}  # noqa: RUF012 - nobody changes it
    """What the links were drawn from: kept for the host, without effect here. A topology is a name (`full`, `ring`,
    `star`), or the contents of a file, as a mapping with its name; `underlay` is the network of several hosts."""
    underlay_ms: dict[str, Delay] = {}  # noqa: RUF012 - nobody changes it
    """By peer on another host: how long the hosts' own network, the underlay, takes for a packet to it or from it. The
    wire adds only the rest of a link's delay."""

    def on_wire(self, wire: str) -> "NodePlan":
        """Return this plan with another wire."""
        links = [link._replace(wire=wire) for link in self.links]
        origin = self.origin | {"wire": wire} if self.origin else {}
        return self._replace(wire=wire, links=links, origin=origin)

    def outgoing(self) -> dict[str, Link]:
        """Return the links that start here, by peer."""
        return {link.dst: link for link in self.links if link.src == self.node}

    def peer_of(self, link: Link) -> str:
        """Return the peer at the other end of a link that starts or ends here."""
        return link.dst if link.src == self.node else link.src

    def incoming(self) -> dict[str, Link]:
        """Return the links that end here, by peer."""
        return {link.src: link for link in self.links if link.dst == self.node}


def parse_plan(text: str | bytes) -> NodePlan:
    """Read a plan.

    Raises:
        FormatError: naming the key that is missing, unknown or wrong.
    """
    return checked_plan(parse(NodePlan, text, "plan"))


def read_plan(value: object) -> NodePlan:
    """Read a plan from a parsed JSON value; raises as `parse_plan`."""
    return checked_plan(read(NodePlan, value))


def checked_plan(plan: NodePlan) -> NodePlan:
    """Return the same plan, after checking that its parts agree with each other.

    Raises:
        FormatError: naming the key that contradicts others.
    """
    if plan.node in plan.peers:
        raise FormatError("a node is not its own peer", f"peers.{plan.node}")
    for field in Peer._fields:
        for twice in _repeated(getattr(peer, field) for peer in plan.peers.values()):
            raise FormatError(f"two of them have the {field} {twice}", "peers")
    for name in plan.underlay_ms.keys() - plan.peers.keys():
        raise FormatError("not one of the peers", f"underlay_ms.{name}")
    for name, route in plan.routes.items():
        if route.via not in plan.peers:
            known = ", ".join(plan.peers)
            raise FormatError(f"expected one of {known}, got {route.via!r}", f"routes.{name}.via")
    for number, link in enumerate(plan.links):
        _check_ends(plan, link, f"links[{number}]")
    for twice in _repeated(f"{link.src} to {link.dst}" for link in plan.links):
        raise FormatError(f"{twice} is there twice", "links")
    return plan


def _check_ends(plan: NodePlan, link: Link, key: str) -> None:
    if plan.node not in link.ends:
        words = f"{link.src} to {link.dst} neither starts nor ends at {plan.node}"
        raise FormatError(words, key)
    peer = plan.peer_of(link)
    if peer not in plan.peers:
        raise FormatError(f"{peer} is missing in peers", key)


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]
