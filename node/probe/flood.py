"""Measures a link's rate by a flood of datagrams, independent of congestion control.

Only its own node slows the sender down: a socket may have only a limited amount in the queue before the link. So the
link is always busy, and hardly anything is dropped but the loss that is asked of the link. Many datagrams leave in
one call (UDP_SEGMENT), and hardly one is read where they arrive: a socket without room drops them, and the kernel
counts them. So a slow machine can measure fast links.

One order holds the floods of a whole timetable: no round trip to the client lies between two of them.
"""

import math
import select
import socket
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from operator import itemgetter
from statistics import median
from typing import Self

from protocol.probe import FloodCount, Flooded, FloodOrder, FloodSend

UDP_IP_BYTES = 28  # headers of UDP and IPv4
IP_MTU = 14  # linux/in.h: the MTU of the way to the connected peer
SOL_UDP, UDP_SEGMENT = 17, 103  # linux/udp.h, since kernel 4.18
SO_SNDBUFFORCE = 32  # asm-generic/socket.h: may exceed net.core.wmem_max, with NET_ADMIN
SO_MEMINFO, MEMINFO = 55, struct.Struct("9I")  # asm-generic/socket.h, linux/sock_diag.h
LOOK_S = 0.005  # between two looks at what has arrived
LOOKS = 5  # at most, until one is quick
QUICK_S = 1e-4  # a look that takes longer was interrupted: its time is unknown

Sent = tuple[float, float]
"""Per cent of the sends that found the link's queue full, and datagrams a second."""


def flood(order: FloodOrder, address: str) -> dict[str, Flooded]:
    """Send what the timetable says, and count what arrives: one result per peer that sends to us or that we send to."""
    start = time.monotonic()
    sent: dict[str, Sent] = {}
    with ExitStack() as stack:
        gauges = {
            name: stack.enter_context(FloodGauge(address, count.port))
            for name, count in order.counts.items()
        }
        sender = threading.Thread(target=_send_all, args=(order.sends, start, sent))
        sender.start()
        count_arrivals(list(gauges.values()), start + order.seconds)
        sender.join()
    rates = {name: _rate(gauge.samples, order.counts[name]) for name, gauge in gauges.items()}
    return {name: Flooded(rates.get(name), *sent.get(name, (None, None))) for name in order.names}


def _send_all(sends: Mapping[str, FloodSend], start: float, sent: dict[str, Sent]) -> None:
    """Send all floods; writes what `_send` returns into `sent`, by peer."""

    def send(name: str) -> None:
        sent[name] = _send(sends[name])

    send_timed({name: start + one.at_s for name, one in sends.items()}, send)


def send_timed(moments: Mapping[str, float], send: Callable[[str], None]) -> None:
    """Send to each of these peers when its moment (of the monotonic clock) has come, in parallel."""
    threads = []
    for name, moment in sorted(moments.items(), key=lambda named: named[1]):
        time.sleep(max(0.0, moment - time.monotonic()))
        threads.append(threading.Thread(target=send, args=(name,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _send(send: FloodSend) -> Sent:
    """Send one flood. Returns for how many sends, in per cent, the link's queue was full, and datagrams a second.

    All count as such if everything is in the queue before the link has had time to carry it: then it is the limit.
    """
    began = time.monotonic()
    sends = full = sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, send.queued_bytes)
        sock.settimeout(1.0)
        sock.connect((send.address, send.port))
        size = datagram_bytes(sock)
        block = bytes(size * segments_at_once(sock, size, send.at_once))
        most_bytes = math.inf if send.datagrams is None else size * send.datagrams
        while (took_s := time.monotonic() - began) < send.seconds:
            if sent >= most_bytes:
                return 100.0, round(sent / size / send.seconds, 1)
            is_full, sent_bytes = _send_block(sock, block)
            sends, full, sent = sends + 1, full + is_full, sent + sent_bytes
    return round(100 * full / max(1, sends), 1), round(sent / size / took_s, 1) if sends else 0.0


def _send_block(sock: socket.socket, block: bytes) -> tuple[bool, int]:
    """Send one block, or wait a while for room. Returns whether there was none at first, and how many bytes it sent.

    This tells whether the machine, and not the link, was the limit: a link that is sent more than it carries has a
    full queue; a link that could carry more has not.
    """
    is_full = not select.select([], [sock], [], 0)[1]
    with suppress(OSError):  # no room yet
        return is_full, sock.send(block)
    return is_full, 0


def datagram_bytes(sock: socket.socket) -> int:
    """Return the payload of a datagram that makes a full packet on the way to the connected peer."""
    return sock.getsockopt(socket.IPPROTO_IP, IP_MTU) - UDP_IP_BYTES


def segments_at_once(sock: socket.socket, size: int, at_once: int) -> int:
    """Return how many datagrams of this size one call sends, after trying it."""
    if at_once == 1:
        return 1
    try:
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, size)
        sock.send(bytes(size * at_once))
    except OSError:  # an old kernel, or a device that cannot
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
        return 1
    return at_once


class FloodGauge:
    """Counts the datagrams of one sender, which has a port to itself.

    The first datagram that finds the socket empty wakes the waiting thread; the others until the next look are
    dropped for lack of room. There is nothing to do while nothing comes.

    Attributes:
        samples: (time in s, datagrams until then).
    """

    def __init__(self, address: str, port: int) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # full after one datagram
        self.sock.bind((address, port))
        self.sock.setblocking(False)
        self.samples: list[tuple[float, int]] = []
        self._read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def look(self) -> None:
        """Take one datagram, so that the next one wakes us again, and count all that arrived."""
        with suppress(BlockingIOError):
            self.sock.recv(1)
            self._read += 1
        for _ in range(LOOKS):
            before = time.monotonic()
            dropped = MEMINFO.unpack(self.sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[8]
            now = time.monotonic()
            if now - before < QUICK_S:
                break
        self.samples.append((now, self._read + dropped))


def count_arrivals(gauges: list[FloodGauge], until: float) -> None:
    """Look at every gauge with new data, until a moment of the monotonic clock."""
    poll = select.poll()
    waiting = {gauge.sock.fileno(): gauge for gauge in gauges}
    for number in waiting:
        poll.register(number, select.POLLIN)
    while (left_s := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left_s * 1000):
            waiting[number].look()
        time.sleep(LOOK_S)


def _rate(samples: list[tuple[float, int]], count: FloodCount) -> float:
    if count.until_s is None:
        return rate_of(samples, count.skip_s)
    return share_of(samples, count.skip_s, count.until_s)


def rate_of(samples: list[tuple[float, int]], skip_s: float) -> float:
    """Return datagrams a second, from `skip_s` after the first: the median over pairs of looks half of them apart.

    A stall of the host moves some of the pairs, not their median.

    Args:
        samples: (time in s, datagrams until then), while they came.
        skip_s: the time after the first datagram that does not count.
    """
    # The last look may be later than the last datagram.
    steady = [sample for sample in samples[:-1] if sample[0] >= samples[0][0] + skip_s]
    half = len(steady) // 2
    rates = [
        (after - before) / (later - earlier)
        for (earlier, before), (later, after) in zip(steady, steady[half:], strict=False)
        if later > earlier
    ]
    return median(rates) if rates else 0.0


def share_of(samples: list[tuple[float, int]], skip_s: float, until_s: float) -> float:
    """Return datagrams a second, over all that came from `skip_s` to `until_s` after the first one.

    If links share a limit, one of them may carry none for a while. There are no looks then, so looks overrate busy
    times; and the rates of all links must add up. A link's share may be a few datagrams, and links of one rate are all
    rounded alike: so the datagram that is on its way when the time begins or ends counts in part.

    Args:
        samples: (time in s, datagrams until then), while they came.
        skip_s: when to begin.
        until_s: when to end.
    """
    if not samples:
        return 0.0
    first_s = samples[0][0]
    begun, ended = (_count_at(samples, first_s + after_s) for after_s in (skip_s, until_s))
    return (ended - begun) / (until_s - skip_s)


def _count_at(samples: list[tuple[float, int]], at_s: float) -> float:
    """Return how many datagrams came until a moment after the first; between two looks, in proportion to the time."""
    later = bisect_right(samples, at_s, key=itemgetter(0))
    if later == len(samples):
        return samples[-1][1] + min(1.0, _mean_rate(samples) * (at_s - samples[-1][0]))
    (before_s, before), (after_s, after) = samples[later - 1 : later + 1]
    return before + (after - before) * (at_s - before_s) / (after_s - before_s)


def _mean_rate(samples: list[tuple[float, int]]) -> float:
    (first_s, first), (last_s, last) = samples[0], samples[-1]
    return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
