"""What a link carries of datagrams, which nobody tells how fast they may be sent: its rate, whatever TCP makes of it.

The sender is slowed down by its own node alone: a socket may have only so much in the queue before the link. So the
link is always busy, and nothing is dropped that the link is not asked to lose.
"""

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from node.probe.datagrams import FLOOD, FLOOD_BYTES, PORT


def flood(order: dict[str, Any], series: int) -> dict[str, Any]:
    """Send to all these peers at once, as fast as the links take it. Returns the series and how long it took."""
    started = time.monotonic()
    deadline = started + order["seconds"]
    senders = [
        threading.Thread(target=_send_until, args=(address, series, deadline))
        for address in order["peers"].values()
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return {"series": series, "seconds": time.monotonic() - started}


def _send_until(address: str, series: int, deadline: float) -> None:
    datagram = FLOOD.pack(series).ljust(FLOOD_BYTES, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        sock.connect((address, PORT))
        while time.monotonic() < deadline:
            try:
                sock.send(datagram)
            except OSError:  # no room yet, or none at the other end
                continue


def summarise_flood(times_s: Sequence[float] | None, skip_s: float) -> dict[str, float]:
    """{"datagrams", "seconds"}: how many came, in how long, once the first `skip_s` seconds were over."""
    if not times_s:
        return {"datagrams": 0, "seconds": 0.0}
    kept = [instant for instant in times_s if instant >= times_s[0] + skip_s]
    if len(kept) < 2:
        return {"datagrams": 0, "seconds": 0.0}
    return {"datagrams": len(kept) - 1, "seconds": kept[-1] - kept[0]}
