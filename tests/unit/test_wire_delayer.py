"""How the daemon learns to be on time, without a kernel's queue."""

import socket
from time import monotonic
from types import SimpleNamespace

import pytest

from node.wire.delayer import LATE_S, MAX_LEAD_S, Delayer
from node.wire.holding import Behaviour, Downlink, HoldingLine


@pytest.fixture
def delayer():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nobody:
        yield Delayer(nobody)


def test_who_is_always_late_begins_that_much_earlier(delayer):
    for _ in range(200):  # it wakes 0.3 ms after the moment for which it has asked
        delayer.learn(monotonic() + delayer._lead_s - 300e-6)
    assert delayer._lead_s == pytest.approx(300e-6, abs=20e-6)


def test_one_stall_teaches_little(delayer):
    delayer.learn(monotonic() - 0.5)
    assert 0 < delayer._lead_s < 50e-6


def test_it_never_begins_much_too_early(delayer):
    for _ in range(2000):
        delayer.learn(monotonic() - 0.5)
    assert delayer._lead_s == MAX_LEAD_S
    for _ in range(2000):
        delayer.learn(monotonic() + 0.5)
    assert delayer._lead_s == 0


def test_packets_that_go_late_are_counted_once_each(delayer, monkeypatch):
    """Of three, due at 1, 2 and 3 ms, with nobody awake until 2.5 ms: one is more than 1 ms late."""
    moment = monotonic()
    line = HoldingLine(Behaviour(0.0), Downlink(float("inf"), float("inf")))
    for number in (1, 2, 3):
        line.admit(number, moment + number * 1e-3)
    delayer._lines[7], delayer._due[:] = line, [(line.next_due(), 7)]
    monkeypatch.setattr(delayer, "_netlink", SimpleNamespace(send=lambda message: None))
    monkeypatch.setattr("node.wire.delayer.monotonic", lambda: moment + 2.5e-3)
    delayer.let_go()
    assert delayer.late == 1
    assert delayer.worst_late_s == pytest.approx(1.5e-3)
    monkeypatch.setattr("node.wire.delayer.monotonic", lambda: moment + 3e-3 + LATE_S / 2)
    delayer.let_go()
    assert delayer.late == 1
    assert not delayer._due
