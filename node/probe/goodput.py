"""Measures TCP goodput, and round trips while the link is full.

Goodput is what the receiver's program reads in the last `window_s` seconds, after the connection has had `startup_s`
to fill the link. In those seconds the sender also pings: a round trip under load.
"""

import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from node.probe.datagrams import datagram_socket
from node.probe.pings import read_echo, send_ping
from protocol.lines import encode_line
from protocol.ports import PROBE_PORT
from protocol.probe import Goodput, SendOrder
from protocol.reader import FormatError, Seconds, parse

CHUNK_BYTES = 1 << 18
GIVE_UP_S = 20.0  # without a sign of life, plus twice the time that a link takes to fill


class Request(NamedTuple):
    """What a sender asks of the receiver, in a line of JSON before the data that counts."""

    startup_s: Seconds
    window_s: Seconds


class Received(NamedTuple):
    """What the receiver answers, in JSON, at the end of the connection."""

    goodput_mbyte_s: float


class LoadPings:
    """Pings to one peer from a moment on, interleaved with other work."""

    def __init__(self, peer: str, series: int, first_s: float, interval_s: float) -> None:
        self.rtt_ms: list[float] = []
        self.sock = datagram_socket()
        self._peer, self._series = peer, series
        self._next, self._interval_s, self._number = first_s, interval_s, 0

    def wait_s(self) -> float:
        """Return how long until the next ping."""
        return max(0.0, self._next - time.monotonic())

    def send_if_due(self) -> None:
        """Send the next ping if it is due."""
        if self.wait_s() == 0:
            send_ping(self.sock, self._peer, self._series, self._number)
            self._number += 1
            self._next += self._interval_s

    def read(self) -> None:
        """Read one echo."""
        _, echo = read_echo(self.sock, self._series)
        if echo is not None:
            self.rtt_ms.append(round((echo.returned - echo.sent) * 1000, 3))


def send(order: SendOrder, series: int) -> Goodput:
    """Send to one peer until it has measured enough, and return its answer; after a failure, a goodput of 0."""
    try:
        return _send(order, series)
    except (OSError, FormatError) as error:
        return Goodput(0.0, [], str(error))


def _send(order: SendOrder, series: int) -> Goodput:
    give_up_s, began = _give_up_s(order.startup_s), time.monotonic()
    with socket.create_connection((order.peer, PROBE_PORT), timeout=give_up_s) as sock:
        connecting_s = time.monotonic() - began
        sock.sendall(encode_line(Request(order.startup_s, order.window_s)))
        # The window opens `startup_s` after the request is there: half a round trip from now. Connecting took a whole.
        first_ping = time.monotonic() + connecting_s / 2 + order.startup_s
        pings = LoadPings(order.peer, series, first_ping, order.ping_interval_ms / 1000)
        with pings.sock:
            _fill(sock, pings, give_up_s)
        sock.settimeout(give_up_s)
        answer = sock.recv(4096)
        # Nobody needs what still waits in our buffer: end at once, by a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if not answer:
        return Goodput(0.0, pings.rtt_ms, "the peer closed the connection")
    return Goodput(parse(Received, answer, "the peer").goodput_mbyte_s, pings.rtt_ms)


def _give_up_s(startup_s: float) -> float:
    return GIVE_UP_S + 2 * startup_s


def _fill(sock: socket.socket, pings: LoadPings, give_up_s: float) -> None:
    """Send until the peer answers, or there is no progress any more."""
    block, moved = bytes(CHUNK_BYTES), time.monotonic()
    sock.setblocking(False)
    while time.monotonic() < moved + give_up_s:
        readable, writable, _ = select.select([sock, pings.sock], [sock], [], pings.wait_s())
        pings.send_if_due()
        if pings.sock in readable:
            pings.read()
        if sock in readable:
            return
        if writable:
            sock.send(block)
            moved = time.monotonic()


def serve(listener: socket.socket) -> None:
    """Receive from every client, for ever."""
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_answer, args=(sock,), daemon=True).start()


def _answer(sock: socket.socket) -> None:
    with sock:
        sock.settimeout(GIVE_UP_S)
        request = _read_request(sock)
        sock.settimeout(_give_up_s(request.startup_s))
        answer = Received(_sink(sock, request))
        sock.sendall(encode_line(answer))
        # Closing with unread data would reset the connection, and might discard the answer.
        rest = bytearray(CHUNK_BYTES)
        with suppress(OSError):  # the sender has the answer, and has gone
            sock.shutdown(socket.SHUT_WR)
            while sock.recv_into(rest):
                pass


def _read_request(sock: socket.socket) -> Request:
    """Read the request byte by byte: the data after it must not be taken here."""
    line = b""
    while not line.endswith(b"\n"):
        line += sock.recv(1) or b"\n"
    return parse(Request, line, "the request")


def _sink(sock: socket.socket, request: Request) -> float:
    """Read for `startup_s`, then count for `window_s`. Returns the goodput in MB/s."""
    buffer = bytearray(CHUNK_BYTES)
    first = time.monotonic()
    opens = first + request.startup_s
    received = 0
    while True:
        count = sock.recv_into(buffer)
        now = time.monotonic()
        if count == 0:
            return 0.0
        if now < opens:
            first, received = now, 0
            continue
        received += count
        if now >= opens + request.window_s:
            return received / (now - first) / 1e6
