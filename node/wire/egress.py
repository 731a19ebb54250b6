"""Rate and queue of the links that start here: an HTB class each, under the class of the node's uplink."""

from typing import Any

from node.wire import htb
from node.wire.access import access_lines, burst_bytes, own_rate_mbyte_s
from node.wire.offload import queue_unit
from node.wire.plan import Link, NodePlan
from node.wire.shape import Shape, ended

MIN_QUEUE_FRAMES = 4
MAX_QUEUE_BYTES = 2**32 - 1  # the kernel keeps a queue's limit in 32 bits


def tc_lines(before: Shape | None, after: Shape) -> list[str]:
    """What turns the egress of `before` into that of `after`, without touching a queue that stays."""
    device = after.device.name
    lines = [] if before else htb.root_lines(device)
    uplink_before = before.plan.uplink_mbyte_s if before else None
    lines += access_lines(device, uplink_before, after.plan.uplink_mbyte_s, queue_unit(after))
    for slot in ended(before, after, NodePlan.outgoing):
        lines += htb.removal_lines(device, htb.link_id(slot))
    for peer, link in after.plan.outgoing().items():
        lines += _link_lines(after, peer, link)
    return lines


def change_lines(before: Shape, after: Shape) -> list[str]:
    """What changes the values of links that both shapes have."""
    there = set(tc_lines(before, before))
    return [line for line in tc_lines(before, after) if line not in there]


def _link_lines(shape: Shape, peer: str, link: Link) -> list[str]:
    device, number = shape.device.name, htb.link_id(shape.slots[peer])
    unit, links = queue_unit(shape), shape.plan.outgoing().values()
    own_bit = round(own_rate_mbyte_s(link, links, shape.plan.uplink_mbyte_s) * 8e6)
    ceil_bit, burst = round(link.bytes_per_s * 8), burst_bytes(link.bytes_per_s, unit)
    return [
        htb.class_line(device, htb.ALL_LINKS, number, own_bit, ceil_bit, burst),
        htb.queue_line(device, number, f"bfifo limit {queue_bytes(link, unit)}"),
        htb.mac_filter_line(device, "dst", shape.mac(peer), number),
    ]


def queue_bytes(link: Link, unit: int) -> int:
    """The room of the link's queue: `buffer_ms` of its rate, and at least a few packets of `unit` bytes."""
    room = round(link.bytes_per_s * link.buffer_ms / 1e3)
    return min(max(room, MIN_QUEUE_FRAMES * unit), MAX_QUEUE_BYTES)


def counters(shape: Shape, classes: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """The kernel's counters of each link that starts here, by peer.

    Args:
        shape: what is in force.
        classes: what `tc -json -s class show` prints for the device.
    """
    stats = {row["handle"]: row["stats"] for row in classes}
    return {
        peer: _counted(stats[f"{htb.HANDLE}:{htb.link_id(shape.slots[peer])}"])
        for peer in shape.plan.outgoing()
    }


def _counted(stats: dict[str, int]) -> dict[str, int]:
    return {
        "sent_bytes": stats["bytes"],
        "sent_packets": stats["packets"],
        "dropped_packets": stats["drops"],
        "backlog_bytes": stats["backlog"],
    }
