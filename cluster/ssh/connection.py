"""Logs in to one node by SSH: waits for its sshd, and accepts only its pinned host key."""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import Node
from cluster.ssh.keys import LOGIN_KEY
from cluster.ssh.liveness import HeardSocket

if TYPE_CHECKING:
    from paramiko import Channel, SSHClient, Transport

RETRY_S = 0.02
# How long an sshd may take to greet; doubled each time that it takes longer, up to the second one. To knock at a busy
# machine again and again would only make it busier: each knock starts a process there.
GREETING_S, LONGEST_GREETING_S = 1.0, 16.0
DROPPED_PAUSE_S = 0.25  # before the next login where sshd closed the connection during one
OPEN_TIMEOUT_S = 120.0  # for a session; a node that is silent is lost before
END_S = 1.0  # for the threads of connections that were closed


Dial = Callable[[Node, float], socket.socket]
"""Connects to the port that leads to a node's sshd, within so many seconds; raises OSError."""


def dial_directly(node: Node, timeout_s: float) -> socket.socket:
    """Connect to a node of this machine."""
    return socket.create_connection((node.ssh_host, node.ssh_port), timeout=timeout_s)


class TimedOut(ClusterError):
    """A node did not answer before the deadline."""


class _Dropped(ClusterError):
    """An sshd closed the connection before the login was done, as one does that is starting, ending or starved."""


class GivenUp(ClusterError):
    """A node was no longer waited for, because another one failed."""

    def __init__(self) -> None:
        super().__init__("given up")


class Closing(threading.Event):
    """Set when no connections are wanted any more; those that are being made then end, too."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        """Nobody wants them any more."""
        super().set()
        for sock in tuple(self._sockets):
            with suppress(OSError):  # it has ended meanwhile
                sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def ends(self, sock: socket.socket) -> Iterator[None]:
        """As long as the block lasts, `set` ends this connection.

        Raises:
            GivenUp: nobody wants it already.
        """
        self._sockets.add(sock)
        try:
            if self.is_set():
                sock.close()
                raise GivenUp
            yield
        finally:
            self._sockets.discard(sock)


def log_in(
    node: Node, state_dir: Path, deadline: float, closing: Closing, dial: Dial = dial_directly
) -> SSHClient:
    """Connect to a node, waiting for its sshd.

    Args:
        node: where.
        state_dir: of its cluster: the login key, the pinned host keys.
        deadline: when to stop waiting (time.monotonic).
        closing: set when nobody wants the connection any more.
        dial: connects to its sshd.

    Raises:
        TimedOut: it did not answer before the deadline, or closed each connection.
        GivenUp: nobody waits any more.
        ClusterError: it showed another key than the pinned one, or refused ours.
    """
    while True:
        try:
            return _log_in_once(node, state_dir, deadline, closing, dial)
        except _Dropped as dropped:
            if time.monotonic() > deadline:
                raise TimedOut(str(dropped)) from dropped
        if closing.wait(DROPPED_PAUSE_S):
            raise GivenUp


def _log_in_once(
    node: Node, state_dir: Path, deadline: float, closing: Closing, dial: Dial
) -> SSHClient:
    paramiko = load_paramiko()
    sock = HeardSocket(wait_for_sshd(node, deadline, closing, dial))
    if sock.family != socket.AF_UNIX:
        # A login is many small messages in turn: each that waits for an acknowledgement waits 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client: SSHClient = paramiko.SSHClient()
    with closing.ends(sock):
        _connect(client, node, state_dir, max(1.0, deadline - time.monotonic()), sock)
    if closing.is_set():
        hang_up([client])
        raise GivenUp
    return client


def hang_up(clients: Iterable[SSHClient]) -> None:
    """Close connections, and wait for their threads, END_S at most.

    Python up to 3.13 may crash where a thread that it does not wait for comes out of a library at its very end.
    """
    transports = [found for client in clients if (found := client.get_transport()) is not None]
    for transport in transports:
        with suppress(OSError):  # it has ended by itself
            transport.sock.shutdown(
                socket.SHUT_RDWR
            )  # or its thread would notice only at its next look
        transport.close()
    deadline = time.monotonic() + END_S
    for transport in transports:
        transport.join(max(0.0, deadline - time.monotonic()))


def _connect(
    client: SSHClient, node: Node, state_dir: Path, timeout_s: float, sock: HeardSocket
) -> None:
    paramiko = load_paramiko()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.load_host_keys(str(state_dir / "known_hosts"))
        client.connect(
            node.ssh_host,
            node.ssh_port,
            username="root",
            pkey=paramiko.Ed25519Key.from_private_key_file(str(state_dir / LOGIN_KEY)),
            allow_agent=False,
            look_for_keys=False,
            # paramiko's own limits are short for a busy machine
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            sock=sock,
            transport_factory=_transport_of(timeout_s),
        )
    except (paramiko.SSHException, EOFError, OSError) as error:
        hang_up([client])
        sock.close()
        where = f"{node.ssh_host}:{node.ssh_port}"
        if isinstance(error, EOFError | ConnectionError):
            raise _Dropped(f"{where}: sshd closed the connection during the login") from error
        raise ClusterError(f"{where}: {error}") from error


def _transport_of(timeout_s: float) -> Callable[..., Transport]:
    """What makes paramiko's connection, with this limit for the key exchange: its own, 15 s, is no argument."""
    paramiko = load_paramiko()

    def make(
        sock: HeardSocket,
        gss_kex: bool = False,  # what paramiko before 4 asks for, too
        gss_deleg_creds: bool = False,
        disabled_algorithms: None = None,
    ) -> Transport:
        transport: Transport = paramiko.Transport(sock)
        transport.handshake_timeout = timeout_s
        return transport

    return make


def load_paramiko() -> ModuleType:
    """Import it where it is wanted, or where there is time: it takes 0.1 s, in which compose can work."""
    import logging

    import paramiko

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # errors come to us as exceptions
    return paramiko


def open_channel(client: SSHClient | None, node: str, argv: Sequence[str]) -> Channel:
    """Start a command.

    Raises:
        NodeError: the connection has gone, or there never was one.
    """
    import paramiko

    transport = client.get_transport() if client else None
    if transport is None or not transport.is_active():
        raise NodeError("no connection", {node: "SSH is closed"}, "python -m cluster.status")
    try:
        channel = transport.open_session(timeout=OPEN_TIMEOUT_S)
        with _closed_after(channel, OPEN_TIMEOUT_S):
            channel.exec_command(shlex.join(argv))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NodeError("the connection broke", {node: str(error)}) from error
    return channel


@contextmanager
def _closed_after(channel: Channel, timeout_s: float) -> Iterator[None]:
    """Close a channel if the block lasts longer: paramiko waits for ever for an sshd to begin a command."""
    timer = threading.Timer(timeout_s, channel.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for_sshd(
    node: Node, deadline: float, closing: threading.Event, dial: Dial = dial_directly
) -> socket.socket:
    """A socket on which sshd has begun to speak. Docker's port proxy accepts before there is one."""
    greeting_s = GREETING_S
    while not closing.is_set():
        try:
            sock = dial(node, greeting_s)
            if _speaks_ssh(sock):
                return sock
            reason = "no sshd there yet"
        except TimeoutError:
            reason = f"sshd said nothing for {greeting_s:g} s"
            greeting_s = min(2 * greeting_s, LONGEST_GREETING_S)
        except OSError as error:
            reason = str(error)
        if time.monotonic() > deadline:
            raise TimedOut(f"{node.ssh_host}:{node.ssh_port}: {reason}")
        time.sleep(RETRY_S)
    raise GivenUp


def _speaks_ssh(sock: socket.socket) -> bool:
    """Whether SSH's greeting comes, or TimeoutError; without it the socket is closed."""
    greeting = b""
    try:
        with suppress(ConnectionError):  # reset by the port proxy: as good as nothing
            greeting = sock.recv(4, socket.MSG_PEEK)
        return greeting == b"SSH-"
    finally:
        if greeting != b"SSH-":
            sock.close()
