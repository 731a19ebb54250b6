"""The plan of a node's data device where no Docker network connects the nodes: a VXLAN tunnel to every other node.

Part of the orders for a pod (`protocol/pod_order.py`) and for a node on a host without an engine (`protocol/bare.py`).
"""

from typing import Annotated, NamedTuple

from protocol.reader import ADDRESS, MAC, WORD, FormatError, within

PORT = 4789
"""The UDP port of VXLAN (RFC 7348), if each node has an address of its own."""
OVERHEAD_BYTES = 50
"""What VXLAN takes of each packet of the network below: IPv4, UDP and VXLAN headers, and the inner Ethernet header."""
PREFIX_LENGTH = 24
"""The prefix length of a cluster's data network."""

Port = Annotated[int, within(1, 65_535)]


class VxlanPeer(NamedTuple):
    """Another node of the data network, and where the network below reaches it."""

    address: Annotated[str, ADDRESS]
    """Its address on the data network."""
    mac: Annotated[str, MAC]
    """The MAC address of its data device."""
    host: Annotated[str, WORD]
    """Its address or DNS name on the network below."""
    port: Port = PORT
    """The UDP port at which it receives."""


class VxlanPlan(NamedTuple):
    """The data device of one node."""

    node: Annotated[str, WORD]
    """The node's name."""
    address: Annotated[str, ADDRESS]
    """Its address on the data network."""
    mac: Annotated[str, MAC]
    """The MAC address of its data device, by which the other nodes recognise it."""
    vni: Annotated[int, within(1, 2**24 - 1)]
    """The VXLAN network identifier, the same on all nodes."""
    port: Port
    """The UDP port at which this node receives."""
    peers: dict[str, VxlanPeer]
    """All other nodes, by name."""


def checked_vxlan_plan(plan: VxlanPlan) -> VxlanPlan:
    """Return the same plan, after checking that the node is not its own peer and that no two nodes share an address.

    Raises:
        FormatError: naming the key.
    """
    if plan.node in plan.peers:
        raise FormatError("a node is not its own peer", f"peers.{plan.node}")
    for field in ("address", "mac"):
        seen = [getattr(plan, field)]
        for name, peer in plan.peers.items():
            value = getattr(peer, field)
            if value in seen:
                raise FormatError(f"another node has the {field} {value}", f"peers.{name}.{field}")
            seen.append(value)
    return plan
