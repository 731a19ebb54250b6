"""Measures how much the queue in front of a link holds, by a burst that is larger than it.

The queue drops what it has no room for, and what it holds arrives in the end. So the part of a burst that arrives is
the size of the queue, plus what the link carried while the burst was sent. That holds only if the queue is full when
the last datagram has been sent: on a busy machine, sending may be too slow for that, so the sender computes what a
queue of the size asked for would have held.
"""

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from node.probe.flood import (
    SO_SNDBUFFORCE,
    FloodGauge,
    count_arrivals,
    datagram_bytes,
    segments_at_once,
    send_timed,
)
from protocol.probe import Burst, BurstOrder, BurstSend

ROOM = 8  # the send buffer, as a multiple of what is sent, so that the socket never waits for the queue
MOST_ROOM_BYTES = 1 << 30

Sent = tuple[float, float]
"""How long sending a burst took, and by how much the right queue would have seemed too small then, in s."""


class QueueModel:
    """A queue of known size and rate, filled at given moments.

    Args:
        size: the most datagrams that it holds.
        datagrams_s: how many leave it a second.
    """

    def __init__(self, size: int, datagrams_s: float) -> None:
        self._size, self._datagrams_s = size, datagrams_s
        self._held = self._unused = 0.0

    def add(self, datagrams: int, after_s: float) -> None:
        """Let it drain for `after_s`; then add these datagrams, as far as there is room."""
        left = self._held - after_s * self._datagrams_s
        self._unused -= min(0.0, left)
        self._held = min(float(self._size), max(0.0, left) + datagrams)

    @property
    def short_s(self) -> float:
        """How long what is missing would take to drain: to a full queue now, and to a link that was never idle."""
        return (self._size - self._held + self._unused) / self._datagrams_s


def burst(order: BurstOrder, address: str) -> dict[str, Burst]:
    """Send what the timetable says, and count what arrives: one result per peer that sends to us or that we send to."""
    start = time.monotonic()
    sent: dict[str, Sent] = {}
    with ExitStack() as stack:
        gauges = {
            name: stack.enter_context(FloodGauge(address, port))
            for name, port in order.counts.items()
        }
        sender = threading.Thread(target=_send_all, args=(order.sends, start, sent))
        sender.start()
        count_arrivals(list(gauges.values()), start + order.seconds)
        sender.join()
        for gauge in gauges.values():
            gauge.look()
    arrived = {name: gauge.samples[-1][1] for name, gauge in gauges.items()}
    return {name: Burst(arrived.get(name), *sent.get(name, (None, None))) for name in order.names}


def _send_all(sends: Mapping[str, BurstSend], start: float, sent: dict[str, Sent]) -> None:
    def send(name: str) -> None:
        sent[name] = _send(sends[name])

    send_timed({name: start + one.at_s for name, one in sends.items()}, send)


def _send(send: BurstSend) -> Sent:
    """Send one burst."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((send.address, send.port))
        size = datagram_bytes(sock)
        room = min(ROOM * send.datagrams * size, MOST_ROOM_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, room)
        at_once = segments_at_once(sock, size, send.at_once)
        block, queue = bytes(size * at_once), QueueModel(send.queued, send.datagrams_s)
        began = before = time.monotonic()
        for _ in range(-(-send.datagrams // at_once)):
            with suppress(OSError):  # the queue has no room
                sock.send(block)
            now = time.monotonic()
            queue.add(at_once, now - before)
            before = now
        return round(before - began, 6), round(queue.short_s, 6)
