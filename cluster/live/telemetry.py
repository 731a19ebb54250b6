"""Readers of the nodes' telemetry: one process per node over the existing SSH connection, one thread for each.

Its bytes use the host's SSH connections, like those of a launch. No node has a link to the host, so they pass the
default class, unshaped, and no link counts them (node/wire/htb.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.base.errors import ClusterError
from cluster.base.line_splitter import split_lines
from cluster.live.news import Measured, News
from cluster.live.sample import parse_sample
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess
from protocol.telemetry import Order, order_text

# Of the lowest priority from its first moment: it starts while the ranks do.
TELEMETRY = ("nice", "-n", "19", "python3", "-S", "-m", "node.telemetry")
MOST_STARTS, AGAIN_AFTER_S = 3, 5.0
MOST_BYTES, WITHIN_S = 1 << 20, 5.0  # a node that sends more misbehaves
CLOSE_TIMEOUT_S = 2.0
MOST_WORDS = 200


@dataclass(frozen=True)
class Post:
    """What to read from one node.

    Attributes:
        metrics: path of each rank's metrics on the node.
        peers: the nodes that its links lead to.
    """

    node: str
    run: str
    metrics: Mapping[int, str]
    peers: Sequence[str]

    def order(self, interval_s: float) -> bytes:
        """Return the first line of the telemetry's standard input."""
        return order_text(Order(self.run, dict(self.metrics), interval_s))


class Telemetry:
    """The readers of all nodes, from `start` to `close`; `start` waits for no node, `close` only CLOSE_TIMEOUT_S.

    Args:
        fleet: connections to the nodes.
        posts: what to read from each node.
        interval_s: seconds between two looks of a node.
        tell: receives each line, as news.
        complain: receives a sentence if a node stops sending.
    """

    def __init__(
        self,
        fleet: Fleet,
        posts: Sequence[Post],
        interval_s: float,
        tell: Callable[[News], None],
        complain: Callable[[str], None],
    ) -> None:
        self._fleet, self._posts, self._interval_s = fleet, posts, interval_s
        self._tell, self._complain = tell, complain
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._processes: dict[str, RemoteProcess] = {}

    def start(self) -> None:
        """Start one thread per node."""
        for post in self._posts:
            threading.Thread(target=self._keep_up, args=(post,), daemon=True).start()

    def close(self) -> None:
        """Stop reading, in bounded time, whatever the nodes do."""
        self._over.set()
        with self._lock:
            processes = list(self._processes.values())
        closing = [threading.Thread(target=one.close, daemon=True) for one in processes]
        for thread in closing:
            thread.start()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _keep_up(self, post: Post) -> None:
        """Read a node; restart its telemetry when it ends, but only a few times: the node may be unable to run it."""
        why = ""
        for _ in range(MOST_STARTS):
            why = self._follow(post)
            if self._over.wait(AGAIN_AFTER_S) or post.node in self._fleet.lost:
                return  # a lost node is reported elsewhere
        self._complain(f"{post.node} stopped sending telemetry: {why[-MOST_WORDS:]}")

    def _follow(self, post: Post) -> str:
        """Read a node until its telemetry ends; return the reason."""
        try:
            process = self._begin(post)
            if process is None:
                return ""
            try:
                for line in split_lines(bounded(process.chunks())):
                    if sample := parse_sample(line, post.metrics.keys(), post.peers):
                        self._tell(Measured(post.node, sample))
            finally:
                process.close()
            exit_code, stderr = process.wait()
        except (ClusterError, OSError, EOFError) as error:
            return str(error)
        words = " ".join(stderr[-4 * MOST_WORDS :].decode(errors="replace").split())
        return words or f"exit code {exit_code}"

    def _begin(self, post: Post) -> RemoteProcess | None:
        process = self._fleet.start(post.node, TELEMETRY)
        with self._lock:
            self._processes[post.node] = process
        if self._over.is_set():  # `close` may have run before it was registered
            process.close()
            return None
        process.write(post.order(self._interval_s))
        return process


def bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what a node says as long as the limit is kept.

    Raises:
        ClusterError: more than MOST_BYTES came in WITHIN_S.
    """
    began, came = time.monotonic(), 0
    for chunk in chunks:
        if time.monotonic() - began > WITHIN_S:
            began, came = time.monotonic(), 0
        came += len(chunk)
        if came > MOST_BYTES:
            raise ClusterError(f"more than {MOST_BYTES >> 20} MiB in {WITHIN_S:.0f} s")
        yield chunk


def interval_s(nodes: int) -> float:
    """Return the seconds between two looks of a node: more on a big cluster, whose nodes share the processors."""
    return 1.0 if nodes <= 8 else 2.0
