"""Receives many netlink messages in one system call: recvmmsg(2), which Python lacks.

One call per packet is a third of the time that Python takes for it, so a few C structures pay off.
"""

import ctypes
import socket
from collections.abc import Iterable

from node.wire.nfqueue.nfnetlink import FRONT, FRONT_BYTES

BURST = 128
"""Packets received before looking again at what is due: some 0.3 ms of work."""

Front = tuple[bytes, int, int, int, bytes, int, int]


class _Vector(ctypes.Structure):  # struct iovec
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):  # struct msghdr
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):  # struct mmsghdr
    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


class Inbox:
    """The fronts of messages that wait on a socket: enough of an announcement to know the packet and its time.

    Args:
        netlink: the socket. It must outlive this object.
    """

    def __init__(self, netlink: socket.socket) -> None:
        self._socket = netlink.fileno()
        self._fronts = bytearray(BURST * FRONT_BYTES)
        self._view = memoryview(self._fronts)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._fronts))
        places = range(base, base + len(self._fronts), FRONT_BYTES)
        self._vectors = (_Vector * BURST)(*(_Vector(place, FRONT_BYTES) for place in places))
        self._messages = (_Message * BURST)()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.header.vectors, message.header.vector_count = ctypes.pointer(vector), 1
        self._receive = ctypes.PyDLL(None).recvmmsg  # keeps the GIL: no other thread needs it

    def take(self) -> tuple[int, Iterable[Front]]:
        """Return the number of messages, up to BURST, and their fronts (see FRONT), valid until the next call."""
        count = self._receive(self._socket, self._messages, BURST, socket.MSG_DONTWAIT, None)
        count = max(count, 0)  # -1 if nothing waits
        return count, FRONT.iter_unpack(self._view[: count * FRONT_BYTES])
