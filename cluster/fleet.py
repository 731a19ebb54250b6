"""The one road to the nodes: SSH, a connection a node, kept open, all nodes in parallel.

Nothing here knows of Docker: a node is a name, a host and a port (`cluster.spec.Node`). Host keys are pinned;
a node that shows another one is refused. Every command is an argv list, quoted for the remote shell in one
place.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.connection import GivenUp, log_in, open_channel
from cluster.errors import ClusterError, NodeError
from cluster.remote_process import LOST, RemoteProcess, Result
from cluster.spec import Node

if TYPE_CHECKING:
    from paramiko import SSHClient

T = TypeVar("T")


class Fleet:
    """SSH connections to the nodes of one cluster."""

    def __init__(self, nodes: Sequence[Node], state_dir: Path) -> None:
        self.nodes = tuple(nodes)
        self._state_dir = state_dir
        self._clients: dict[str, SSHClient] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(nodes)))
        self.closing = threading.Event()
        """Set when nobody waits for a connection any more."""

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
        return RemoteProcess(node, open_channel(self._clients.get(node), node, argv))

    def close(self) -> None:
        """Close every connection: what was started through them sees its standard input end."""
        self.closing.set()
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

    def log_in(self, node: Node, deadline: float) -> None:
        """Connect to one node, unless that is done; raises as `cluster.connection.log_in`."""
        if node.name not in self._clients:
            self._clients[node.name] = log_in(node, self._state_dir, deadline, self.closing)


def _words_of(node: str, error: BaseException) -> str:
    """What a node's own part of an error says."""
    if isinstance(error, NodeError):
        return error.outcomes.get(node, error.message)
    return error.message if isinstance(error, ClusterError) else str(error)
