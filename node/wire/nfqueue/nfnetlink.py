"""Messages of nfnetlink_queue, the kernel's interface to packets that wait for a verdict.

Numbers and layouts: linux/netfilter/nfnetlink_queue.h.
"""

import socket
import struct
from pathlib import Path
from typing import NamedTuple

NETLINK_NETFILTER, SOL_NETLINK, NETLINK_NO_ENOBUFS, SO_RCVBUFFORCE = 12, 270, 5, 33
SO_TIMESTAMPNS = 35
RECEIVE_BUFFER = 64 << 20
"""Room for about 80,000 announced packets: 0.4 s at the rate that keeps a core fully busy."""

NFNL_SUBSYS_QUEUE, NLM_F_REQUEST = 3, 1
MSG_PACKET, MSG_VERDICT, MSG_CONFIG, MSG_VERDICT_BATCH = range(4)
ATTR_VERDICT, ATTR_STAMP, ATTR_CONTENT, ATTR_SIZE = 2, 4, 10, 13
CFG_COMMAND, CFG_PARAMS, CFG_MAX_LENGTH, CFG_MASK, CFG_FLAGS = range(1, 6)
COMMAND_BIND, COMMAND_UNBIND = 1, 2
COPY_META, COPY_PACKET = 1, 2
META, SIZE, WHOLE = 0, 1, 0xFFFF
"""How many bytes of a packet the kernel copies: none, one (and with it the size of the packet), or all."""
FLAG_GSO = 4
DROP, ACCEPT = 0, 1

STATUS_FILE = Path("/proc/net/netfilter/nfnetlink_queue")
PACKET_HEAD = struct.Struct(">4xH12xH4xI")
"""The message that announces a packet: its type (in host byte order), the queue's number, the packet's number."""
STAMP = struct.Struct(">QQ")
"""When a packet reached its device, by the wall clock: seconds, microseconds."""
FRONT, FRONT_BYTES = struct.Struct(">4sH12xH4xI28x4sQQ52x"), 128
"""The front of an announcement: its length as raw bytes, its type, the numbers of the queue and the packet and, if a
timestamp follows the packet's number, device and hardware address, the header of that attribute and the timestamp."""
STAMPED_LENGTH, STAMP_HEAD = struct.pack("=I", 84), struct.pack("=HH", 20, 4)
"""Their values in such an announcement. If it has anything else in it (a mark, say), the timestamp is not looked
for."""
ATTRIBUTES = 20
"""Offset of the attributes in an announcement."""
PACKET_TYPE = int.from_bytes(struct.pack("=H", NFNL_SUBSYS_QUEUE << 8 | MSG_PACKET), "big")
"""The type that announces a packet, as PACKET_HEAD reads it."""


class PacketVerdict(NamedTuple):
    """The verdict on all waiting packets of a queue, up to and including one."""

    what: int
    """DROP or ACCEPT."""
    up_to: int
    """The number of the last packet."""
    content: bytes = b""
    """What is sent in place of this packet; if not empty, the verdict is on this packet alone."""
    copy: bytes = b""
    """What is sent in addition."""


class Announcement(NamedTuple):
    """What the kernel says of a packet besides its number."""

    arrived: float | None
    """When it reached its device, by the wall clock; None if the kernel does not tell."""
    size: int
    """Size of the packet in bytes, IP header included."""
    content: bytes


class QueueStatus(NamedTuple):
    """What the kernel says of one queue."""

    port: int
    """The netlink address of the socket that serves it."""
    waiting: int
    """Packets that it holds."""
    dropped_full: int
    """Packets dropped because the queue was full."""
    dropped_unread: int
    """Packets dropped because the socket's buffer was full."""
    packets: int
    """All packets since a process began to serve it."""


def queue_status() -> dict[int, QueueStatus]:
    """Return the status of all queues of this network namespace that are served, by number."""
    if not STATUS_FILE.exists():  # no nfnetlink_queue in this kernel
        return {}
    rows = [[int(word) for word in line.split()] for line in STATUS_FILE.read_text().splitlines()]
    return {row[0]: QueueStatus(row[1], row[2], row[5], row[6], row[7]) for row in rows}


def open_socket() -> socket.socket:
    """Open a socket for all queues that reports no overruns: packets are lost then, and the kernel counts them."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.bind((0, 0))
    netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    netlink.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
    netlink.setblocking(False)
    return netlink


def stamp_arrivals() -> socket.socket:
    """Make the kernel timestamp every packet that reaches a device, as long as this socket is open.

    Without timestamps a packet counts as arrived only when the daemon hears of it: 0.1 ms later on a quiet machine.
    """
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return asking


def bind_message(queue: int) -> bytes:
    """Return the message that takes over a queue."""
    return _config(queue, _attribute(CFG_COMMAND, struct.pack(">BxH", COMMAND_BIND, 0)))


def copy_messages(queue: int, copied: int) -> list[bytes]:
    """Return messages that set how much of each packet is copied (META, SIZE or WHOLE); packets stay in the kernel.

    Super-packets stay whole, unless more than their arrival time is needed: then the kernel cuts them, and completes
    their checksums.

    The kernel could let packets through that it cannot announce (FAIL_OPEN). That is off: such a packet would arrive
    too early, which would look like reordering. A packet that meets a full buffer is dropped.
    """
    mode = COPY_META if copied == META else COPY_PACKET
    flags = struct.pack(">I", FLAG_GSO if copied == META else 0)
    mask = struct.pack(">I", FLAG_GSO)
    return [
        _config(queue, _attribute(CFG_PARAMS, struct.pack(">IB", copied, mode))),
        _config(queue, _attribute(CFG_FLAGS, flags) + _attribute(CFG_MASK, mask)),
    ]


def max_length_message(queue: int, packets: int) -> bytes:
    """Return the message that sets how many packets a queue may hold; packets that meet a full queue are dropped."""
    return _config(queue, _attribute(CFG_MAX_LENGTH, struct.pack(">I", packets)))


def unbind_message(queue: int) -> bytes:
    """Return the message that gives a queue back; packets that wait in it are dropped."""
    return _config(queue, _attribute(CFG_COMMAND, struct.pack(">BxH", COMMAND_UNBIND, 0)))


def verdict_message(queue: int, verdict: PacketVerdict) -> bytes:
    """Return the message that releases or drops a queue's packets up to one, or releases one with other content."""
    if verdict.content:
        return single_verdict_message(queue, verdict.up_to, verdict.content)
    payload = _attribute(ATTR_VERDICT, struct.pack(">II", verdict.what, verdict.up_to))
    return _message(MSG_VERDICT_BATCH, queue, payload)


def single_verdict_message(queue: int, packet: int, content: bytes = b"") -> bytes:
    """Return the message that releases one packet, anywhere in the queue, as it came or with other content."""
    payload = _attribute(ATTR_VERDICT, struct.pack(">II", ACCEPT, packet))
    payload += _attribute(ATTR_CONTENT, content) if content else b""
    return _message(MSG_VERDICT, queue, payload)


def read_announcement(message: memoryview) -> Announcement:
    """Parse the arrival time, size and content of a packet from the message that announces it."""
    found, place = {}, ATTRIBUTES
    while place + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, place)
        found[kind] = message[place + 4 : place + length]
        place += (length + 3) & ~3
    content = bytes(found.get(ATTR_CONTENT, b""))
    size = int.from_bytes(found[ATTR_SIZE], "big") if ATTR_SIZE in found else len(content)
    arrived = None
    if ATTR_STAMP in found:
        seconds, microseconds = STAMP.unpack(found[ATTR_STAMP])
        arrived = seconds + microseconds / 1e6
    return Announcement(arrived, size, content)


def _config(queue: int, attributes: bytes) -> bytes:
    return _message(MSG_CONFIG, queue, attributes)


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def _message(kind: int, queue: int, attributes: bytes) -> bytes:
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, queue) + attributes
    head = struct.pack("=IHHII", 16 + len(body), NFNL_SUBSYS_QUEUE << 8 | kind, NLM_F_REQUEST, 0, 0)
    return head + body
