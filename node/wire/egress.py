"""Rate and queue at egress: one HTB class per link, under the class of the node's uplink."""

from collections.abc import Iterable, Mapping

from node.wire import htb
from node.wire.commands import Qdisc
from node.wire.layout import Layout, ended, lost_queues
from node.wire.node_cap import access_lines, burst_bytes, own_rate_mbyte_s
from node.wire.segmentation import largest_packet, super_packet_bytes
from protocol.link import Link
from protocol.link_report import LinkCounters
from protocol.node_plan import NodePlan

MIN_QUEUE_PACKETS = 4
MAX_QUEUE_BYTES = 2**32 - 1  # the kernel keeps a queue's limit in 32 bits
CUTTER_RATE = "1000tbit"
"""Rate of a link's sch_tbf. It limits nothing: that qdisc only cuts packets larger than its burst into frames. At this
rate no packet takes a nanosecond. If one did, a super-packet that waits while the burst becomes smaller (a fast link is
made slow) could never go, nor could anything behind it: sch_tbf lets none pass that takes longer than its burst."""

Counted = Mapping[str, Mapping[str, int]]
"""The counters that tc prints for classes or qdiscs, by handle."""


def tc_lines(before: Layout | None, after: Layout) -> list[str]:
    """Return the lines that turn the egress of `before` into that of `after`, without disturbing a queue that stays."""
    device = after.device.name
    lines = [] if before else htb.root_lines(device)
    uplink_before = before.plan.uplink_mbyte_s if before else None
    largest = largest_packet(after.plan.outgoing().values(), after.frame)
    lines += access_lines(device, uplink_before, after.plan.uplink_mbyte_s, largest)
    for slot in ended(before, after, NodePlan.outgoing):
        lines += htb.removal_lines(device, htb.link_id(slot))
    for peer, link in after.plan.outgoing().items():
        lines += _link_lines(after, peer, link)
    return lines


def change_lines(before: Layout, after: Layout) -> list[str]:
    """Return the lines that change the values of links that both layouts have."""
    there = set(tc_lines(before, before))
    return [line for line in tc_lines(before, after) if line not in there]


def _link_lines(layout: Layout, peer: str, link: Link) -> list[str]:
    device, number = layout.device.name, htb.link_id(layout.slots[peer])
    packet, links = super_packet_bytes(link, layout.frame), layout.plan.outgoing().values()
    own_bit = round(own_rate_mbyte_s(link, links, layout.plan.uplink_mbyte_s) * 8e6)
    ceil_bit, burst = round(link.bytes_per_s * 8), burst_bytes(link.bytes_per_s, packet)
    return [
        htb.class_line(device, htb.ALL_LINKS, number, own_bit, ceil_bit, burst),
        htb.queue_line(
            device,
            number,
            f"tbf rate {CUTTER_RATE} burst {packet} limit {queue_bytes(link, packet)}",
        ),
        htb.mac_filter_line(device, "dst", layout.mac(peer), number),
    ]


def queue_bytes(link: Link, packet: int) -> int:
    """Return the limit of the link's queue: `buffer_ms` of its rate, and at least a few of its largest packets."""
    room = round(link.bytes_per_s * link.buffer_ms / 1e3)
    return min(max(room, MIN_QUEUE_PACKETS * packet), MAX_QUEUE_BYTES)


def fault(layout: Layout, found: Iterable[Qdisc]) -> str:
    """Return which links have lost their class or its queue, as words; empty if none has.

    Args:
        layout: the layout that should be in force.
        found: every qdisc of this node.
    """
    return lost_queues(layout, layout.device.name, NodePlan.outgoing, found)


def counters(layout: Layout, classes: Counted, queues: Counted) -> dict[str, LinkCounters]:
    """Return the kernel's counters of each outgoing link, by peer; without links that somebody has removed.

    Args:
        layout: the layout in force.
        classes: the counters of the device's classes, by handle.
        queues: the counters of its qdiscs, by handle. Only their drops count single frames of a super-packet; all
            other counters come from the classes, so that no packet is counted twice or missed.
    """
    numbers = {peer: htb.link_id(layout.slots[peer]) for peer in layout.plan.outgoing()}
    handles = {peer: (f"{htb.HANDLE}:{number}", f"{number}:") for peer, number in numbers.items()}
    return {
        peer: _counted(classes[of_class], queues[of_queue]["drops"])
        for peer, (of_class, of_queue) in handles.items()
        if of_class in classes and of_queue in queues
    }


def _counted(of_class: Mapping[str, int], dropped_packets: int) -> LinkCounters:
    return LinkCounters(
        sent_bytes=of_class["bytes"],
        sent_packets=of_class["packets"],
        dropped_packets=dropped_packets,
        backlog_bytes=of_class["backlog"],
        backlog_packets=of_class["qlen"],
    )
