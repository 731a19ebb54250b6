"""Detects nodes that no longer answer, by a keepalive request every few seconds on each connection.

TCP does not detect them: the kernel of a paused node, or Docker's port proxy, acknowledges data that sshd never reads.
So sshd itself is asked. Any data from a node counts as an answer: a node whose ranks print faster than we read is
alive. Silence is counted in our own polls and not by a clock, so that nodes are not lost when we are stopped (Ctrl-Z)
or starved.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paramiko import SSHClient, Transport

ASK_INTERVAL_S = 5.0
LOOK_INTERVAL_S = 1.0
MOST_SILENT_S = 15.0
JOIN_S = 1.0
QUESTION = "keepalive@openssh.com"  # OpenSSH answers that it does not know this request


class HeardSocket(socket.socket):
    """A TCP connection that counts its successful reads; takes over the given socket's file descriptor."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.heard = 0

    def recv(self, *args: int) -> bytes:
        """See socket.recv."""
        data = super().recv(*args)
        self.heard += 1
        return data


@dataclass
class _Connection:
    node: str
    client: SSHClient
    sock: HeardSocket
    heard: int = -1
    silent_s: float = 0.0

    def look(self) -> None:
        """Update the time of silence; called every LOOK_INTERVAL_S."""
        is_news = self.sock.heard != self.heard
        self.heard = self.sock.heard
        self.silent_s = 0.0 if is_news else self.silent_s + LOOK_INTERVAL_S


class Liveness:
    """A watchdog for connections, in background threads: one for all, and one that asks per connection.

    Args:
        lose: called once with a node that has been silent for too long, just before its connection is closed.
    """

    def __init__(self, lose: Callable[[str], None]) -> None:
        self._lose = lose
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []

    def watch(self, node: str, client: SSHClient) -> None:
        """Watch another connection, which uses a HeardSocket."""
        transport = client.get_transport()
        assert transport is not None
        sock = transport.sock
        assert isinstance(sock, HeardSocket)
        with self._lock:
            is_first = not self._connections
            self._connections.append(_Connection(node, client, sock))
        if is_first:
            self._start(self._look)
        self._start(self._ask, transport)

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()

    def join(self) -> None:
        """Wait for the threads, for JOIN_S at most, after this watchdog and the connections were closed."""
        deadline = time.monotonic() + JOIN_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ask(self, transport: Transport) -> None:
        import paramiko

        while transport.is_active() and not self._closing.wait(ASK_INTERVAL_S):
            with suppress(paramiko.SSHException, EOFError, OSError):
                transport.global_request(
                    QUESTION, wait=True
                )  # returns at the latest when the connection closes

    def _look(self) -> None:
        while not self._closing.wait(LOOK_INTERVAL_S):
            with self._lock:
                connections = list(self._connections)
            for connection in connections:
                connection.look()
                if connection.silent_s >= MOST_SILENT_S:
                    self._give_up(connection)

    def _give_up(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.remove(connection)
        transport = connection.client.get_transport()
        if transport is not None and transport.is_active():
            self._lose(connection.node)
            connection.client.close()  # unblocks all readers and waiters
