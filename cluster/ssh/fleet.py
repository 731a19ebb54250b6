"""SSH connections to all nodes, one per node, kept open and used in parallel.

Nothing here depends on Docker: a node is a name, and `dial` connects to its sshd. Host keys are pinned; a node that
presents another key is refused. Every command is an argv list, quoted for the remote shell in one place.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import Node
from cluster.ssh.answers import read_answer
from cluster.ssh.connection import (
    NO_GREETING_PER_NODE_S,
    NO_GREETING_S,
    Closing,
    Dial,
    GivenUp,
    dial_directly,
    hang_up,
    log_in,
    open_channel,
)
from cluster.ssh.liveness import MOST_SILENT_S, Liveness
from cluster.ssh.remote_process import CLOSED, RemoteProcess, Result
from protocol.rank import LOST

if TYPE_CHECKING:
    from paramiko import SSHClient

T = TypeVar("T")
# For a command that neither writes nor reads anything: generous, because a lost node is detected by other means.
PATIENCE_S = 120.0
MOST_QUOTED = 60  # characters of a command in an error message
SILENT = f"it has not answered for {MOST_SILENT_S:.0f} s"


class Fleet:
    """SSH connections to the nodes of one cluster; the connection of a node that stops answering is closed.

    Args:
        nodes: the cluster's nodes, or some of them.
        state_dir: the cluster's state folder, with its keys.
        dial: connects to a node's sshd.
        hosts: the host of each node, as messages name it; empty if all nodes are on one.

    Attributes:
        hosts: see above.
        lost: the nodes that stopped answering, each with the reason.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        state_dir: Path,
        dial: Dial = dial_directly,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes, self.hosts = tuple(nodes), hosts or {}
        self._state_dir, self._dial = state_dir, dial
        self._clients: dict[str, SSHClient] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(nodes)))
        self.closing = Closing()
        """Set when no caller needs a connection any more."""
        self.lost: dict[str, str] = {}
        self._liveness = Liveness(self._lose)

    def connect(self, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Log in to every node, waiting for those that are still starting; `check` as in `each`.

        Raises:
            NodeError: a node did not answer in time, or presented another key than the pinned one.
        """
        deadline = time.monotonic() + timeout_s
        self.each(lambda node: self.log_in(node, deadline), "no SSH", check)

    def each(
        self, action: Callable[[Node], T], failure: str, check: Callable[[], None] = lambda: None
    ) -> dict[str, T]:
        """Call a function for all nodes in parallel; return its results by node.

        Args:
            action: gets the node; raises a ClusterError if it fails.
            failure: the error's message if it fails for some node.
            check: called about twice a second meanwhile; raises if waiting is pointless.

        Raises:
            NodeError: it failed for some nodes; carries their messages. After the first failure, nodes that are still
                being waited for are given up.
        """
        futures = {self._pool.submit(action, node): node.name for node in self.nodes}
        pending: set[Future[T]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.5, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self.closing.set()
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
        patience_s: float = PATIENCE_S,
    ) -> dict[str, Result]:
        """Run one command on all (or the named) nodes in parallel; `stdin` is by node, `patience_s` as in `run_on`.

        Raises:
            NodeError: with `check`, if it failed on any node; carries their messages. Without `check`, the result of a
                node that cannot be reached has the exit code LOST.
        """
        names = list(nodes) if nodes is not None else [node.name for node in self.nodes]
        given = stdin or {}
        results = dict(
            zip(
                names,
                self._pool.map(
                    lambda n: self._run_or_lose(n, argv, given.get(n, b""), patience_s), names
                ),
                strict=True,
            )
        )
        bad = {name: r.words() for name, r in results.items() if r.exit_code != 0}
        if check and bad:
            raise NodeError(f"`{shlex.join(argv)}` failed", bad)
        return results

    def run_read(
        self, kind: type[T], argv: Sequence[str], *, nodes: Sequence[str] | None = None
    ) -> dict[str, T]:
        """Run a command that prints one JSON document of this type (`protocol`); return the documents by node.

        Raises:
            NodeError: it failed on a node, or a node's answer is not of this type.
        """
        results = self.run(argv, nodes=nodes)
        return {name: read_answer(kind, name, result.stdout) for name, result in results.items()}

    def start(self, node: str, argv: Sequence[str]) -> RemoteProcess:
        """Start a command on one node and leave it running.

        Raises:
            NodeError: there is no connection to the node.
        """
        if node in self.lost:
            raise NodeError("no connection", {node: self.lost[node]}, "python -m cluster.status")
        channel = open_channel(self._clients.get(node), node, argv)
        return RemoteProcess(node, channel, command=_quoted(argv))

    def gone(self) -> dict[str, str]:
        """Return the nodes to which the connection has ended, each with the reason: those of `lost`, and others."""
        ended = [node for node, client in tuple(self._clients.items()) if not _is_open(client)]
        return {node: self._on_host(node, CLOSED) for node in ended} | self.lost

    def close(self) -> None:
        """Close every connection; commands started through them get end-of-file on standard input."""
        self.closing.set()
        self._liveness.close()
        hang_up(tuple(self._clients.values()))
        self._liveness.join()
        self._clients.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run_on(
        self, node: str, argv: Sequence[str], stdin: bytes = b"", patience_s: float = PATIENCE_S
    ) -> Result:
        """Run one command on one node; a failure of the command does not raise.

        Args:
            node: the node.
            argv: the command.
            stdin: its whole standard input.
            patience_s: how long it may neither write nor read anything.

        Raises:
            NodeError: there is no connection to the node, or the command hangs.
        """
        process = self.start(node, argv)
        process.patience_s = patience_s
        result = process.communicate(stdin)
        if result.exit_code == LOST and node in self.lost:
            return replace(result, stderr=self.lost[node].encode())
        return result

    def _run_or_lose(
        self, node: str, argv: Sequence[str], stdin: bytes, patience_s: float
    ) -> Result:
        try:
            return self.run_on(node, argv, stdin, patience_s)
        except NodeError as error:
            return Result(node, LOST, b"", _words_of(node, error).encode())

    def _lose(self, node: str) -> None:
        self.lost[node] = self._on_host(node, SILENT)

    def _on_host(self, node: str, words: str) -> str:
        return f"{words} ({self.hosts[node]})" if node in self.hosts else words

    def log_in(self, node: Node, deadline: float) -> None:
        """Connect to one node unless it is connected; raises as `cluster.ssh.connection.log_in`."""
        if node.name not in self._clients:
            silent_s = NO_GREETING_S + NO_GREETING_PER_NODE_S * len(self.nodes)
            client = log_in(node, self._state_dir, deadline, self.closing, self._dial, silent_s)
            self._clients[node.name] = client
            if self.closing.is_set():  # `close` may have run before the line above
                hang_up([client])
                raise GivenUp
            self._liveness.watch(node.name, client)


def _quoted(argv: Sequence[str]) -> str:
    """Return a command for an error message: in one line, and cut short."""
    text = " ".join(shlex.join(argv).split())
    return f"`{text if len(text) <= MOST_QUOTED else f'{text[: MOST_QUOTED - 1]}…'}`"


def _is_open(client: SSHClient) -> bool:
    transport = client.get_transport()
    return transport is not None and transport.is_active()


def _words_of(node: str, error: BaseException) -> str:
    """Return a node's part of an error message."""
    if isinstance(error, NodeError):
        return error.outcomes.get(node, error.message)
    return error.message if isinstance(error, ClusterError) else str(error)
