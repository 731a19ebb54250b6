"""The probe process: executes orders, and answers the peers' probes.

    python3 -m node.probe ADDRESS NODES  # this node's own address on the data network; the size of the cluster

Runs on every node at once while `cluster.verify` measures; it reads orders, one JSON object a line, and answers each
with one line: protocol/probe.py. It ends as soon as its standard input ends. No nanosecond here is worth a C
extension: a round trip through two Python processes costs some 0.1 ms, which a ping of the node's own address
measures.
"""

import errno
import itertools
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterable

from node.base.scheduling import renice
from node.probe.burst import burst
from node.probe.datagrams import PingLog, answer_pings, bound_socket
from node.probe.flood import flood
from node.probe.goodput import send, serve
from node.probe.pings import ping, summarise_arrivals
from node.probe.timers import TimerGauge
from protocol.lines import parse_order
from protocol.link_report import Shown
from protocol.ports import PROBE_PORT
from protocol.probe import (
    ORDERS,
    ArrivalsOrder,
    BurstOrder,
    Failure,
    FloodOrder,
    PingOrder,
    ProbeReady,
    SendOrder,
    ShowOrder,
    TimersLate,
    TimersOrder,
)
from protocol.reader import FormatError, document

MOST_WORDS = 200
NICE = -10
"""Before everything else that runs in this node, except its wire."""


def main() -> int:
    """Serve the peers, and execute orders until standard input ends."""
    address, nodes = sys.argv[1], int(sys.argv[2])
    renice(NICE)
    log: PingLog = {}
    gauge = TimerGauge(nodes)
    try:
        datagrams = bound_socket(address)
        listener = socket.create_server((address, PROBE_PORT), backlog=128)
    except OSError as error:
        _say(Failure(f"is another measurement under way? {error}"))
        return 1
    orders: queue.Queue[str] = queue.Queue()
    _in_background(answer_pings, datagrams, log, nodes)
    _in_background(serve, listener)
    _in_background(gauge.run)
    _in_background(_read_orders, orders)
    _say(ProbeReady(address))
    for number in itertools.count(1):
        try:
            _say(_obey(orders.get(), number, log, gauge, address, nodes))
        except (FormatError, OSError) as error:
            _say(Failure(str(error)[:MOST_WORDS]))
    return 0


def _say(answer: object) -> None:
    print(json.dumps(document(answer)), flush=True)


def _in_background(action: Callable[..., None], *args: object) -> None:
    threading.Thread(target=action, args=args, daemon=True).start()


def _read_orders(orders: "queue.Queue[str]") -> None:
    """Queue orders; exit when the client has gone, even during an order: then nobody wants its result."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _obey(
    line: str, number: int, log: PingLog, gauge: TimerGauge, own_address: str, nodes: int
) -> object:
    """Execute one order. Returns the reply.

    Raises:
        FormatError: it is not an order.
        OSError: the operating system refuses it.
    """
    match parse_order(ORDERS, line):
        case PingOrder() as order:
            return ping(order, number, nodes)
        case ArrivalsOrder() as order:
            return {
                name: summarise_arrivals(log.get(series, []))
                for name, series in order.series.items()
            }
        case SendOrder() as order:
            return send(order, number)
        case FloodOrder() as order:
            _require_free(own_address, [count.port for count in order.counts.values()])
            return flood(order, own_address)
        case BurstOrder() as order:
            _require_free(own_address, order.counts.values())
            return burst(order, own_address)
        case TimersOrder():
            return TimersLate(gauge.take_late_ms())
        case ShowOrder():
            return _show()


def _show() -> Shown:
    """Return what is in force on this node.

    Raises:
        OSError: tc cannot tell.
    """
    # Imported here: most probes are never asked, and this takes longer than all else that they import.
    from node.wire.apply import show  # noqa: PLC0415
    from node.wire.commands import WireError  # noqa: PLC0415

    try:
        return show()
    except WireError as error:
        raise OSError(str(error)) from error


def _require_free(address: str, ports: Iterable[int]) -> None:
    """Refuse an order whose UDP ports another program has: the operating system's own error does not name them."""
    if taken := ", ".join(str(port) for port in ports if _is_taken(address, port)):
        raise OSError(
            f"another program on this node has UDP port {taken} of {address}, which the measurement needs: end it"
        )


def _is_taken(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


if __name__ == "__main__":
    sys.exit(main())
