"""The one road to the nodes: SSH, a connection a node, kept open, all nodes in parallel.

Nothing here knows of Docker: a node is a name, a host and a port (`cluster.spec.Node`). Host keys are pinned;
a node that shows another one is refused. Every command is an argv list, quoted for the remote shell in one
place.
"""

from __future__ import annotations

import json
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import ClusterError, NodeError
from cluster.keys import LOGIN_KEY
from cluster.spec import Node

if TYPE_CHECKING:
    from paramiko import Channel, SSHClient

T = TypeVar("T")

RETRY_S = 0.02
# How long an sshd may take to greet; doubled each time that it takes longer, up to the second one. To knock at a busy
# machine again and again would only make it busier: each knock starts a process there.
GREETING_S, LONGEST_GREETING_S = 1.0, 16.0
KEEPALIVE_S = 5
LOST = (
    -1000
)  # exit code where the connection went before the command ended; no signal has this number


class TimedOut(ClusterError):
    """A node did not answer before the deadline."""


class GivenUp(ClusterError):
    """A node was no longer waited for, because another one failed."""

    def __init__(self) -> None:
        super().__init__("given up")


@dataclass(frozen=True)
class Result:
    """How a command ended on one node."""

    node: str
    exit_code: int
    stdout: bytes
    stderr: bytes

    def words(self) -> str:
        """What a user should read of a failure: the last words of the command."""
        text = (self.stderr or self.stdout).decode(errors="replace").strip()
        return text or f"exit code {self.exit_code}"


class Fleet:
    """SSH connections to the nodes of one cluster."""

    def __init__(self, nodes: Sequence[Node], state_dir: Path) -> None:
        self.nodes = tuple(nodes)
        self._state_dir = state_dir
        self._clients: dict[str, SSHClient] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(nodes)))
        self._closing = threading.Event()

    def connect(self, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Log in to every node, waiting for those that still start; `check` as in `each`.

        Raises:
            NodeError: some node did not answer in time, or showed another key than the pinned one.
        """
        deadline = time.monotonic() + timeout_s
        self.each(lambda node: self.log_in(node, deadline), "no SSH", check)

    def each(
        self, action: Callable[[Node], T], failure: str, check: Callable[[], None] = lambda: None
    ) -> dict[str, T]:
        """Do something for every node, all at once; what came of it, by node.

        Args:
            action: gets the node; raises a ClusterError where it fails.
            failure: what to call it when it failed for some node.
            check: called about twice a second meanwhile; raises where waiting is in vain.

        Raises:
            NodeError: it failed for some nodes; carries their words. Those that only wait for a node give up.
        """
        futures = {self._pool.submit(action, node): node.name for node in self.nodes}
        pending: set[Future[T]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.5, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._closing.set()
                wait(pending)
                break
            check()
        errors = {name: future.exception() for future, name in futures.items()}
        failed = {name: error for name, error in errors.items() if error is not None}
        for error in failed.values():
            if not isinstance(error, ClusterError):
                raise error
        if failed:
            first = {n: error for n, error in failed.items() if not isinstance(error, GivenUp)}
            words = {name: _words_of(name, error) for name, error in (first or failed).items()}
            raise NodeError(failure, words, "python -m cluster.doctor")
        return {name: future.result() for future, name in futures.items()}

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Mapping[str, bytes] | None = None,
        nodes: Sequence[str] | None = None,
        check: bool = True,
    ) -> dict[str, Result]:
        """Run one command on all (or the named) nodes at once; `stdin` is given by node.

        Raises:
            NodeError: with `check`, when it failed anywhere; carries every such node's words. Without `check` a node
                that cannot be reached ends with the exit code LOST.
        """
        names = list(nodes) if nodes is not None else [node.name for node in self.nodes]
        given = stdin or {}
        results = dict(
            zip(
                names,
                self._pool.map(lambda n: self._run_or_lose(n, argv, given.get(n, b"")), names),
                strict=True,
            )
        )
        bad = {name: r.words() for name, r in results.items() if r.exit_code != 0}
        if check and bad:
            raise NodeError(f"`{shlex.join(argv)}` failed", bad)
        return results

    def run_json(
        self,
        argv: Sequence[str],
        *,
        stdin: Mapping[str, object] | None = None,
        nodes: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Like `run`, with a JSON document in and out for each node."""
        given = {name: json.dumps(value).encode() for name, value in (stdin or {}).items()}
        results = self.run(argv, stdin=given, nodes=nodes)
        return {name: json.loads(result.stdout) for name, result in results.items()}

    def start(self, node: str, argv: Sequence[str]) -> RemoteProcess:
        """Start a command on one node and leave it running.

        Raises:
            NodeError: there is no connection to it.
        """
        return RemoteProcess(node, self._open(node, argv))

    def close(self) -> None:
        """Close every connection: what was started through them sees its standard input end."""
        self._closing.set()
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run_on(self, node: str, argv: Sequence[str], stdin: bytes = b"") -> Result:
        """Run one command on one node, whatever comes of it.

        Raises:
            NodeError: there is no connection to it.
        """
        return self.start(node, argv).communicate(stdin)

    def _run_or_lose(self, node: str, argv: Sequence[str], stdin: bytes) -> Result:
        try:
            return self.run_on(node, argv, stdin)
        except NodeError as error:
            return Result(node, LOST, b"", _words_of(node, error).encode())

    def _open(self, node: str, argv: Sequence[str]) -> Channel:
        import paramiko

        client = self._clients.get(node)
        transport = client.get_transport() if client else None
        if transport is None or not transport.is_active():
            raise NodeError("no connection", {node: "SSH is closed"}, "python -m cluster.status")
        try:
            channel = transport.open_session()
            channel.exec_command(shlex.join(argv))
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise NodeError("the connection broke", {node: str(error)}) from error
        return channel

    def log_in(self, node: Node, deadline: float) -> None:
        """Connect to one node, unless that is done.

        Raises:
            TimedOut: it did not answer before the deadline.
            ClusterError: it showed another key than the pinned one.
        """
        if node.name in self._clients:
            return
        # Imported here: it takes 0.1 s, in which compose can work.
        import logging

        import paramiko

        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # errors come to us as exceptions
        sock = self._wait_for_sshd(node, deadline)
        client = paramiko.SSHClient()
        client.load_host_keys(str(self._state_dir / "known_hosts"))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        left_s = max(
            1.0, deadline - time.monotonic()
        )  # paramiko's own limits are short for a busy machine
        try:
            client.connect(
                node.ssh_host,
                node.ssh_port,
                username="root",
                pkey=paramiko.Ed25519Key.from_private_key_file(str(self._state_dir / LOGIN_KEY)),
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
        if self._closing.is_set():
            client.close()
            raise GivenUp
        self._clients[node.name] = client

    def _wait_for_sshd(self, node: Node, deadline: float) -> socket.socket:
        """A socket on which sshd has begun to speak. Docker's port proxy accepts before there is one."""
        greeting_s = GREETING_S
        while not self._closing.is_set():
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


def _words_of(node: str, error: BaseException) -> str:
    """What a node's own part of an error says."""
    if isinstance(error, NodeError):
        return error.outcomes.get(node, error.message)
    return error.message if isinstance(error, ClusterError) else str(error)


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


class RemoteProcess:
    """A command that runs on a node; its standard input stays open until `close_stdin`."""

    def __init__(self, node: str, channel: Channel) -> None:
        self.node = node
        self._channel = channel

    def write(self, data: bytes) -> None:
        """Send to its standard input.

        Raises:
            NodeError: the connection has gone.
        """
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise NodeError("the connection broke", {self.node: str(error)}) from error

    def close_stdin(self) -> None:
        """End its standard input."""
        self._channel.shutdown_write()

    def lines(self) -> Iterator[str]:
        """Its standard output, line by line, as it comes."""
        rest = b""
        while chunk := self._channel.recv(65536):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
        if rest:
            yield rest.decode(errors="replace")

    def wait(self) -> tuple[int, bytes]:
        """Its exit code (LOST where the connection went first) and its standard error."""
        stderr = b"".join(iter(lambda: self._channel.recv_stderr(65536), b""))
        code = self._channel.recv_exit_status()
        return LOST if code < 0 else code, stderr

    def close(self) -> None:
        """Let go of it: its standard input ends."""
        self._channel.close()

    def communicate(self, stdin: bytes) -> Result:
        """Send all input, read all output, wait for the end."""
        sender = threading.Thread(target=self._send_all, args=(stdin,), daemon=True)
        sender.start()
        stdout = b"".join(iter(lambda: self._channel.recv(65536), b""))
        exit_code, stderr = self.wait()
        sender.join()
        self._channel.close()
        return Result(self.node, exit_code, stdout, stderr)

    def _send_all(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
            self._channel.shutdown_write()
        except OSError:
            pass  # it ended without reading its input; the exit code tells
