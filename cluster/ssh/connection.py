"""Logs in to one node by SSH: waits for its sshd and accepts only its pinned host key."""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import Node, name_flag
from cluster.ssh.keys import LOGIN_KEY
from cluster.ssh.liveness import HeardSocket
from cluster.ssh.remote_process import CLOSED

if TYPE_CHECKING:
    from paramiko import Channel, SSHClient, Transport

RETRY_S = 0.02
# How long an sshd may take to send its greeting; doubled after each timeout, up to the second value. Frequent retries
# would load a busy machine further, because each connection starts a process there.
GREETING_S, LONGEST_GREETING_S = 1.0, 16.0
# How long an sshd may accept connections without a greeting before it counts as stopped; many nodes that start together
# on a busy machine are silent for long.
NO_GREETING_S, NO_GREETING_PER_NODE_S = 30.0, 2.0
PAUSE_S = 0.25  # before the next login after one that was not done
# How long a login may take, doubled after each that is not done: one that hangs must not cost the whole wait.
LOGIN_S, LONGEST_LOGIN_S = 15.0, 120.0
# What paramiko says if sshd closed the connection between two steps of a login, or does not answer a key.
TRANSIENT = ("No existing session", "Authentication timeout.")
OPEN_TIMEOUT_S = 120.0  # for a session; a silent node is declared lost earlier
END_S = 1.0  # for the threads of closed connections
T = TypeVar("T")


Dial = Callable[[Node, float], socket.socket]
"""Connects to the port of a node's sshd, with a timeout in seconds; raises OSError."""


def dial_directly(node: Node, timeout_s: float) -> socket.socket:
    """Connect to a node on this machine."""
    return socket.create_connection((node.ssh_host, node.ssh_port), timeout=timeout_s)


class TimedOut(ClusterError):
    """A node did not answer before the deadline."""


class _NotDone(ClusterError):
    """An sshd closed the connection during the login or fell silent: it is starting, ending or starved."""


class GivenUp(ClusterError):
    """We stopped waiting for a node, because another one failed."""

    def __init__(self) -> None:
        super().__init__("given up")


class Closing(threading.Event):
    """An event that is set when connections are no longer needed; also ends those being established."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()

    def set(self) -> None:
        """Set the event, and shut down the connections being established."""
        super().set()
        for sock in tuple(self._sockets):
            with suppress(OSError):  # already closed
                sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def ends(self, sock: socket.socket) -> Iterator[None]:
        """Let `set` shut down this connection while the block lasts.

        Raises:
            GivenUp: the event is already set.
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
    node: Node,
    state_dir: Path,
    deadline: float,
    closing: Closing,
    dial: Dial = dial_directly,
    no_greeting_s: float = NO_GREETING_S,
) -> SSHClient:
    """Connect to a node, waiting for its sshd.

    Args:
        node: the node.
        state_dir: its cluster's state folder, with the login key and the pinned host keys.
        deadline: when to stop waiting (time.monotonic).
        closing: set when the connection is no longer needed.
        dial: connects to the node's sshd.
        no_greeting_s: how long sshd may accept connections without a greeting.

    Raises:
        TimedOut: the node did not answer before the deadline or fell silent, or no login was done.
        GivenUp: `closing` was set.
        ClusterError: the node presented another key than the pinned one, or refused ours; or a file of keys is damaged.
    """
    login_s = LOGIN_S
    while True:
        sock = HeardSocket(wait_for_sshd(node, deadline, closing, dial, no_greeting_s))
        left_s = max(1.0, deadline - time.monotonic())
        try:
            return _log_in_once(node, state_dir, min(login_s, left_s), closing, sock)
        except _NotDone as not_done:
            if time.monotonic() > deadline:
                raise TimedOut(str(not_done)) from not_done
        if closing.wait(PAUSE_S):
            raise GivenUp
        login_s = min(2 * login_s, LONGEST_LOGIN_S)


def _log_in_once(
    node: Node, state_dir: Path, timeout_s: float, closing: Closing, sock: HeardSocket
) -> SSHClient:
    paramiko = load_paramiko()
    if sock.family != socket.AF_UNIX:
        # A login is a sequence of small messages: with Nagle's algorithm each may wait 40 ms for a delayed ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client: SSHClient = paramiko.SSHClient()
    with closing.ends(sock):
        _connect(client, node, state_dir, timeout_s, sock)
    if closing.is_set():
        hang_up([client])
        raise GivenUp
    return client


def hang_up(clients: Iterable[SSHClient]) -> None:
    """Close connections and wait for their threads, for END_S at most.

    Python up to 3.13 may crash if a daemon thread returns from a library call while the interpreter exits.
    """
    transports = [found for client in clients if (found := client.get_transport()) is not None]
    for transport in transports:
        with suppress(OSError):  # already closed
            transport.sock.shutdown(
                socket.SHUT_RDWR
            )  # otherwise its thread would notice only at its next poll
        transport.close()
    deadline = time.monotonic() + END_S
    for transport in transports:
        transport.join(max(0.0, deadline - time.monotonic()))


def _connect(
    client: SSHClient, node: Node, state_dir: Path, timeout_s: float, sock: HeardSocket
) -> None:
    paramiko = load_paramiko()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    began_s = time.monotonic()
    try:
        _load(state_dir / "known_hosts", client.load_host_keys)
        client.connect(
            node.ssh_host,
            node.ssh_port,
            username="root",
            pkey=_load(state_dir / LOGIN_KEY, paramiko.Ed25519Key.from_private_key_file),
            allow_agent=False,
            look_for_keys=False,
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            sock=sock,
            transport_factory=_transport_of(timeout_s),
        )
    except ClusterError:  # of damaged keys
        _end(client, sock)
        raise
    except (paramiko.SSHException, EOFError, OSError) as error:
        _end(client, sock)
        is_late = time.monotonic() - began_s >= timeout_s
        ending = f"not done after {timeout_s:.0f} s" if is_late else "closed by sshd before its end"
        raise _failure(f"{node.ssh_host}:{node.ssh_port}", error, ending) from error


def _end(client: SSHClient, sock: HeardSocket) -> None:
    hang_up([client])
    sock.close()


def _load(path: Path, load: Callable[[str], T]) -> T:
    """Load a file of keys of a cluster's state folder.

    Raises:
        OSError: it cannot be read. ClusterError: it is damaged, as after a power cut.
    """
    try:
        return load(str(path))
    except OSError:
        raise
    except Exception as error:  # of many kinds: paramiko's own, IndexError, AssertionError
        again = f"python -m cluster.up{name_flag(path.parent.name)} makes it anew"
        raise ClusterError(f"{path} is damaged; {again}") from error


def _failure(where: str, error: Exception, ending: str) -> ClusterError:
    if isinstance(error, EOFError | ConnectionError) or str(error) in TRANSIENT:
        return _NotDone(f"{where}: the login was {ending}")
    return ClusterError(f"{where}: {error}")


def _transport_of(timeout_s: float) -> Callable[..., Transport]:
    """Return a transport factory with this timeout for the key exchange; paramiko's 15 s cannot be set by argument."""
    paramiko = load_paramiko()

    def make(
        sock: HeardSocket,
        gss_kex: bool = False,  # paramiko before 4 passes these, too
        gss_deleg_creds: bool = False,
        disabled_algorithms: None = None,
    ) -> Transport:
        transport: Transport = paramiko.Transport(sock)
        transport.handshake_timeout = timeout_s
        return transport

    return make


def load_paramiko() -> ModuleType:
    """Import paramiko on first use, or while compose works: the import takes 0.1 s."""
    import logging

    import paramiko

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # errors come to us as exceptions
    return paramiko


def open_channel(client: SSHClient | None, node: str, argv: Sequence[str]) -> Channel:
    """Start a command.

    Raises:
        NodeError: the connection is closed or broke, or there never was one.
    """
    import paramiko

    transport = client.get_transport() if client else None
    if transport is None or not transport.is_active():
        raise NodeError("no connection", {node: CLOSED}, "python -m cluster.status")
    try:
        channel = transport.open_session(timeout=OPEN_TIMEOUT_S)
        with _closed_after(channel, OPEN_TIMEOUT_S):
            channel.exec_command(shlex.join(argv))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NodeError("the connection broke", {node: str(error) or CLOSED}) from error
    return channel


@contextmanager
def _closed_after(channel: Channel, timeout_s: float) -> Iterator[None]:
    """Close a channel if the block takes longer: paramiko waits forever for sshd to start a command."""
    timer = threading.Timer(timeout_s, channel.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for_sshd(
    node: Node,
    deadline: float,
    closing: threading.Event,
    dial: Dial = dial_directly,
    no_greeting_s: float = NO_GREETING_S,
) -> socket.socket:
    """Return a socket on which sshd has sent its greeting: Docker's port proxy accepts connections before sshd runs.

    Raises:
        TimedOut: at the deadline, or once connections have been accepted without a greeting for `no_greeting_s`.
        GivenUp: `closing` was set.
    """
    greeting_s, silent_s = GREETING_S, 0.0
    while not closing.is_set():
        try:
            sock = dial(node, greeting_s)
            if _speaks_ssh(sock):
                return sock
            reason, silent_s = "no sshd there yet", 0.0
        except TimeoutError:
            silent_s += greeting_s
            reason = f"sshd said nothing for {silent_s:g} s"
            left_s = max(no_greeting_s - silent_s, RETRY_S)
            greeting_s = min(2 * greeting_s, LONGEST_GREETING_S, left_s)
        except OSError as error:
            reason, silent_s = str(error), 0.0
        if time.monotonic() > deadline or silent_s >= no_greeting_s:
            raise TimedOut(f"{node.ssh_host}:{node.ssh_port}: {reason}")
        time.sleep(RETRY_S)
    raise GivenUp


def _speaks_ssh(sock: socket.socket) -> bool:
    """Return whether SSH's greeting arrives, or raise TimeoutError; closes the socket if it does not."""
    greeting = b""
    try:
        with suppress(ConnectionError):  # a reset by the port proxy counts as no greeting
            greeting = sock.recv(4, socket.MSG_PEEK)
        return greeting == b"SSH-"
    finally:
        if greeting != b"SSH-":
            sock.close()
