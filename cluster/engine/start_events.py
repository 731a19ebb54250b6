"""Follows container start events, so that we connect only to nodes that run.

The engine opens a node's port on the host before the container exists. A connection made then triggers an ARP request
that nobody answers, and the kernel repeats it only a second later: until then every connection to the node waits.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine

LOOK_S = 0.1


class StartEvents:
    """The nodes known to run, from the start events received so far."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._running = {node: threading.Event() for node in nodes}

    def add(self, nodes: Iterable[str]) -> None:
        """Mark these nodes as running."""
        for node in nodes:
            if node in self._running:
                self._running[node].set()

    def wait(self, node: str, deadline: float, closing: threading.Event) -> None:
        """Wait until this node runs, until the deadline (time.monotonic), or until `closing` is set."""
        while not self._running[node].wait(LOOK_S):
            if closing.is_set() or time.monotonic() > deadline:
                return


@contextmanager
def watch_start_events(engine: Engine, spec: ClusterSpec) -> Iterator[StartEvents]:
    """Follow the start events of a cluster until the block is left."""
    starts = StartEvents(node.name for node in spec.nodes)
    with engine.starts(spec.name) as nodes:
        threading.Thread(target=_listen, args=(starts, nodes), daemon=True).start()
        yield starts


def _listen(starts: StartEvents, nodes: Iterator[str]) -> None:
    with suppress(Exception):  # events are a shortcut: provision also polls the engine
        starts.add(nodes)
