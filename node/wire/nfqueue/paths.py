"""Divides the queues of a node between the fast path in C and the path in Python."""

import select
import socket
import zlib
from collections.abc import Collection, Mapping

from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.fast_path import FastPath, load_library
from node.wire.nfqueue.nfnetlink import open_socket
from node.wire.nfqueue.python_path import PythonPath


class Paths:
    """Both paths, each on a socket of its own; each queue is held by one of them."""

    def __init__(self) -> None:
        self._netlink = open_socket()
        self._python_path = PythonPath(self._netlink)
        library = load_library()
        self._fast_path = FastPath(library, open_socket()) if library else None
        self._queues: dict[int, Behaviour] = {}
        self._downlink: tuple[float, float] | None = None

    def configure(
        self, queues: Mapping[int, Behaviour], downlink: tuple[float, float] | None
    ) -> None:
        """Serve these queues and no others; those that stay keep what they hold, unless they change paths.

        Args:
            queues: by number.
            downlink: bytes a second, and the longest wait in seconds.

        Raises:
            QueueTakenError: another program holds one of them.
        """
        plain, others = self._divided(queues)
        self._python_path.keep(others)
        if self._fast_path:
            self._fast_path.configure(plain)
        self._python_path.configure(others, downlink)
        self._queues, self._downlink = dict(queues), downlink

    def change(self, queues: Mapping[int, Behaviour]) -> None:
        """Apply other rules to new packets of some queues; the other queues are not touched.

        Raises:
            KeyError: there is no such queue.
        """
        plain, others = self._divided(queues)
        if self._fast_path:
            self._fast_path.change(plain)
        self._python_path.change(others)
        self._queues |= queues

    def checksum(self) -> str:
        """Return a checksum of everything that is done: equal as long as that is."""
        does = f"{sorted(self._queues.items())} {self._downlink}"
        return f"{zlib.crc32(does.encode()):08x}"

    def _divided(
        self, queues: Mapping[int, Behaviour]
    ) -> tuple[dict[int, Behaviour], dict[int, Behaviour]]:
        """Divide queues into those of the fast path and those of the other."""
        plain = {n: one for n, one in queues.items() if self._fast_path and one.is_plain}
        return plain, {n: one for n, one in queues.items() if n not in plain}

    def run(self, client: socket.socket, most_s: float | None) -> bool:
        """Do due work for a while, until a socket can be read or a time has passed. Returns whether it can be read."""
        path = self._python_path
        was_busy = path.is_busy
        awaited = [client] if was_busy else [client, self._netlink]
        waits_s = [one for one in (path.wait_s(), most_s) if one is not None]
        ready = self._wait(awaited, min(waits_s, default=None))
        if was_busy or self._netlink in ready:
            path.take_in()
        first_due = path.release_due()
        if first_due is not None and not ready and not was_busy:
            path.learn(first_due)
        return client in ready

    def _wait(
        self, sockets: Collection[socket.socket], most_s: float | None
    ) -> list[socket.socket]:
        if self._fast_path:
            return self._fast_path.run(list(sockets), most_s)
        return select.select(sockets, [], [], most_s)[0]

    def lateness(self) -> tuple[int, float]:
        """Return how many packets went late, and by how many seconds the worst of them."""
        late, worst_s = self._fast_path.lateness() if self._fast_path else (0, 0.0)
        return late + self._python_path.late, max(worst_s, self._python_path.worst_late_s)

    def taken(self) -> dict[int, tuple[int, int]]:
        """Return by queue how many packets arrived, and how many of them random loss dropped."""
        return (self._fast_path.taken() if self._fast_path else {}) | self._python_path.taken()
