"""Finds free ports: the same tests may run on several Pythons at the same time."""

import socket
from contextlib import ExitStack


def free_ports(count):
    """Return this number of distinct free UDP ports of loopback."""
    with ExitStack() as stack:
        socks = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]
