"""The probe process: executes orders, and answers the peers' probes.

    python3 -m node.probe ADDRESS        # ADDRESS: this node's own, on the data network

Runs on every node at once while `cluster.verify` measures; it reads orders, one JSON object a line:

    {"do": "ping", "peers": {"node2": "10.77.0.12"}, "count": 100, "interval_ms": 10, "wait_ms": 500}
    {"do": "arrivals", "series": {"node1": ["10.77.0.11", 3]}}
    {"do": "send", "peer": "10.77.0.12", "startup_s": 2.0, "window_s": 1.0, "ping_interval_ms": 20}
    {"do": "flood", "sends": [{"at_s": 0.5, "address": "10.77.0.12", "port": 29401, "at_once": 8, "seconds": 0.3}],
     "counts": {"node2": {"port": 29402, "skip_s": 0.1, "until_s": null}}, "seconds": 1.5}

and answers each with one line: docs/formats.md. It ends with its standard input, at once. No nanosecond here
is worth a C extension: a round trip through two Python processes costs some 0.1 ms, which a ping of one's own address
measures.
"""

import itertools
import json
import os
import queue
import socket
import sys
import threading
from typing import Any

from node.probe.datagrams import Arrivals, answer_pings, bound_socket
from node.probe.flood import flood
from node.probe.goodput import send, serve
from node.probe.pings import ping, summarise_arrivals
from protocol.ports import PROBE_PORT


def main() -> int:
    """Serve the peers, obey orders until standard input ends."""
    address = sys.argv[1]
    arrivals: Arrivals = {}
    try:
        datagrams = bound_socket(address)
        listener = socket.create_server((address, PROBE_PORT), backlog=128)
    except OSError as error:
        print(json.dumps({"error": f"is another measurement under way? {error}"}), flush=True)
        return 1
    orders: queue.Queue[str] = queue.Queue()
    _in_background(answer_pings, datagrams, arrivals)
    _in_background(serve, listener)
    _in_background(_read_orders, orders)
    print(json.dumps({"ready": address}), flush=True)
    for number in itertools.count(1):
        answer = _obey(json.loads(orders.get()), number, arrivals, address)
        print(json.dumps(answer), flush=True)
    return 0


def _in_background(action: Any, *args: object) -> None:  # noqa: ANN401 - any function
    threading.Thread(target=action, args=args, daemon=True).start()


def _read_orders(orders: "queue.Queue[str]") -> None:
    """Whoever ordered may go while an order is being carried out: then nobody wants its result."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _obey(
    order: dict[str, Any], number: int, arrivals: Arrivals, own_address: str
) -> dict[str, Any]:
    match order["do"]:
        case "ping":
            return ping(order, number)
        case "arrivals":
            return {
                name: summarise_arrivals(arrivals.get((address, series), []))
                for name, (address, series) in order["series"].items()
            }
        case "send":
            return send(order, number)
        case "flood":
            return flood(order, own_address)
    return {"error": f"no such order: {order['do']}"}


if __name__ == "__main__":
    sys.exit(main())
