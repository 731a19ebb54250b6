"""Sockets for probe datagrams, and the echo at the far end.

Pings go back with the time at which they arrived; the log is for whoever asks for it on standard input, so that loss
and jitter are known for each direction by itself, and of a link that carries nothing, too.
"""

import socket
import struct
import time

from node.base.scheduling import reserve_for_pings
from protocol.ports import PROBE_PORT

PING = struct.Struct("!IId")  # series, number in it, time sent
ARRIVED = struct.Struct("!d")  # what the peer adds: the time at which it arrived there
ECHO = struct.Struct("!IIdd")  # both together
SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond net.core.rmem_max, with NET_ADMIN
RECEIVE_BUFFER_BYTES = 4 << 20

Arrival = tuple[int, float, float]
"""Of one ping (its number, time sent in s, one-way time in s, of two clocks)."""
PingLog = dict[tuple[str, int], list[Arrival]]
"""What has arrived, by (sender's address, series), in that order."""


def datagram_socket() -> socket.socket:
    """With room for a busy moment: what is dropped for want of it would look like loss on the link."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def bound_socket(address: str) -> socket.socket:
    """The one to which peers send."""
    sock = datagram_socket()
    sock.bind((address, PROBE_PORT))
    return sock


def answer_pings(sock: socket.socket, log: PingLog, nodes: int) -> None:
    """Send pings back, and keep a log of them, for ever; in a cluster of so many nodes."""
    reservation = reserve_for_pings(nodes)
    while True:
        data, source = sock.recvfrom(64)
        now = time.monotonic()
        reservation.look()
        if len(data) != PING.size:
            continue
        sock.sendto(data + ARRIVED.pack(now), source)
        series, number, sent = PING.unpack(data)
        log.setdefault((source[0], series), []).append((number, sent, now - sent))
