"""Detects nodes that no longer answer, by a request every few seconds on each connection.

TCP does not tell: the kernel of a node that is paused, or Docker's port proxy, acknowledges what its sshd never
reads. So sshd itself is asked. Whatever comes from a node counts as an answer: one whose ranks print faster than we
read is alive. Silence is counted in our own looks and not by a clock: who stops us (Ctrl-Z) or starves us must not lose
the nodes.
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
QUESTION = "keepalive@openssh.com"  # OpenSSH answers that it knows no such request


class HeardSocket(socket.socket):
    """A TCP connection that counts how often something came; takes the place of the given one."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.heard = 0

    def recv(self, *args: int) -> bytes:
        """As socket.recv."""
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
        """Once every LOOK_INTERVAL_S."""
        is_news = self.sock.heard != self.heard
        self.heard = self.sock.heard
        self.silent_s = 0.0 if is_news else self.silent_s + LOOK_INTERVAL_S


class Liveness:
    """Watches connections from two threads in the background, until it is closed.

    Args:
        lose: called once with a node that has been silent for too long; its connection is closed by then.
    """

    def __init__(self, lose: Callable[[str], None]) -> None:
        self._lose = lose
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []

    def watch(self, node: str, client: SSHClient) -> None:
        """Watch one more connection, made over a HeardSocket."""
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
        """Watch no more."""
        self._closing.set()

    def join(self) -> None:
        """Wait for the threads, once it and the connections are closed: JOIN_S at most."""
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
                )  # ends with the connection at the latest

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
            connection.client.close()  # whoever reads from it, or waits for it, hears of it
