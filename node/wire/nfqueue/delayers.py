"""Divides the queues of a node between the fast path in C and the path in Python."""

import select
import socket
import zlib
from collections.abc import Collection, Mapping

from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.delayer import Delayer
from node.wire.nfqueue.fast_path import FastPath, load_library
from node.wire.nfqueue.nfnetlink import open_socket


class Delayers:
    """Both of them, each on a socket of its own; what one does not hold the other does."""

    def __init__(self) -> None:
        self._netlink = open_socket()
        self._delayer = Delayer(self._netlink)
        library = load_library()
        self._fast_path = FastPath(library, open_socket()) if library else None
        self._queues: dict[int, Behaviour] = {}
        self._downlink: tuple[float, float] | None = None

    def configure(
        self, queues: Mapping[int, Behaviour], downlink: tuple[float, float] | None
    ) -> None:
        """Serve these queues and no others; those that stay keep what they hold, unless they change hands.

        Args:
            queues: by number.
            downlink: bytes a second, and the longest wait in seconds.

        Raises:
            QueueTakenError: another program holds one of them.
        """
        plain, others = self._divided(queues)
        self._delayer.keep(others)
        if self._fast_path:
            self._fast_path.configure(plain)
        self._delayer.configure(others, downlink)
        self._queues, self._downlink = dict(queues), downlink

    def change(self, queues: Mapping[int, Behaviour]) -> None:
        """Treat what comes in some of the queues by other rules from now on; the others are not touched.

        Raises:
            KeyError: there is no such queue.
        """
        plain, others = self._divided(queues)
        if self._fast_path:
            self._fast_path.change(plain)
        self._delayer.change(others)
        self._queues |= queues

    def checksum(self) -> str:
        """Of all that is done: the same as long as it is."""
        does = f"{sorted(self._queues.items())} {self._downlink}"
        return f"{zlib.crc32(does.encode()):08x}"

    def _divided(
        self, queues: Mapping[int, Behaviour]
    ) -> tuple[dict[int, Behaviour], dict[int, Behaviour]]:
        """Whose they are: the fast path's, and the other's."""
        plain = {n: one for n, one in queues.items() if self._fast_path and one.is_plain}
        return plain, {n: one for n, one in queues.items() if n not in plain}

    def run(self, listener: socket.socket) -> bool:
        """Do what is to do for a while, or until a client calls. Returns whether one does."""
        delayer = self._delayer
        was_busy = delayer.is_busy
        awaited = [listener] if was_busy else [listener, self._netlink]
        ready = self._wait(awaited, delayer.wait_s())
        if was_busy or self._netlink in ready:
            delayer.take_in()
        first_due = delayer.let_go()
        if first_due is not None and not ready and not was_busy:
            delayer.learn(first_due)
        return listener in ready

    def _wait(
        self, sockets: Collection[socket.socket], most_s: float | None
    ) -> list[socket.socket]:
        if self._fast_path:
            return self._fast_path.run(list(sockets), most_s)
        return select.select(sockets, [], [], most_s)[0]

    def lateness(self) -> tuple[int, float]:
        """How many packets went late, and by how many seconds the worst of them."""
        late, worst_s = self._fast_path.lateness() if self._fast_path else (0, 0.0)
        return late + self._delayer.late, max(worst_s, self._delayer.worst_late_s)

    def taken(self) -> dict[int, tuple[int, int]]:
        """By queue: how many packets have come, and how many of them chance has lost."""
        return (self._fast_path.taken() if self._fast_path else {}) | self._delayer.taken()
