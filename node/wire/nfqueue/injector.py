"""Injects duplicates of packets at ingress: netfilter can release a packet, but only once.

A copy is sent on the loopback device, where it arrives like any packet: it is delivered here if it has this node's
address, else forwarded. None of our rules looks at it again there.
"""

import socket
from pathlib import Path

from node.wire.devconf import LOOSE, set_reverse_path_filter

LOOPBACK, NO_ADDRESS = "lo", bytes(6)
ETHERTYPES = {4: 0x0800, 6: 0x86DD}
FILTERS = Path("/proc/sys/net/ipv4/conf")


def open_injector() -> socket.socket:
    """Open a socket that sends packets as if they came in. A strict reverse path filter on loopback is loosened."""
    if (FILTERS / "all/rp_filter").read_text().strip() == "1":
        set_reverse_path_filter(LOOPBACK, LOOSE)
    return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)


def inject(injector: socket.socket, content: bytes) -> None:
    """Inject a packet, given from its IP header on."""
    kind = ETHERTYPES[content[0] >> 4]
    injector.sendto(content, (LOOPBACK, kind, 0, 0, NO_ADDRESS))
