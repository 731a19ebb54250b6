"""Measures how much the queue in front of a link holds, by a burst that is larger than it.

The queue drops what it has no room for, and what it holds arrives in the end. So the part of a burst that arrives is
the size of the queue, plus what the link carried while the burst was sent.
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
"""How long sending a burst took, and the longest pause meanwhile, in s."""


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
    """Send one burst. Returns how many seconds that took, and the longest time from one send to the next."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((send.address, send.port))
        size = datagram_bytes(sock)
        room = min(ROOM * send.datagrams * size, MOST_ROOM_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, room)
        began = before = time.monotonic()
        pause_s = 0.0
        block = bytes(size * segments_at_once(sock, size, send.at_once))
        for _ in range(-(-send.datagrams * size // len(block))):
            with suppress(OSError):  # the queue has no room
                sock.send(block)
            now = time.monotonic()
            pause_s, before = max(pause_s, now - before), now
        return round(before - began, 6), round(pause_s, 6)
