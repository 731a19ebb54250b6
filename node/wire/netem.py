"""The wire in the kernel: what comes in is redirected to an ifb device, where each link has a netem of its own.

The delay is at the receiver because of TCP small queues: at the sender, a packet on the wire would
still count as in the sender's queue.
"""

import socket
from typing import Any

from node.wire import htb
from node.wire.plan import Link, NodePlan
from node.wire.shape import Shape, ended, packets_in_flight, seed_of
from node.wire.system import CommandError, run, run_batch

NAME = "netem"
IFB = "gradwire-ifb"
SCRATCH_IFB = "gradwire-try"
INGRESS = "ffff:"
KIND_IS_UNKNOWN = ("kind is unknown", "No such file or directory")
"""A kernel's words for a qdisc that it does not have; the second is an older one's."""
ORDER_RATE = "100gbit"
"""With a rate, netem times each packet after the one before it: order is kept under jitter, and when a delay gets
shorter. This one limits nothing."""


def unavailable() -> str:
    """Why this kernel cannot do it, found by trying all of it on a scratch device; empty if it can.

    A kernel that does not know netem at all says so at once: to make a device, and to remove it, takes much longer.
    """
    try:
        run_batch("tc", ["qdisc add dev lo root netem limit 1000", "qdisc del dev lo root"])
    except CommandError as error:
        if any(words in str(error) for words in KIND_IS_UNKNOWN):
            return str(error)
    try:
        run(["ip", "link", "add", SCRATCH_IFB, "type", "ifb"])
    except CommandError as error:
        return str(error)
    try:
        run_batch("tc", _trial_lines())
    except CommandError as error:
        return str(error)
    finally:
        run(["ip", "link", "del", SCRATCH_IFB])
    return ""


def _trial_lines() -> list[str]:
    return [
        f"qdisc add dev {SCRATCH_IFB} root netem limit 1 delay 1ms 1ms distribution normal rate {ORDER_RATE}",
        *_redirect_lines(SCRATCH_IFB, SCRATCH_IFB),
    ]


def start(before: Shape | None, after: Shape) -> list[str]:
    """Make the ifb device. Returns notes for the user."""
    if before is None:
        run_batch("ip", [f"link add {IFB} type ifb", f"link set {IFB} up"])
    return []


def tc_lines(before: Shape | None, after: Shape) -> list[str]:
    """What turns the wire of `before` into that of `after`; packets under way stay under way."""
    lines = [] if before else htb.root_lines(IFB)
    for slot in ended(before, after, NodePlan.incoming):
        lines += htb.removal_lines(IFB, htb.link_id(slot))
    for peer, link in after.plan.incoming().items():
        lines += _link_lines(after, peer, link)
    # Last: from here on packets pass by.
    return lines + ([] if before else _redirect_lines(after.device.name, IFB))


def _link_lines(shape: Shape, peer: str, link: Link) -> list[str]:
    number = htb.link_id(shape.slots[peer])
    return [
        htb.sorting_line(IFB, htb.UPLINK, number),
        htb.queue_line(IFB, number, f"netem {netem_options(link, seed_of(shape.plan, link))}"),
        htb.mac_filter_line(IFB, "src", shape.mac(peer), number),
    ]


def netem_options(link: Link, seed: int) -> str:
    """What netem shall do on a link: every option, because some are reset by leaving them out, and some are not.

    Kernels before 6.6 have no seed and ignore it.
    """
    jitter = f" {link.jitter_ms:.6f}ms distribution normal" if link.jitter_ms else ""
    return (
        f"limit {packets_in_flight(link)} delay {link.delay_ms:.6f}ms{jitter} rate {ORDER_RATE} "
        f"loss {link.loss_pct:.6f}% seed {seed}"
    )


def _redirect_lines(device: str, to: str) -> list[str]:
    # All protocols: what must not be delayed is sorted out there, by the same rules as at the egress.
    match = f"parent {INGRESS} protocol all prio 1 u32 match u32 0 0"
    return [
        f"qdisc add dev {device} handle {INGRESS} ingress",
        f"filter add dev {device} {match} action mirred egress redirect dev {to}",
    ]


def stop(device: str, found: list[dict[str, Any]]) -> None:
    """Remove all of it. Packets under way are lost."""
    if any(row["kind"] == "ingress" and row["dev"] == device for row in found):
        run(["tc", "qdisc", "del", "dev", device, "ingress"])
    if IFB in (name for _, name in socket.if_nameindex()):
        run(["ip", "link", "del", IFB])


def warnings() -> list[str]:
    """Nothing: netem counts what it drops for want of room together with what it shall drop."""
    return []


def fault(device: str, found: list[dict[str, Any]]) -> str:
    """What is missing of a wire that should be there; empty if it is whole.

    Args:
        device: the device that carries the links.
        found: every qdisc of this node.
    """
    has = {(row["dev"], row["kind"]) for row in found}
    if (device, "ingress") not in has:
        return f"{device} has no ingress qdisc"
    return "" if (IFB, "htb") in has else f"the device {IFB} is gone"
