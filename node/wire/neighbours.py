"""Permanent neighbour entries: the plan has the MAC addresses of all peers, so nothing needs ARP.

The kernel limits the entries learned by ARP, over all network namespaces of a machine together, to 1,024
(net.ipv4.neigh.default.gc_thresh3): 33 nodes with links to each other need more. Permanent entries do not count.
"""

from node.wire.commands import run_batch, run_json
from node.wire.layout import Layout


def set_entries(before: Layout | None, after: Layout) -> None:
    """Add each peer's MAC address, and remove those of peers that are gone."""
    if before:
        _remove(before.device.name, _addresses(before) - _addresses(after))
    run_batch("ip", entry_lines(after))


def entry_lines(layout: Layout) -> list[str]:
    """Return one entry per peer, for `ip -batch`."""
    device = layout.device.name
    return [
        f"neigh replace {peer.address} lladdr {peer.mac} dev {device} nud permanent"
        for peer in layout.plan.peers.values()
    ]


def remove(layout: Layout) -> None:
    """Remove the entries of all peers, as far as they exist; their addresses are then resolved by ARP again."""
    _remove(layout.device.name, _addresses(layout))


def _addresses(layout: Layout) -> set[str]:
    return {peer.address for peer in layout.plan.peers.values()}


def _remove(device: str, gone: set[str]) -> None:
    if not gone:
        return
    there = run_json(["ip", "-json", "-4", "neigh", "show", "dev", device, "nud", "permanent"])
    run_batch("ip", [f"neigh del {row['dst']} dev {device}" for row in there if row["dst"] in gone])
