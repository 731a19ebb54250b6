"""Pings: UDP datagrams that the peer sends back with the time at which they arrived.

One stream of pings measures both directions of a pair. A second one, from the other end, would meet the first one's
echoes on the same link; and on a link with jitter that keeps the order, a packet that closely follows another one
waits for it.
"""

import itertools
import math
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from node.base.scheduling import Reservation, reserve_for_pings
from node.probe.datagrams import ECHO, PING, Arrival, datagram_socket
from protocol.ports import PROBE_PORT
from protocol.probe import Arrivals, PingOrder, Pings

APART_S = 1e-3
"""Two pings that leave a node within this time may be swapped by the host, before they come to a link's delay: each
processor has a queue of its own for packets between containers. Measured on two busy processors: one echo in 20,000,
of those sent together, 2 to 20 us apart on arrival (docs/LOG.md, 2026-11-27). A link that reorders also lets
pings overtake others that were sent long before."""


class Echo(NamedTuple):
    """A ping that came back, with its times: sent by our clock, arrived by the peer's, returned by ours.

    `place` is its place among all pings that arrived at the peer, in the order in which they were sent back.
    """

    number: int
    sent: float
    arrived: float
    place: int
    returned: float


def send_ping(sock: socket.socket, address: str, series: int, number: int) -> None:
    """Send one ping."""
    sock.sendto(PING.pack(series, number, time.monotonic()), (address, PROBE_PORT))


def ping(order: PingOrder, series: int, nodes: int) -> dict[str, Pings]:
    """Ping all peers in turn, evenly spaced; returns, per peer, the round trips and the arrivals on the way back.

    Args:
        order: whom to ping, how often.
        series: the number of this series of pings.
        nodes: the size of the cluster.
    """
    # In a thread of its own: its precedence ends with it.
    with datagram_socket() as sock, ThreadPoolExecutor(1) as thread:
        late_s, echoes = thread.submit(_ping_all, sock, order, series, nodes).result()
    return {
        name: Pings(
            series=series,
            sent=order.pings,
            late_ms=round(1000 * late_s[name] / order.pings, 3),
            rtt_ms=[round((echo.returned - echo.sent) * 1000, 3) for echo in echoes[address]],
            back=_summarise_ways_back(echoes[address]),
        )
        for name, address in order.peers.items()
    }


def _ping_all(
    sock: socket.socket, order: PingOrder, series: int, nodes: int
) -> tuple[dict[str, float], dict[str, list[Echo]]]:
    """Send all pings, and read what comes back: on time, even if other programs want the processors.

    Returns:
        By peer, the total lateness of its pings in s; by address, the echoes in order of arrival.
    """
    reservation = reserve_for_pings(nodes)
    late_s = dict.fromkeys(order.peers, 0.0)
    echoes: dict[str, list[Echo]] = {address: [] for address in order.peers.values()}
    start = time.monotonic()
    for number in range(order.pings):
        for place, (name, address) in enumerate(order.peers.items()):
            turns = number + place / len(order.peers)
            due = start + turns * order.interval_ms / 1000
            _read_until(due, sock, echoes, series, reservation)
            late_s[name] += time.monotonic() - due
            send_ping(sock, address, series, number)
    _read_until(time.monotonic() + order.wait_ms / 1000, sock, echoes, series, reservation)
    return late_s, echoes


def _summarise_ways_back(echoes: list[Echo]) -> Arrivals:
    # Numbered as they left the peer: pings that overtook or were lost on the way there are no fault of the way back.
    back = [(echo.place, echo.arrived, echo.returned - echo.arrived) for echo in echoes]
    return summarise_arrivals(back)


def _read_until(
    instant: float,
    sock: socket.socket,
    echoes: dict[str, list[Echo]],
    series: int,
    reservation: Reservation,
) -> None:
    """Read echoes until `instant`; if that has passed, all that have come."""
    # select waits to the microsecond; a socket's own timeout does not.
    while select.select([sock], [], [], max(0.0, instant - time.monotonic()))[0]:
        address, echo = read_echo(sock, series)
        reservation.look()
        if echo is not None and address in echoes:
            echoes[address].append(echo)


def read_echo(sock: socket.socket, series: int) -> tuple[str, Echo | None]:
    """Read the next datagram: its sender, and the echo; None if it is not of this series.

    A damaged datagram makes a socket readable, but then there is nothing to read: do not wait for it.
    """
    try:
        data, (address, _) = sock.recvfrom(64, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return "", None
    now = time.monotonic()
    if len(data) != ECHO.size:
        return address, None
    its_series, number, sent, arrived, place = ECHO.unpack(data)
    return address, Echo(number, sent, arrived, place, now) if its_series == series else None


def summarise_arrivals(log: list[Arrival]) -> Arrivals:
    """Summarise what arrived of one series, from its log in order of arrival."""
    numbers = [number for number, _, _ in log]
    there = sorted(set(numbers))
    overtook = overtakers([sent for _, sent, _ in log])
    firsts: dict[int, tuple[float, float]] = {}
    for (number, sent, one_way), ahead in zip(log, overtook, strict=True):
        if not ahead:
            firsts.setdefault(number, (sent, one_way))
    first = min((sent for sent, _ in firsts.values()), default=0.0)
    return Arrivals(
        arrived=len(there),
        twice=len(numbers) - len(there),
        gaps=sum(after > before + 1 for before, after in itertools.pairwise([-1, *there])),
        reordered=sum(overtook),
        sent_ms=[round((sent - first) * 1000, 3) for sent, _ in firsts.values()],
        one_way_ms=[round(one_way * 1000, 3) for _, one_way in firsts.values()],
    )


def overtakers(sent: list[float]) -> list[bool]:
    """Return, for times of sending in order of arrival, whether a ping overtook one sent at least APART_S before it."""
    earliest, result = math.inf, []
    for moment in reversed(sent):
        result.append(moment - earliest >= APART_S)
        earliest = min(earliest, moment)
    return result[::-1]
