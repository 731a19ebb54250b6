"""Rate and queue of the links that start here: an HTB class each, under the class of the node's uplink."""

from typing import Any

from node.wire import htb
from node.wire.offload import GSO_SIZE, offloads_stay_on
from node.wire.plan import Link, NodePlan
from node.wire.shape import Shape, ended

BURST_S = 1e-3
"""What a class may send at once after a pause, as time at its rate. It makes up for timers that fire late, on a
busy machine by a good part of a millisecond; more would let a link exceed its rate for longer than that."""
MIN_QUEUE_FRAMES = 4
MAX_QUEUE_BYTES = 2**32 - 1  # the kernel keeps a queue's limit in 32 bits


def tc_lines(before: Shape | None, after: Shape) -> list[str]:
    """What turns the egress of `before` into that of `after`, without touching a queue that stays."""
    device = after.device.name
    lines = [] if before else htb.root_lines(device)
    uplink_changed = after.plan.uplink_mbyte_s != (before.plan.uplink_mbyte_s if before else None)
    lines += [_uplink_line(after)] if uplink_changed else []
    for slot in ended(before, after, NodePlan.outgoing):
        lines += htb.removal_lines(device, htb.link_id(slot))
    for peer, link in after.plan.outgoing().items():
        lines += _link_lines(after, peer, link)
    return lines


def _uplink_line(shape: Shape) -> str:
    """The class above all links: what they send together."""
    device, uplink_mbyte_s = shape.device.name, shape.plan.uplink_mbyte_s
    if uplink_mbyte_s is None:
        return htb.sorting_line(device, "", htb.UPLINK)
    rate_bit = round(uplink_mbyte_s * 8e6)
    burst = burst_bytes(uplink_mbyte_s * 1e6, _unit(shape))
    return htb.class_line(device, "", htb.UPLINK, rate_bit, rate_bit, burst)


def _unit(shape: Shape) -> int:
    """The largest packet that a queue sees, in bytes."""
    return GSO_SIZE if offloads_stay_on(shape.plan.links) else shape.frame


def own_rate_mbyte_s(plan: NodePlan, link: Link) -> float:
    """What a link has for itself: its rate, or, of an uplink that is too narrow for all, a share in proportion.

    A class may always send at its own rate, also where the class above it has nothing left: the shares of all
    together must not exceed the uplink. What others leave a link borrows, up to its rate.
    """
    total = sum(link.rate_mbyte_s for link in plan.outgoing().values())
    if plan.uplink_mbyte_s is None or plan.uplink_mbyte_s >= total:
        return link.rate_mbyte_s
    return link.rate_mbyte_s * plan.uplink_mbyte_s / total


def _link_lines(shape: Shape, peer: str, link: Link) -> list[str]:
    device, number = shape.device.name, htb.link_id(shape.slots[peer])
    unit = _unit(shape)
    own_bit = round(own_rate_mbyte_s(shape.plan, link) * 8e6)
    ceil_bit, burst = round(link.bytes_per_s * 8), burst_bytes(link.bytes_per_s, unit)
    return [
        htb.class_line(device, htb.UPLINK, number, own_bit, ceil_bit, burst),
        htb.queue_line(device, number, f"bfifo limit {queue_bytes(link, unit)}"),
        htb.mac_filter_line(device, "dst", shape.mac(peer), number),
    ]


def burst_bytes(bytes_per_s: float, unit: int) -> int:
    """What may be sent at once: 1 ms of the rate, and at least one packet of `unit` bytes."""
    return max(round(bytes_per_s * BURST_S), unit)


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
