"""What a link carries of datagrams, which nobody tells how fast they may be sent: its rate, whatever TCP makes of it.

The sender is slowed down by its own node alone: a socket may have only so much in the queue before the link. So the
link is always busy, and next to nothing is dropped that the link is not asked to lose. Many datagrams leave in one call
(UDP_SEGMENT), and nobody reads them where they arrive: the kernel drops them there, and counts them. So a slow machine
can tell fast links.
"""

import socket
import threading
import time
from pathlib import Path
from typing import Any

from node.probe.datagrams import PORT

FLOOD_PORT = PORT + 1
DATAGRAM_BYTES = 1472  # with UDP's and IPv4's headers a full packet at MTU 1500
SOL_UDP, UDP_SEGMENT = 17, 103  # linux/udp.h, since kernel 4.18
COUNTERS = Path("/proc/net/snmp")
SAMPLE_S = 0.05


def flood(order: dict[str, Any]) -> dict[str, Any]:
    """Send to all these peers at once, as fast as the links take it. Returns how long it took."""
    started = time.monotonic()
    deadline = started + order["seconds"]
    senders = [
        threading.Thread(target=_send_until, args=(peer["address"], peer["at_once"], deadline))
        for peer in order["peers"].values()
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return {"seconds": time.monotonic() - started}


def _send_until(address: str, at_once: int, deadline: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        sock.connect((address, FLOOD_PORT))
        block = bytes(DATAGRAM_BYTES * _segments(sock, at_once))
        while time.monotonic() < deadline:
            try:
                sock.send(block)
            except OSError:  # no room yet
                continue


def _segments(sock: socket.socket, at_once: int) -> int:
    """How many datagrams one call sends."""
    if at_once == 1:
        return 1
    try:
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, DATAGRAM_BYTES)
        sock.send(bytes(DATAGRAM_BYTES * at_once))
    except OSError:  # an old kernel, or a device that cannot
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
        return 1
    return at_once


class FloodGauge:
    """Counts the datagrams that arrive, between `start` and `read`."""

    def __init__(self, address: str) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1
        )  # full at once: then they count as dropped
        self._sock.bind((address, FLOOD_PORT))
        self._samples: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> dict[str, Any]:
        """Begin to count."""
        self._samples, self._over = [], threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return {}

    def read(self, skip_s: float) -> dict[str, Any]:
        """End it; as `summarise_flood`."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        return summarise_flood(self._samples, skip_s)

    def _sample(self) -> None:
        while True:
            self._samples.append((time.monotonic(), dropped_datagrams(COUNTERS.read_text())))
            if self._over.wait(SAMPLE_S):
                return


def dropped_datagrams(counters: str) -> int:
    """What the kernel has dropped for want of room in a socket, from the text of /proc/net/snmp."""
    names, values = (line.split() for line in counters.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def summarise_flood(samples: list[tuple[float, int]], skip_s: float) -> dict[str, Any]:
    """{"datagrams", "seconds"}: of a time in which they came without a pause, `skip_s` after the first.

    Args:
        samples: (time in s, datagrams until then).
        skip_s: what does not count, from the first one on.
    """
    came = [
        now
        for (_, before), (now, after) in zip(samples, samples[1:], strict=False)
        if after > before
    ]
    if not came:
        return {"datagrams": 0, "seconds": 0.0}
    # In the last sample that counted something it may have ended; in the one before it had not.
    busy = [sample for sample in samples if came[0] + skip_s <= sample[0] < came[-1]]
    if len(busy) < 2:
        return {"datagrams": 0, "seconds": 0.0}
    (first_s, first), (last_s, last) = busy[0], busy[-1]
    return {"datagrams": last - first, "seconds": last_s - first_s}
