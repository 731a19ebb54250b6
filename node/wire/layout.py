"""The layout of links on one device: a plan, and the slot number of each link in kernel objects."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from node.wire.commands import Device, Qdisc
from node.wire.htb import link_id
from protocol.link import Link, Pair
from protocol.node_plan import NodePlan
from protocol.reader import FormatError

ETHERNET_HEADER = 14
SMALL_FRAME, FULL_FRAME = 200, 1514
WIRE_LATE_S = 0.2
BEFORE = 100_000
"""Packets that may be in flight from before a link was changed, when it was longer or faster: 150 MB of full frames."""
MAX_SLOT = 0xEF  # a slot has to fit in a byte together with htb.FIRST_LINK

LinksOf = Callable[[NodePlan], dict[str, Link]]


class Layout(NamedTuple):
    """A plan, the device that carries it, and the slot of each peer."""

    plan: NodePlan
    device: Device
    slots: dict[str, int]
    """Peer → a small number that stays the same as long as the peer, so that its links can be changed in place."""
    changes: int = 0
    """How often links have been changed since they were first laid: netem's random draws begin anew at a change."""
    highest: Mapping[Pair, Link] = {}
    """Links that traces change, with the highest values that they may have meanwhile."""

    def at_most(self, link: Link) -> Link:
        """Return the link for which there must be room: `link`, or if traces change it, what it may become."""
        return self.highest.get(link.ends, link)

    def beyond_underlay(self, link: Link) -> Link:
        """Return the link with the delay that the wire must add to that of the hosts' own network."""
        rest_ms = link.delay_ms - self.plan.underlay_ms.get(self.plan.peer_of(link), 0.0)
        return link._replace(delay_ms=max(0.0, rest_ms))

    @property
    def frame(self) -> int:
        """The largest Ethernet frame in bytes."""
        return self.device.mtu + ETHERNET_HEADER

    def mac(self, peer: str) -> str:
        """Return the MAC address of a peer."""
        return self.plan.peers[peer].mac


def lay_out(plan: NodePlan, device: Device, before: Layout | None) -> Layout:
    """Give each peer a slot: the one that it already has, else the lowest that was free in the layout before."""
    old = before.slots if before else {}
    slots = {peer: old[peer] for peer in plan.peers if peer in old}
    free = (slot for slot in range(1, MAX_SLOT + 1) if slot not in old.values())
    for peer in plan.peers:
        if peer not in slots:
            slots[peer] = next(free, 0)
    if 0 in slots.values():
        raise FormatError(f"too many ({MAX_SLOT} is the most, old and new together)", "peers")
    return Layout(plan, device, slots, before.changes + 1 if before else 0)


def ended(before: Layout | None, after: Layout, links_of: LinksOf) -> list[int]:
    """Return the slots of links to remove: no longer in the plan, or now with another MAC address.

    Args:
        before: the layout in force.
        after: the target layout.
        links_of: which links: `NodePlan.outgoing` or `NodePlan.incoming`.
    """
    if before is None:
        return []
    kept = links_of(after.plan)
    return [
        before.slots[peer]
        for peer in links_of(before.plan)
        if peer not in kept or before.mac(peer) != after.mac(peer)
    ]


def lost_queues(layout: Layout, device: str, links_of: LinksOf, found: Iterable[Qdisc]) -> str:
    """Return which links have lost their queue on a device, as words; empty if none has.

    Args:
        layout: the layout that should be in force.
        device: where the queues should be.
        links_of: which links: `NodePlan.outgoing` or `NodePlan.incoming`.
        found: every qdisc of this node.
    """
    there = {qdisc.handle for qdisc in found if qdisc.device == device}
    links = links_of(layout.plan).items()
    lost = [link for peer, link in links if f"{link_id(layout.slots[peer])}:" not in there]
    words = ", ".join(f"{link.src} -> {link.dst}" for link in lost)
    return f"{device} has no queue of {words}" if lost else ""


def packets_in_flight(link: Link) -> int:
    """Return how many packets a wire must be able to hold so that it never drops one for lack of room.

    The rate is limited at the other end, so spare room causes no bufferbloat. The number covers the bytes of the
    delay and of four standard deviations of jitter, half as much again, in frames of 200 bytes (small messages and
    acknowledgements fill a link too), WIRE_LATE_S of full frames for a wire that is late, and BEFORE for what the link
    has carried so far.
    """
    longest_s = (link.delay_ms + 4 * link.jitter_ms) / 1e3
    on_time = link.bytes_per_s * longest_s * 1.5 / SMALL_FRAME
    late = link.bytes_per_s * WIRE_LATE_S / FULL_FRAME
    return min(round(on_time + late) + BEFORE, 1_000_000)


def seed_of(plan: NodePlan, link: Link) -> int:
    """Return a seed of the link's own, the same on every run and machine."""
    return zlib.crc32(f"{plan.seed} {link.src} {link.dst}".encode())
