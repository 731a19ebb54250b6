"""How the daemon learns to be on time, without a kernel's queue."""

import socket
from time import monotonic

import pytest

from node.wire.delayer import MAX_LEAD_S, Delayer


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
