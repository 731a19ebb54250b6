"""Super-packets: how many TCP segments a link's queue takes as one, and which links take single frames.

TCP hands a device up to 64 KB at once, whatever offloads the device reports (since Linux 4.17). These are cut only
after the queueing discipline, so a queue would hold, and a rate send, lumps of up to 16 ms of a link of 4 MB/s. So
each link's queue cuts by itself (sch_tbf, whose own rate limits nothing). On a link that is fast and loses nothing,
super-packets of at most SUPER_PACKET_S pass whole, which a small machine can afford: each costs about as much as a
frame.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from node.wire.commands import run, run_json
from protocol.link import Link

SUPER_PACKET_S = 2e-4
"""Longest time that a super-packet takes on its link: the delayer's grain, a fifth of HTB's burst
(node.wire.node_cap), and about as late as a busy machine's timers are."""
MAX_SUPER_PACKET = 65536
"""Bytes: the kernel's own limit (gso_max_size)."""
MAX_CUT_MBYTE_S = 250.0
"""Above this rate no link cuts into frames: at 1500 bytes a packet, a core handles some 200,000 packets a second."""
DEFAULT_SEGMENTS = 65535
"""The kernel's gso_max_segs."""
GRO = "generic-receive-offload"


class Offloads(NamedTuple):
    """What a device coalesces: received packets (GRO) or not, and how many segments TCP hands it as one."""

    gro: bool
    gso_max_segs: int


def super_packet_bytes(link: Link, frame: int) -> int:
    """Return the largest packet that the link's queue takes whole: one or more frames, in bytes with Ethernet headers.

    A link that loses, duplicates, corrupts or reorders packets does so to single frames, unless it is too fast for
    that.
    """
    frames = max(1, int(min(link.bytes_per_s * SUPER_PACKET_S, MAX_SUPER_PACKET)) // frame)
    if link.rate_mbyte_s <= MAX_CUT_MBYTE_S and link.is_impaired:
        return frame
    return frames * frame


def largest_packet(links: Iterable[Link], frame: int) -> int:
    """Return the largest packet that any of these links takes whole, in bytes."""
    return max((super_packet_bytes(link, frame) for link in links), default=frame)


def wanted(links: Collection[Link], frame: int) -> Offloads:
    """Return the offloads with which the device's links, if all are full, carry the fewest packets.

    A device has one number of segments for all its links; a link that takes fewer segments whole cuts packets into
    frames.
    """
    takes = {link: super_packet_bytes(link, frame) // frame for link in links}

    def packets(segments: int) -> float:
        """Return how many packets all links carry a second."""
        return sum(
            link.bytes_per_s / (segments if segments <= most else 1) for link, most in takes.items()
        )

    whole = sorted({most for most in takes.values() if most > 1})
    return Offloads(False, min(whole, key=packets) if whole else DEFAULT_SEGMENTS)


def note(links: Iterable[Link], frame: int) -> str:
    """Return a note for the user if impairments hit super-packets, else an empty string."""
    fast = [link for link in links if link.is_impaired and super_packet_bytes(link, frame) > frame]
    if not fast:
        return ""
    return (
        f"a link is faster than {MAX_CUT_MBYTE_S:.0f} MB/s: its loss, and what else goes wrong there, "
        f"hits super-packets of up to {max(super_packet_bytes(link, frame) for link in fast)} bytes"
    )


def read(device: str) -> Offloads:
    """Return the present offloads of the device."""
    (features,) = run_json(["ethtool", "--json", "--show-features", device])
    (link,) = run_json(["ip", "-json", "-details", "link", "show", "dev", device])
    return Offloads(features[GRO]["active"], link["gso_max_segs"])


def change(device: str, now: Offloads, after: Offloads) -> None:
    """Change the device's offloads from `now` to `after`.

    Raises:
        CommandError: the device does not support it.
    """
    if now.gro != after.gro:
        run(["ethtool", "--features", device, "gro", "on" if after.gro else "off"])
    if now.gso_max_segs != after.gso_max_segs:
        run(["ip", "link", "set", "dev", device, "gso_max_segs", str(after.gso_max_segs)])
