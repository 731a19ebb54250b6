"""The netem wire: ingress is redirected to an ifb device, where each link has its own netem qdisc.

The delay is at the receiver because of TCP small queues: at the sender, a packet in flight would
still count as in the sender's queue.
"""

import math
import socket
from collections.abc import Mapping
from pathlib import Path

from node.wire import htb
from node.wire.commands import CommandError, Qdisc, queue_counts, run, run_batch
from node.wire.layout import FULL_FRAME, Layout, ended, lost_queues, packets_in_flight, seed_of
from node.wire.node_cap import access_lines, burst_bytes, own_rate_mbyte_s
from node.wire.segmentation import largest_packet, super_packet_bytes
from protocol.gilbert import loss_burst_chances
from protocol.link import Link
from protocol.link_report import WireCounters
from protocol.node_plan import NodePlan

NAME = "netem"
IFB = "gradwire-ifb"
SCRATCH_IFB = "gradwire-try"
INGRESS = "ffff:"
KIND_IS_UNKNOWN = ("kind is unknown", "No such file or directory")
"""A kernel's messages for a qdisc that it does not have; the second is an older kernel's."""
ORDER_RATE = "100gbit"
"""With a rate, netem times each packet after the previous one: packets keep their order under jitter, and when a
delay gets shorter. This rate limits nothing."""
FEWEST_FRAMES = 20
"""Minimum room of a queue in front of a downlink."""
TABLES = "**/tc/normal.dist"
TABLE_SIZE, TABLE_SCALE = 4096, 8192


def unavailable() -> str:
    """Return why this kernel cannot run the wire, found by trying all of it on a scratch device; empty if it can.

    A kernel without netem reports it at once; creating and removing a device takes much longer.
    """
    try:
        run_batch("tc", ["qdisc add dev lo root netem limit 1000", "qdisc del dev lo root"])
    except CommandError as error:
        if any(words in str(error) for words in KIND_IS_UNKNOWN):
            return str(error)
    _remove_device(SCRATCH_IFB)  # of a trial that was killed
    try:
        run(["ip", "link", "add", SCRATCH_IFB, "type", "ifb"])
    except CommandError as error:
        return str(error)
    try:
        run_batch("tc", _trial_lines())
    except CommandError as error:
        return str(error)
    finally:
        _remove_device(SCRATCH_IFB)
    return ""


def _trial_lines() -> list[str]:
    return [
        f"qdisc add dev {SCRATCH_IFB} root netem limit 1 delay 1ms 1ms distribution normal rate {ORDER_RATE}",
        *_redirect_lines(SCRATCH_IFB, SCRATCH_IFB),
    ]


def start(before: Layout | None, after: Layout) -> list[str]:
    """Create the ifb device. Returns notes for the user."""
    if before is None:
        run_batch("ip", [f"link add {IFB} type ifb", f"link set {IFB} up"])
    if any(link.distribution == "uniform" for link in after.plan.links):
        _teach_tc_the_uniform_distribution()
    return []


def _teach_tc_the_uniform_distribution() -> None:
    """Put a table beside those of tc. netem is uniform without a table, but keeps a table that it once had."""
    for normal in Path("/usr/lib").glob(TABLES):
        normal.with_name("uniform.dist").write_text(uniform_table())


def uniform_table() -> str:
    """Return the table from which netem draws a delay: TABLE_SCALE stands for one standard deviation."""
    top = math.sqrt(3) * TABLE_SCALE
    values = (round(top * (2 * n + 1 - TABLE_SIZE) / TABLE_SIZE) for n in range(TABLE_SIZE))
    return "\n".join(str(value) for value in values) + "\n"


def tc_lines(before: Layout | None, after: Layout) -> list[str]:
    """Return the lines that turn the wire of `before` into that of `after`; packets in flight stay in flight."""
    lines = [] if before else htb.root_lines(IFB)
    downlink_before = before.plan.downlink_mbyte_s if before else None
    largest = largest_packet(after.plan.incoming().values(), after.frame)
    lines += access_lines(IFB, downlink_before, after.plan.downlink_mbyte_s, largest)
    for slot in ended(before, after, NodePlan.incoming):
        lines += htb.removal_lines(IFB, htb.link_id(slot))
    for peer, link in after.plan.incoming().items():
        lines += _link_lines(after, peer, link)
    # Last: from here on packets take this path.
    return lines + ([] if before else _redirect_lines(after.device.name, IFB))


def _link_lines(layout: Layout, peer: str, link: Link) -> list[str]:
    number = htb.link_id(layout.slots[peer])
    return [
        _class_line(layout, peer, link),
        _netem_line(layout, peer, link),
        htb.mac_filter_line(IFB, "src", layout.mac(peer), number),
    ]


def _netem_line(layout: Layout, peer: str, link: Link) -> str:
    """Return the line that makes or changes a link's netem, and seeds its random draws.

    With one seed for all changes, a trace of twenty changes a second would drop the same few packets after each of
    them, or none; so would a schedule that changes another link every few seconds.
    """
    seed = seed_of(layout.plan, link) + layout.changes
    queue = f"netem {_options(layout, link)} seed {seed}"
    return htb.queue_line(IFB, htb.link_id(layout.slots[peer]), queue)


def _options(layout: Layout, link: Link) -> str:
    return netem_options(layout.beyond_underlay(link), _room(layout, link))


def change(before: Layout, after: Layout) -> list[str]:
    """Return lines that change the values of links that both layouts have.

    A line ends a burst of losses that is under way. So there is none for links whose rate alone changes, as at each
    step of many traces: netem does not use it.
    """
    old, lines = before.plan.incoming(), []
    for peer, link in after.plan.incoming().items():
        class_line = _class_line(after, peer, link)
        if class_line != _class_line(before, peer, old[peer]):
            lines.append(class_line)
        if _options(after, link) != _options(before, old[peer]):
            lines.append(_netem_line(after, peer, link))
    return lines


def _class_line(layout: Layout, peer: str, link: Link) -> str:
    """Return a link's class. It only sorts, unless links share a downlink: then none may take more than is left."""
    together, number = layout.plan.downlink_mbyte_s, htb.link_id(layout.slots[peer])
    if together is None:
        return htb.sorting_line(IFB, htb.ALL_LINKS, number)
    most = layout.at_most(link)
    own = own_rate_mbyte_s(most, map(layout.at_most, layout.plan.incoming().values()), together)
    burst = burst_bytes(own * 1e6, super_packet_bytes(most, layout.frame))
    return htb.class_line(
        IFB, htb.ALL_LINKS, number, round(own * 8e6), round(together * 8e6), burst
    )


def _room(layout: Layout, link: Link) -> int:
    """Return how many packets the link's netem may hold; if links share a downlink, it is also the downlink's queue.

    netem counts packets, not bytes. So behind a downlink, room for the smallest in flight would be a queue of many
    times `buffer_ms` for full frames: there it is counted in full frames, and a link full of small ones loses some.
    """
    most = layout.at_most(link)
    if layout.plan.downlink_mbyte_s is None:
        return packets_in_flight(most)
    longest_ms = most.delay_ms + 4 * most.jitter_ms + most.buffer_ms
    return round(most.bytes_per_s * longest_ms / 1e3 / FULL_FRAME) + FEWEST_FRAMES


def netem_options(link: Link, packets: int) -> str:
    """Return netem's options for a link, without the seed, which kernels before 6.6 ignore.

    All are given: of omitted options, netem resets some and keeps others.
    """
    jitter = f" {link.jitter_ms:.6f}ms distribution {link.distribution}" if link.jitter_ms else ""
    # Without a delay there is no packet to overtake, and tc would refuse.
    early_pct = link.reorder_pct if link.delay_ms else 0.0
    return (
        f"limit {packets} delay {link.delay_ms:.6f}ms{jitter} rate {ORDER_RATE} {_loss(link)} "
        f"duplicate {link.duplicate_pct:.6f}% corrupt {link.corrupt_pct:.6f}% "
        f"reorder {early_pct:.6f}%"
    )


def _loss(link: Link) -> str:
    bursts = loss_burst_chances(link)
    if bursts is None:
        return f"loss {link.loss_pct:.6f}%"
    begin, end = bursts
    return f"loss gemodel {100 * begin:.6f}% {100 * end:.6f}%"


def _redirect_lines(device: str, to: str) -> list[str]:
    # All protocols: packets that must not be delayed are sorted out on `to`, by the same rules as at egress.
    match = f"parent {INGRESS} protocol all prio 1 u32 match u32 0 0"
    return [
        f"qdisc add dev {device} handle {INGRESS} ingress",
        f"filter add dev {device} {match} action mirred egress redirect dev {to}",
    ]


def stop(device: str, found: list[Qdisc]) -> None:
    """Remove the wire. Packets in flight are lost."""
    if any(qdisc.kind == "ingress" and qdisc.device == device for qdisc in found):
        run(["tc", "qdisc", "del", "dev", device, "ingress"])
    for name in (IFB, SCRATCH_IFB):
        _remove_device(name)


def _remove_device(name: str) -> None:
    if name in (there for _, there in socket.if_nameindex()):
        run(["ip", "link", "del", name])


def warnings() -> list[str]:
    """Return nothing: netem counts drops for lack of room together with those that it is asked for."""
    return []


def counters(layout: Layout) -> dict[str, WireCounters]:
    """Return how many packets arrived on each incoming link, duplicates included, and how many were lost, by peer."""
    counts = queue_counts(IFB)
    handles = {peer: f"{htb.link_id(layout.slots[peer])}:" for peer in layout.plan.incoming()}
    return {
        peer: counters_of(counts[handle]) for peer, handle in handles.items() if handle in counts
    }


def counters_of(counted: Mapping[str, int]) -> WireCounters:
    """Convert tc's counters of one netem: its `packets` are those that it has released."""
    came = counted["packets"] + counted["drops"] + counted["qlen"]
    return WireCounters(packets=came, lost=counted["drops"])


def lateness() -> None:
    """Return None: the kernel holds the packets, and does not report it."""
    return


def mark() -> str:
    """Return nothing: the whole wire is traffic control."""
    return ""


def fault(layout: Layout, found: list[Qdisc]) -> str:
    """Return what is missing of a wire that should be in force; empty if it is complete.

    Args:
        layout: what should be in force.
        found: every qdisc of this node.
    """
    device, has = layout.device.name, {(qdisc.device, qdisc.kind) for qdisc in found}
    if (device, "ingress") not in has:
        return f"{device} has no ingress qdisc"
    if (IFB, "htb") not in has:
        return f"the device {IFB} is gone"
    return lost_queues(layout, IFB, NodePlan.incoming, found)
