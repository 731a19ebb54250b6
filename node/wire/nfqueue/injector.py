"""Injects duplicates of packets at ingress: netfilter can release a packet, but only once.

A copy is sent on the loopback device, where it arrives like any packet: for this node if its address says so, else it
is forwarded. There no rule of ours looks at it again.
"""

import socket
from pathlib import Path

from node.wire.devconf import LOOSE, set_reverse_path_filter

LOOPBACK, NO_ADDRESS = "lo", bytes(6)
ETHERTYPES = {4: 0x0800, 6: 0x86DD}
FILTERS = Path("/proc/sys/net/ipv4/conf")


def open_injector() -> socket.socket:
    """A socket that sends packets as if they came in. Where the kernel is strict about whence, it becomes less so."""
    if (FILTERS / "all/rp_filter").read_text().strip() == "1":
        set_reverse_path_filter(LOOPBACK, LOOSE)
    return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)


def inject(injector: socket.socket, content: bytes) -> None:
    """Let a packet come in, from its IP header on."""
    kind = ETHERTYPES[content[0] >> 4]
    injector.sendto(content, (LOOPBACK, kind, 0, 0, NO_ADDRESS))
