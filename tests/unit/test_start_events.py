"""No connection to a node is tried before its container runs."""

import threading
import time
from contextlib import contextmanager

import pytest

from cluster.base.spec import ClusterSpec
from cluster.engine import client
from cluster.engine.compose import LABEL_NODE
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


class SlowApi:
    """An engine that answers a request for events only when the test says so; then node1 has started."""

    def __init__(self):
        self.is_asked, self.answers, self.is_closed = (threading.Event() for _ in range(3))

    def events(self, filters, decode):
        assert threading.current_thread() is not threading.main_thread(), "it is waited for"
        self.is_asked.set()
        self.answers.wait(LONG_S)
        return self

    def __iter__(self):
        yield {"Actor": {"Attributes": {LABEL_NODE: "node1"}}}
        self.is_closed.wait(LONG_S)

    def close(self):
        self.is_closed.set()


@pytest.fixture
def api(monkeypatch):
    api = SlowApi()
    monkeypatch.setattr(client, "_connect", lambda url: api)
    return api


def end_of(before):
    """Return whether the threads that have been started since end, too."""
    threads = set(threading.enumerate()) - before
    for thread in threads:
        thread.join(LONG_S)
    return not any(thread.is_alive() for thread in threads)


def test_an_engine_that_tells_no_events_is_not_waited_for(api):
    """Nodes are known to run by asking for them, as before; a stream that comes too late is closed."""
    before = set(threading.enumerate())
    with watch_start_events(client.Engine(), ClusterSpec("lab", 2)) as starts:
        starts.add(["node2"])
        starts.wait("node2", time.monotonic() + LONG_S, threading.Event())
        assert api.is_asked.wait(LONG_S)
    assert not api.is_closed.is_set()
    api.answers.set()
    assert end_of(before) and api.is_closed.is_set()


def test_a_stream_is_closed_when_nobody_wants_it_any_more(api):
    before = set(threading.enumerate())
    api.answers.set()
    with watch_start_events(client.Engine(), ClusterSpec("lab", 2)) as starts:
        starts.wait("node1", time.monotonic() + LONG_S, threading.Event())
        assert not api.is_closed.is_set()
    assert api.is_closed.is_set() and end_of(before)
