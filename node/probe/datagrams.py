"""The datagrams of probes, and what a node does with those of its peers: it sends pings back, and logs what arrives.

Pings go back with the time at which they arrived; the log is for whoever asks for it on standard input, so that loss
and jitter are known for each direction by itself, and of a link that carries nothing, too.
"""

import socket
import struct
import time
from array import array

PORT = 29400
PING = struct.Struct("!IId")  # series, number in it, time sent
ARRIVED = struct.Struct("!d")  # what the peer adds: the time at which it arrived there
ECHO = struct.Struct("!IIdd")  # both together
FLOOD = struct.Struct("!I")  # series; the rest is padding
FLOOD_BYTES = 1472  # with UDP's and IPv4's headers a full packet at MTU 1500
SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond net.core.rmem_max, with NET_ADMIN
RECEIVE_BUFFER_BYTES = 4 << 20

Arrivals = dict[tuple[str, int], list[tuple[int, float, float]]]
"""(sender's address, series) -> [(number, time sent in s, one-way time in s, of two clocks)]."""
Floods = dict[tuple[str, int], "array[float]"]
"""(sender's address, series) -> when its datagrams arrived, in s."""


def datagram_socket() -> socket.socket:
    """With room for a busy moment: what is dropped for want of it would look like loss on the link."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def bound_socket(address: str) -> socket.socket:
    """The one to which peers send."""
    sock = datagram_socket()
    sock.bind((address, PORT))
    return sock


def answer_peers(sock: socket.socket, arrivals: Arrivals, floods: Floods) -> None:
    """Take what peers send, for ever."""
    buffer = bytearray(2048)
    while True:
        length, source = sock.recvfrom_into(buffer)
        now = time.monotonic()
        if length == PING.size:
            sock.sendto(buffer[:length] + ARRIVED.pack(now), source)
            series, number, sent = PING.unpack_from(buffer)
            arrivals.setdefault((source[0], series), []).append((number, sent, now - sent))
        elif length == FLOOD_BYTES:
            (series,) = FLOOD.unpack_from(buffer)
            floods.setdefault((source[0], series), array("d")).append(now)
