"""Sockets for probe datagrams, and the echo at the far end.

Pings go back with the time at which they arrived. They are also logged, for orders that ask for the log, so that loss
and jitter are known for each direction by itself, and also for a link that carries nothing.
"""

import socket
import struct
import time

from node.base.scheduling import reserve_for_pings
from protocol.ports import PROBE_PORT

PING = struct.Struct("!IId")  # series, number in it, time sent
ARRIVED = struct.Struct(
    "!dI"
)  # what the peer adds: when it arrived there, and its place among those that did
ECHO = struct.Struct("!IIddI")  # both together
SO_RCVBUFFORCE = 33  # asm-generic/socket.h: may exceed net.core.rmem_max, with NET_ADMIN
RECEIVE_BUFFER_BYTES = 4 << 20

Arrival = tuple[int, float, float]
"""One ping: its number, time sent in s, one-way time in s, which spans two nodes' clocks."""
PingLog = dict[tuple[str, int], list[Arrival]]
"""Pings that have arrived, by (sender's address, series), in order of arrival."""


def datagram_socket() -> socket.socket:
    """Open a socket with room for a busy moment: drops for lack of room would look like loss on the link."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def bound_socket(address: str) -> socket.socket:
    """Open the socket to which peers send."""
    sock = datagram_socket()
    sock.bind((address, PROBE_PORT))
    return sock


def answer_pings(sock: socket.socket, log: PingLog, nodes: int) -> None:
    """Send pings back, and log them, for ever; `nodes` is the size of the cluster."""
    reservation = reserve_for_pings(nodes)
    while True:
        data, source = sock.recvfrom(64)
        now = time.monotonic()
        reservation.look()
        if len(data) != PING.size:
            continue
        series, number, sent = PING.unpack(data)
        arrived = log.setdefault((source[0], series), [])
        sock.sendto(data + ARRIVED.pack(now, len(arrived)), source)
        arrived.append((number, sent, now - sent))
