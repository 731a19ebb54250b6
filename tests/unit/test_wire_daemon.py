"""The daemon of the nfqueue wire and its clients: whatever these say, or do not say, packets go on."""

import json
import os
import select
import socket
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from node.wire.nfqueue import daemon

# Other suites, on other Pythons, run at the same time.
ADDRESS = f"\0gradwire-daemon-test-{os.getpid()}"
HANGS_S = 60.0
PLAIN = [0.01]  # a behaviour: its delay, all else by default


class Paths:
    """Stands for the queues: remembers how often it was run, and what it was told."""

    def __init__(self):
        self.runs, self.queues = 0, {}

    def run(self, client, most_s):
        self.runs += 1
        return bool(select.select([client], [], [], min(most_s or 1.0, 0.01))[0])

    def configure(self, queues, downlink):
        self.queues = queues

    def change(self, queues):
        for queue in queues:
            if queue not in self.queues:
                raise KeyError(queue)

    def lateness(self):
        return 0, 0.0

    def taken(self):
        return {7: (3, 1)}


@pytest.fixture
def paths(monkeypatch):
    """The daemon in a thread, without a kernel; it must be alive at the end of the test, and end when told to."""
    fake = Paths()
    reservation = SimpleNamespace(look=lambda: None, share_among=lambda nodes: 1 / nodes)
    monkeypatch.setattr(daemon, "Paths", lambda: fake)
    monkeypatch.setattr(daemon, "Reservation", lambda share: reservation)
    monkeypatch.setattr(daemon, "stamp_arrivals", nullcontext)
    monkeypatch.setattr(daemon, "CLIENT_TIMEOUT_S", 1.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(ADDRESS)
        listener.listen()
        serving = threading.Thread(target=daemon.serve, args=(listener,), daemon=True)
        serving.start()
        yield fake
        assert ask(b'{"stop": true}') == {"error": ""}
        serving.join(HANGS_S)
        assert not serving.is_alive()


def connected():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(HANGS_S)
    client.connect(ADDRESS)
    return client


def ask(message):
    with connected() as client:
        client.send(message)
        return json.loads(client.recv(1 << 16))


def test_it_does_what_it_is_asked(paths):
    assert ask(b"{}") == {"error": "", "late": 0, "worst_ms": 0.0, "taken": {"7": [3, 1]}}
    queues = {"queues": {"7": PLAIN}, "downlink": None, "nodes": 2}
    assert ask(json.dumps(queues).encode()) == {"error": ""}
    assert paths.queues[7].delay_s == 0.01
    assert ask(b'{"change": {"7": [0.02]}}') == {"error": ""}
    assert ask(b'{"change": {"8": [0.02]}}') == {"error": "there is no queue 8"}


@pytest.mark.parametrize(
    "message",
    [
        b"no JSON",
        b"5",
        b"null",
        b"[]" * 2,
        b'{"queues": {}}',
        b'{"queues": {}, "downlink": null, "nodes": 0}',
        b'{"queues": {"7": 5}, "downlink": null, "nodes": 2}',
        b'{"change": {"x": [1]}}',
        b'{"change": {"7": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}}',
        b"[" * 100_000,
    ],
)
def test_what_it_does_not_understand_is_an_error_and_it_goes_on(paths, message):
    assert ask(message)["error"]
    assert ask(b"{}")["error"] == ""


def test_a_client_that_says_nothing_delays_no_packet(paths, monkeypatch):
    monkeypatch.setattr(daemon, "CLIENT_TIMEOUT_S", 3.0)
    began = time.monotonic()
    with connected() as silent:
        wait_for_runs(paths, 20)
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):  # it has not been given up: packets went on beside it
            silent.recv(1)
        assert ask(b"{}")["error"] == ""  # once the silent one has been given up
    assert time.monotonic() - began >= 2.9
    with connected() as late:
        wait_for_runs(paths, 5)
        late.send(b"{}")
        assert json.loads(late.recv(1 << 16))["error"] == ""


def wait_for_runs(paths, count):
    enough, deadline = paths.runs + count, time.monotonic() + HANGS_S
    while paths.runs < enough:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_leaves_without_a_word_is_forgotten_at_once(paths, monkeypatch):
    monkeypatch.setattr(daemon, "CLIENT_TIMEOUT_S", 2 * HANGS_S)
    connected().close()
    assert ask(b"{}")["error"] == ""
