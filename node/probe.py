"""Measures the links of this node: round trips, loss, jitter and TCP goodput, each from one node to one peer.

    python3 -m node.probe ADDRESS        # ADDRESS: this node's own, on the data network

Runs on every node at once while `cluster.verify` measures; it answers the peers' probes, and reads orders,
one JSON object a line:

    {"do": "ping", "peers": {"node2": "10.77.0.12"}, "count": 100, "interval_ms": 10, "wait_ms": 500}
    {"do": "arrivals", "series": {"node1": ["10.77.0.11", 3]}}
    {"do": "send", "peer": "10.77.0.12", "startup_s": 2.0, "window_s": 1.0}

and answers each with one line. It ends with its standard input, at once.

Pings are UDP datagrams that the peer sends back with the time at which they arrived; the peer also keeps a log
of what arrived, for whoever asks it on its standard input, so that loss and jitter are known for each direction by
itself, and of a link that carries nothing, too. One
stream of pings measures both directions of a pair: a second one, from the other end, would meet the first one's
echoes on the same link, and on a link with jitter that keeps the order a packet that follows closely waits for
the one before it. Goodput is what the receiver's program reads in the last `window_s` seconds, once the
connection has had `startup_s` to fill the link. No nanosecond here is worth a C extension: a round trip through
two Python processes costs some 0.1 ms, which `ping` of this node's own address measures.
"""

import itertools
import json
import os
import queue
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

PORT = 29400
PING = struct.Struct("!IId")  # ping series, number in it, time sent
ARRIVED = struct.Struct("!d")  # what the peer adds: the time at which it arrived there
ECHO = struct.Struct("!IIdd")  # both together
CHUNK_BYTES = 1 << 18
SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond net.core.rmem_max, with NET_ADMIN
RECEIVE_BUFFER_BYTES = 4 << 20
GIVE_UP_S = 20.0  # without a sign of life, and besides twice the time that a link takes to fill

Arrivals = dict[tuple[str, int], list[tuple[int, float]]]
"""(sender's address, series) -> [(number, one-way time in s, of two clocks)]."""


class Echo(NamedTuple):
    """A ping that came back, with its times: ours, the peer's, ours."""

    number: int
    sent: float
    arrived: float
    returned: float


def main() -> int:
    """Serve the peers, obey orders until standard input ends."""
    address = sys.argv[1]
    arrivals: Arrivals = {}
    echo = _datagram_socket()
    try:
        echo.bind((address, PORT))
        listener = socket.create_server((address, PORT), backlog=128)
    except OSError as error:
        print(json.dumps({"error": f"is another measurement under way? {error}"}), flush=True)
        return 1
    threading.Thread(target=_echo, args=(echo, arrivals), daemon=True).start()
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    print(json.dumps({"ready": address}), flush=True)
    for number in itertools.count(1):
        print(json.dumps(_obey(json.loads(orders.get()), number, arrivals)), flush=True)
    return 0


def _read_orders(orders: "queue.Queue[str]") -> None:
    """Whoever ordered may go while an order is being carried out: then nobody wants its result."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _obey(order: dict[str, Any], number: int, arrivals: Arrivals) -> dict[str, Any]:
    match order["do"]:
        case "ping":
            return ping(order, number)
        case "arrivals":
            return {
                name: summarise_arrivals(arrivals.get((address, series), []))
                for name, (address, series) in order["series"].items()
            }
        case "send":
            return send(order)
    return {"error": f"no such order: {order['do']}"}


def ping(order: dict[str, Any], series: int) -> dict[str, Any]:
    """Ping all peers in turn; per peer the round trips, and what came back of what had arrived there.

    Returns:
        peer -> {"series", "sent", "rtt_ms": [...], "back": as `summarise_arrivals` gives it}.
    """
    peers: dict[str, str] = order["peers"]
    echoes: dict[str, list[Echo]] = {address: [] for address in peers.values()}
    sock = _datagram_socket()
    over = threading.Event()
    reader = threading.Thread(target=_read_echoes, args=(sock, echoes, series, over), daemon=True)
    reader.start()
    start = time.monotonic()
    for number in range(order["count"]):
        _sleep_until(start + number * order["interval_ms"] / 1000)
        for address in peers.values():
            sock.sendto(PING.pack(series, number, time.monotonic()), (address, PORT))
    time.sleep(order["wait_ms"] / 1000)
    over.set()
    reader.join()
    sock.close()
    return {
        name: {"series": series, "sent": order["count"], **_summarise_echoes(echoes[address])}
        for name, address in peers.items()
    }


def _summarise_echoes(echoes: list[Echo]) -> dict[str, Any]:
    # In the order in which they left the peer: what was overtaken on the way there is no fault of the way back.
    left = sorted(echo.arrived for echo in echoes)
    place = {arrived: number for number, arrived in enumerate(left)}
    back = [(place[echo.arrived], echo.returned - echo.arrived) for echo in echoes]
    return {
        "rtt_ms": [round((echo.returned - echo.sent) * 1000, 3) for echo in echoes],
        "back": summarise_arrivals(back),
    }


def send(order: dict[str, Any]) -> dict[str, Any]:
    """Send to one peer until it has measured enough; its answer. What does not get through has no goodput."""
    try:
        return _send(order)
    except OSError as error:
        return {"goodput_mbyte_s": 0.0, "note": str(error)}


def _send(order: dict[str, Any]) -> dict[str, Any]:
    request = {"startup_s": order["startup_s"], "window_s": order["window_s"]}
    give_up_s = GIVE_UP_S + 2 * order["startup_s"]
    block = bytes(CHUNK_BYTES)
    with socket.create_connection((order["peer"], PORT), timeout=give_up_s) as sock:
        sock.sendall(json.dumps(request).encode() + b"\n")
        sock.setblocking(False)
        while True:
            readable, writable, _ = select.select([sock], [sock], [], give_up_s)
            if readable or not writable:
                break
            sock.send(block)
        sock.settimeout(give_up_s)
        answer: dict[str, Any] = json.loads(
            sock.recv(4096) or b'{"goodput_mbyte_s": 0.0, "note": "the peer closed the connection"}'
        )
        # What still waits in our buffer is of no use to anybody: end at once, by a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return answer


def _datagram_socket() -> socket.socket:
    """With room for a busy moment: what is dropped for want of it would look like loss on the link."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    return sock


def _sleep_until(instant: float) -> None:
    left = instant - time.monotonic()
    if left > 0:
        time.sleep(left)


def _read_echoes(
    sock: socket.socket, echoes: dict[str, list[Echo]], series: int, over: threading.Event
) -> None:
    sock.settimeout(0.05)
    while not over.is_set():
        try:
            data, (address, _) = sock.recvfrom(64)
        except TimeoutError:
            continue
        now = time.monotonic()
        if len(data) != ECHO.size:
            continue
        its_series, number, sent, arrived = ECHO.unpack(data)
        if its_series == series and address in echoes:
            echoes[address].append(Echo(number, sent, arrived, now))


def _echo(sock: socket.socket, arrivals: Arrivals) -> None:
    while True:
        data, source = sock.recvfrom(64)
        now = time.monotonic()
        if len(data) != PING.size:
            continue
        sock.sendto(data + ARRIVED.pack(now), source)
        series, number, sent = PING.unpack(data)
        arrivals.setdefault((source[0], series), []).append((number, now - sent))


def _serve(listener: socket.socket) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_answer, args=(sock,), daemon=True).start()


def _answer(sock: socket.socket) -> None:
    with sock:
        sock.settimeout(GIVE_UP_S)
        request = _read_line(sock)
        answer = _sink(sock, request["startup_s"], request["window_s"])
        sock.sendall(json.dumps(answer).encode())
        # To close with data unread would reset the connection, and might take the answer with it.
        sock.shutdown(socket.SHUT_WR)
        rest = bytearray(CHUNK_BYTES)
        with suppress(OSError):
            while sock.recv_into(rest):
                pass


def _read_line(sock: socket.socket) -> dict[str, Any]:
    """The request; byte by byte, for what follows it is not ours to take here."""
    line = b""
    while not line.endswith(b"\n"):
        line += sock.recv(1) or b"\n"
    request: dict[str, Any] = json.loads(line)
    return request


def _sink(sock: socket.socket, startup_s: float, window_s: float) -> dict[str, float]:
    """Read for `startup_s`, then count for `window_s`."""
    buffer = bytearray(CHUNK_BYTES)
    first = time.monotonic()
    opens = first + startup_s
    received = 0
    while True:
        count = sock.recv_into(buffer)
        now = time.monotonic()
        if count == 0:
            return {"goodput_mbyte_s": 0.0}
        if now < opens:
            first, received = now, 0
            continue
        received += count
        if now >= opens + window_s:
            return {"goodput_mbyte_s": received / (now - first) / 1e6}


def summarise_arrivals(log: list[tuple[int, float]]) -> dict[str, Any]:
    """What arrived of one series: {"arrived", "reordered", "one_way_ms": [...]}.

    One-way times have an unknown offset where the nodes' clocks differ.
    """
    numbers = [number for number, _ in log]
    late = sum(1 for before, after in zip(numbers, numbers[1:], strict=False) if after < before)
    return {
        "arrived": len(set(numbers)),
        "reordered": late,
        "one_way_ms": [round(one_way * 1000, 3) for _, one_way in log],
    }


if __name__ == "__main__":
    sys.exit(main())
