"""The goodput probe: when its pings begin, and how long its receiver waits."""

import json
import socket
import threading
import time

import pytest

from node.probe import goodput
from node.probe.__main__ import _obey
from node.probe.goodput import Request
from protocol.lines import encode_line
from protocol.probe import SendOrder

CONNECTING_S = 2.0


class Pings:
    """Stands for the pings: remembers when the first is due, and sends none."""

    first_s = 0.0

    def __init__(self, peer, series, first_s, interval_s):
        Pings.first_s = first_s
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.rtt_ms = []

    def wait_s(self):
        return 0.05

    def send_if_due(self):
        pass


def test_pings_under_load_begin_when_the_window_does(monkeypatch):
    """On a link with a long round trip, which connecting takes once."""
    opened = []

    def connect(address, timeout):
        time.sleep(CONNECTING_S)
        return connect_at_once(address, timeout)

    def sink(sock, request):
        opened.append(time.monotonic() + request.startup_s)
        return sink_all(sock, request)

    connect_at_once, sink_all = socket.create_connection, goodput._sink
    monkeypatch.setattr(goodput.socket, "create_connection", connect)
    monkeypatch.setattr(goodput, "_sink", sink)
    monkeypatch.setattr(goodput, "LoadPings", Pings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(goodput, "PROBE_PORT", listener.getsockname()[1])
        receiving = threading.Thread(target=lambda: goodput._answer(listener.accept()[0]))
        receiving.start()
        found = goodput.send(SendOrder("127.0.0.1", 0.2, 0.1, 20.0), 1)
        assert found.goodput_mbyte_s > 0, found.note
        receiving.join(5)
    # The request is there at once, but the sender has to reckon with half of what connecting took, and not with all.
    assert Pings.first_s - opened[0] == pytest.approx(CONNECTING_S / 2, abs=0.7)


def test_a_receiver_waits_as_long_as_its_sender(monkeypatch):
    """A round trip without data may take longer than GIVE_UP_S."""
    monkeypatch.setattr(goodput, "GIVE_UP_S", 0.2)
    sender, receiver = socket.socketpair()
    receiving = threading.Thread(target=goodput._answer, args=(receiver,))
    with sender:
        receiving.start()
        sender.sendall(encode_line(Request(startup_s=0.8, window_s=0.1)))
        time.sleep(1.0)
        sender.settimeout(5)
        for _ in range(3):
            sender.sendall(bytes(10_000))
            time.sleep(0.1)
        assert json.loads(sender.recv(4096))["goodput_mbyte_s"] > 0
    receiving.join(5)
    assert not receiving.is_alive()


@pytest.mark.parametrize("do", ["flood", "burst"])
def test_a_port_that_another_program_has_is_named(do):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        count = {"port": port, "skip_s": 0.1, "until_s": None} if do == "flood" else port
        order = {"do": do, "sends": {}, "counts": {"node2": count}, "seconds": 0.1}
        with pytest.raises(OSError, match=f"another program on this node has UDP port {port} of "):
            _obey(json.dumps(order), 1, {}, None, "127.0.0.1", 1)
