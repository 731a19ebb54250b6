"""Asks the kernel for the counters of queues and classes, by rtnetlink.

`tc` prints the same, but starting it twice a second would cost more than everything else that telemetry does. Numbers
and layouts: linux/rtnetlink.h, linux/pkt_sched.h, linux/gen_stats.h (struct tc_stats).
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETLINK_ROUTE = 0
QDISC, CLASS = 38, 42  # RTM_GETQDISC, RTM_GETTCLASS; a reply's type is two less
REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
ERROR, DONE = 2, 3
ATTR_STATS = 3
HEAD = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")
ATTRIBUTE = struct.Struct("=HH")
STATS = struct.Struct("=QIIIIIII")
BUFFER_BYTES = 1 << 17
TIMEOUT_S = 5.0


class Counters(NamedTuple):
    """The kernel's counters of a queue or a class."""

    sent_bytes: int
    dropped_packets: int
    backlog_bytes: int


def open_socket() -> socket.socket:
    """Open a socket for requests."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)
    netlink.bind((0, 0))
    netlink.settimeout(TIMEOUT_S)
    return netlink


def dump(netlink: socket.socket, kind: int, device: int) -> dict[int, Counters]:
    """Return the counters of all queues (QDISC) or classes (CLASS) of a device, by handle.

    Args:
        netlink: from `open_socket`.
        kind: QDISC or CLASS.
        device: its index.

    Raises:
        OSError: the kernel refused, or does not answer.
    """
    body = TCMSG.pack(socket.AF_UNSPEC, device, 0, 0, 0)
    netlink.send(HEAD.pack(HEAD.size + len(body), kind, REQUEST_DUMP, 1, 0) + body)
    found: dict[int, Counters] = {}
    while True:
        for answer, message in _messages(netlink.recv(BUFFER_BYTES)):
            if answer == DONE:
                return found
            if answer == ERROR:
                raise OSError(-struct.unpack_from("=i", message)[0], "tc counters")
            if answer == kind - 2:
                _, of_device, handle, _, _ = TCMSG.unpack_from(message)
                if of_device == device:
                    found[handle] = _counters(message)


def _messages(data: bytes) -> Iterator[tuple[int, memoryview]]:
    place, view = 0, memoryview(data)
    while place + HEAD.size <= len(data):
        length, kind, *_ = HEAD.unpack_from(data, place)
        yield kind, view[place + HEAD.size : place + length]
        place += (max(length, HEAD.size) + 3) & ~3


def _counters(message: memoryview) -> Counters:
    place = TCMSG.size
    while place + ATTRIBUTE.size <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, place)
        if kind == ATTR_STATS:
            sent, _, dropped, _, _, _, _, backlog = STATS.unpack_from(message, place + 4)
            return Counters(sent, dropped, backlog)
        place += (max(length, ATTRIBUTE.size) + 3) & ~3
    return Counters(0, 0, 0)
