"""The plan of a node's data device where no Docker network connects the nodes. Pure."""

from collections.abc import Mapping

from cluster.base.spec import ClusterSpec, Node
from protocol.vxlan_plan import VxlanPeer, VxlanPlan

Endpoint = tuple[str, int]
"""Where a node's tunnel ends: address or DNS name, UDP port."""


def vxlan_plan(spec: ClusterSpec, node: Node, endpoints: Mapping[str, Endpoint]) -> VxlanPlan:
    """Return the plan of a node's data device, with a tunnel to every other node.

    Args:
        spec: the cluster.
        node: the node.
        endpoints: where each node's tunnel ends, by node.
    """
    return VxlanPlan(
        node=node.name,
        address=node.address,
        mac=node.mac,
        vni=spec.vni,
        port=endpoints[node.name][1],
        peers={
            peer.name: VxlanPeer(peer.address, peer.mac, *endpoints[peer.name])
            for peer in spec.nodes
            if peer != node
        },
    )
