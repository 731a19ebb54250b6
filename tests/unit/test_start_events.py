"""No connection to a node is tried before its container runs."""

import threading
import time
from contextlib import contextmanager

from cluster.base.spec import ClusterSpec
from cluster.engine.start_events import StartEvents, watch_start_events

LONG_S = 30.0


def test_a_node_is_waited_for_until_it_runs():
    starts, waited = StartEvents(["node1", "node2"]), []

    def wait(node: str) -> None:
        starts.wait(node, time.monotonic() + LONG_S, threading.Event())
        waited.append(node)

    threads = [threading.Thread(target=wait, args=(node,)) for node in ("node1", "node2")]
    for thread in threads:
        thread.start()
    starts.add(["node2"])
    threads[1].join(LONG_S)
    assert waited == ["node2"]
    starts.add(["node7", "node1"])  # other nodes do not matter
    threads[0].join(LONG_S)
    assert waited == ["node2", "node1"]


def test_waiting_ends_when_nobody_wants_to_know_any_more_and_at_the_deadline():
    starts, closing = StartEvents(["node1"]), threading.Event()
    closing.set()
    starts.wait("node1", time.monotonic() + LONG_S, closing)
    starts.wait("node1", time.monotonic(), threading.Event())


class DeafEngine:
    """An engine whose stream of events breaks."""

    @contextmanager
    def starts(self, cluster):
        def nodes():
            yield "node1"
            raise ConnectionError(cluster)

        yield nodes()


def test_a_stream_that_breaks_ends_nothing(capfd):
    with watch_start_events(DeafEngine(), ClusterSpec("lab", 2)) as starts:
        starts.wait("node1", time.monotonic() + LONG_S, threading.Event())
        starts.add(["node2"])  # as the engine reports when asked directly
        starts.wait("node2", time.monotonic() + LONG_S, threading.Event())
    assert "Traceback" not in capfd.readouterr().err
