"""Sends numbered UDP datagrams, several in one super-packet as TCP does, and says which ones were lost on the way.

Runs inside nodes, from standard input, as `python3 - receive PORT COUNT` on one and
`python3 - send HOST PORT COUNT SEGMENTS RATE` on another.
"""

import json
import socket
import struct
import sys
import time
from contextlib import suppress
from itertools import groupby

from node.probe.datagrams import SO_RCVBUFFORCE
from node.probe.flood import SOL_UDP, UDP_SEGMENT

PAYLOAD = 1472
BUFFER = 1 << 26
LAST = 0xFFFFFFFF
NUMBER = struct.Struct("!I")


def receive(port: int) -> list[int]:
    """Return the numbers that arrived, until the last datagram or 5 s without any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        sock.bind(("", port))
        print("ready", flush=True)
        sock.settimeout(30)
        data = bytearray(PAYLOAD)
        heard: list[int] = []
        while True:
            try:
                sock.recv_into(data)
            except TimeoutError:
                return heard
            (number,) = NUMBER.unpack_from(data)
            if number == LAST:
                return heard
            heard.append(number)
            if len(heard) == 1:
                sock.settimeout(5)


def send(host: str, port: int, count: int, segments: int, bytes_per_s: float) -> None:
    """Send `count` datagrams, `segments` at a time, at this rate; then the last one, several times."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, PAYLOAD)
        filler = bytes(PAYLOAD - NUMBER.size)
        started = time.monotonic()
        for first in range(0, count, segments):
            numbers = range(first, min(first + segments, count))
            time.sleep(max(0.0, started + first * PAYLOAD / bytes_per_s - time.monotonic()))
            sock.send(b"".join(NUMBER.pack(number) + filler for number in numbers))
        with suppress(ConnectionRefusedError):  # the receiver has heard it
            for _ in range(20):
                time.sleep(0.1)
                sock.send(NUMBER.pack(LAST) + filler)


def losses(count: int, heard: list[int]) -> dict[str, float]:
    """Return the share of datagrams that were lost, in percent, and the mean number lost in a row."""
    there = set(heard)
    rows = [len(list(row)) for lost, row in groupby(n not in there for n in range(count)) if lost]
    lost = count - len(there)
    return {"lost_pct": 100 * lost / count, "in_a_row": lost / max(1, len(rows))}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "receive":
        print(json.dumps(losses(int(words[1]), receive(int(words[0])))))
    else:
        send(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]))
