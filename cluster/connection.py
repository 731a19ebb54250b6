"""Logging in to one node by SSH: its sshd may still be starting, and its host key must be the pinned one."""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, NodeError
from cluster.keys import LOGIN_KEY
from cluster.spec import Node

if TYPE_CHECKING:
    from paramiko import Channel, SSHClient

RETRY_S = 0.02
# How long an sshd may take to greet; doubled each time that it takes longer, up to the second one. To knock at a busy
# machine again and again would only make it busier: each knock starts a process there.
GREETING_S, LONGEST_GREETING_S = 1.0, 16.0
KEEPALIVE_S = 5


class TimedOut(ClusterError):
    """A node did not answer before the deadline."""


class GivenUp(ClusterError):
    """A node was no longer waited for, because another one failed."""

    def __init__(self) -> None:
        super().__init__("given up")


def log_in(node: Node, state_dir: Path, deadline: float, closing: threading.Event) -> SSHClient:
    """Connect to a node, waiting for its sshd.

    Args:
        node: where.
        state_dir: of its cluster: the login key, the pinned host keys.
        deadline: when to stop waiting (time.monotonic).
        closing: set when nobody wants the connection any more.

    Raises:
        TimedOut: it did not answer before the deadline.
        GivenUp: nobody waits any more.
        ClusterError: it showed another key than the pinned one.
    """
    paramiko = load_paramiko()
    sock = wait_for_sshd(node, deadline, closing)
    # A login is many small messages in turn: each that waits for an acknowledgement waits 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client: SSHClient = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    # paramiko's own limits are short for a busy machine
    left_s = max(1.0, deadline - time.monotonic())
    try:
        client.load_host_keys(str(state_dir / "known_hosts"))
        client.connect(
            node.ssh_host,
            node.ssh_port,
            username="root",
            pkey=paramiko.Ed25519Key.from_private_key_file(str(state_dir / LOGIN_KEY)),
            allow_agent=False,
            look_for_keys=False,
            timeout=left_s,
            banner_timeout=left_s,
            auth_timeout=left_s,
            sock=sock,
        )
    except (paramiko.SSHException, EOFError, OSError) as error:
        sock.close()
        raise ClusterError(f"{node.ssh_host}:{node.ssh_port}: {error}") from error
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(KEEPALIVE_S)
    if closing.is_set():
        client.close()
        raise GivenUp
    return client


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
        channel = transport.open_session()
        channel.exec_command(shlex.join(argv))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NodeError("the connection broke", {node: str(error)}) from error
    return channel


def wait_for_sshd(node: Node, deadline: float, closing: threading.Event) -> socket.socket:
    """A socket on which sshd has begun to speak. Docker's port proxy accepts before there is one."""
    greeting_s = GREETING_S
    while not closing.is_set():
        try:
            sock = socket.create_connection((node.ssh_host, node.ssh_port), timeout=greeting_s)
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
