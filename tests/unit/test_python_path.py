"""How the daemon learns to be on time, and how it reads the kernel's announcements, without a kernel queue."""

import socket
import struct
from time import monotonic
from types import SimpleNamespace

import pytest

from node.wire.nfqueue.delay_line import Behaviour, DelayLine, Downlink
from node.wire.nfqueue.nfnetlink import MSG_PACKET, NFNL_SUBSYS_QUEUE, SIZE
from node.wire.nfqueue.python_path import BUSY_LOOK_S, GRAIN_S, LATE_S, MAX_LEAD_S, PythonPath
from node.wire.nfqueue.recvmmsg import BURST

NOW_S, CLOCK_S = 5000.0, 1.7e9


@pytest.fixture
def path():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nobody:
        yield PythonPath(nobody)


def test_who_is_always_late_begins_that_much_earlier(path):
    for _ in range(200):  # it wakes 0.3 ms after the time that it requested
        path.learn(monotonic() + path._lead_s - 300e-6)
    assert path._lead_s == pytest.approx(300e-6, abs=20e-6)


def test_one_stall_teaches_little(path):
    path.learn(monotonic() - 0.5)
    assert 0 < path._lead_s < 50e-6


def test_it_never_begins_much_too_early(path):
    for _ in range(2000):
        path.learn(monotonic() - 0.5)
    assert path._lead_s == MAX_LEAD_S
    for _ in range(2000):
        path.learn(monotonic() + 0.5)
    assert path._lead_s == 0


def test_what_a_busy_moment_taught_is_soon_unlearnt(path):
    """Otherwise the next fifty packets would go up to 1 ms early: a link that is faster than requested."""
    for _ in range(2000):
        path.learn(monotonic() - 0.5)
    for _ in range(12):  # from now on it wakes on time
        path.learn(monotonic() + path._lead_s)
    assert path._lead_s < 100e-6


def test_who_is_late_half_of_the_time_is_not_early_the_other_half(path):
    for number in range(2000):
        late_s = 5e-3 if number % 2 else 0.0
        path.learn(monotonic() + path._lead_s - late_s)
    assert path._lead_s < 100e-6


def test_packets_that_go_late_are_counted_once_each(path, monkeypatch):
    """Three packets are due at 1, 2 and 3 ms, and nobody wakes until 2.5 ms: one is more than 1 ms late."""
    moment = monotonic()
    line = DelayLine(Behaviour(0.0), Downlink(float("inf"), float("inf")))
    for number in (1, 2, 3):
        line.admit(number, moment + number * 1e-3)
    path._lines[7], path._due[:] = line, [(line.next_due(), 7)]
    monkeypatch.setattr(path, "_netlink", SimpleNamespace(send=lambda message: None))
    monkeypatch.setattr("node.wire.nfqueue.python_path.monotonic", lambda: moment + 2.5e-3)
    path.release_due()
    assert path.late == 1
    assert path.worst_late_s == pytest.approx(1.5e-3)
    monkeypatch.setattr(
        "node.wire.nfqueue.python_path.monotonic", lambda: moment + 3e-3 + LATE_S / 2
    )
    path.release_due()
    assert path.late == 1
    assert not path._due


def announcement(packet, stamp=None, queue=7, kind=MSG_PACKET):
    """Return nfnetlink_queue's message for a packet: number, device, hardware address, timestamp, hook."""
    attributes = struct.pack("=HH", 11, 1) + struct.pack(">IHBx", packet, 0x0800, 0) + bytes(8 + 16)
    if stamp is not None:
        attributes += struct.pack("=HH", 20, 4)
        attributes += struct.pack(">QQ", int(stamp), int(stamp % 1 * 1e6))
    attributes += bytes(8)
    head = struct.pack("=IHHII", 20 + len(attributes), NFNL_SUBSYS_QUEUE << 8 | kind, 0, 0, 0)
    return head + struct.pack(">BBH", 0, 0, queue) + attributes


@pytest.fixture
def announced(monkeypatch):
    """A path with one queue, 10 ms links and frozen clocks, and a function that announces packets to it."""
    monkeypatch.setattr("node.wire.nfqueue.python_path.monotonic", lambda: NOW_S)
    monkeypatch.setattr("node.wire.nfqueue.python_path.time", lambda: CLOCK_S)
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with kernel, ours:
        kernel.setblocking(False)
        ours.setblocking(False)
        path = PythonPath(ours)
        path._lines[7] = DelayLine(Behaviour(0.01), Downlink(float("inf"), float("inf")))
        path._shortest_s = 0.01
        yield path, kernel.send


def test_a_packet_is_due_by_its_stamp_and_without_one_by_when_it_was_heard_of(announced):
    path, announce = announced
    announce(announcement(1, stamp=CLOCK_S - 0.004))
    path.take_in()
    announce(announcement(2))
    path.take_in()
    (first, one, _), (second, two, _) = path._lines[7]._held
    assert (one, two) == (1, 2)
    assert first - NOW_S == pytest.approx(0.006, abs=5e-6)
    assert second - NOW_S == pytest.approx(0.010, abs=5e-6)
    assert path._due[0] == (first, 7)


def test_what_is_no_packet_of_ours_is_passed_over(announced):
    path, announce = announced
    for message in (announcement(1, queue=8), announcement(2, kind=1), announcement(3, CLOCK_S)):
        announce(message)
    path.take_in()
    assert [packet for _, packet, _ in path._lines[7]._held] == [3]


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time to a number of seconds after NOW_S."""
    return lambda s: monkeypatch.setattr(
        "node.wire.nfqueue.python_path.monotonic", lambda: NOW_S + s
    )


def test_where_packets_come_close_upon_each_other_none_wakes_us_until_a_look_finds_none(
    announced, clock
):
    path, announce = announced
    announce(announcement(1, CLOCK_S))
    path.take_in()
    assert not path.is_busy and path.wait_s() == pytest.approx(0.01, abs=0.003)
    clock(BUSY_LOOK_S / 2)
    announce(announcement(2, CLOCK_S))
    path.take_in()
    assert path.is_busy and path.wait_s() == pytest.approx(BUSY_LOOK_S)
    path.take_in()
    assert not path.is_busy and path.wait_s() == pytest.approx(0.01, abs=0.003)


def test_packets_that_come_seldom_wake_us_each(announced, clock):
    path, announce = announced
    for number in range(4):
        clock(number * 2 * BUSY_LOOK_S)
        announce(announcement(number, CLOCK_S))
        path.take_in()
        assert not path.is_busy


def test_a_look_comes_not_sooner_than_a_grain_after_the_last(announced, clock):
    path, announce = announced
    for number in range(2):
        announce(announcement(number, CLOCK_S))
    path.take_in()
    clock(path._due[0][0] - NOW_S - 1e-5)
    path._looked_s = NOW_S + path._due[0][0] - NOW_S - 2e-5
    assert path.wait_s() == pytest.approx(GRAIN_S - 1e-5)


@pytest.mark.parametrize(("delay_ms", "grain_ms"), [(10, 0.2), (60, 0.3), (200, 0.5)])
def test_the_longer_the_links_the_coarser_the_grain(delay_ms, grain_ms):
    path = PythonPath(SimpleNamespace(send=lambda message: None, fileno=lambda: 0))
    path._open_all({1: Behaviour(delay_ms / 1e3), 2: Behaviour(1.0)})
    assert path._grain_s() == pytest.approx(grain_ms / 1e3)


def test_where_it_is_busy_packets_go_up_to_half_a_grain_before_they_are_due(
    announced, clock, monkeypatch
):
    path, announce = announced
    for number in range(2):
        announce(announcement(number, CLOCK_S))
    path.take_in()
    sent = []
    monkeypatch.setattr(path, "_netlink", SimpleNamespace(send=sent.append))
    due_s = path._due[0][0] - NOW_S
    clock(due_s - 0.6 * GRAIN_S)
    path.release_due()
    assert not sent
    clock(due_s - 0.4 * GRAIN_S)
    path.release_due()
    assert sent


def test_short_links_are_looked_at_whenever_a_packet_comes(announced):
    path, announce = announced
    path._shortest_s = GRAIN_S
    for number in range(8):
        announce(announcement(number, CLOCK_S))
    path.take_in()
    assert not path.is_busy


def test_the_shortest_link_counts_with_its_jitter():
    ours = SimpleNamespace(send=lambda message: None, fileno=lambda: 0)
    path = PythonPath(ours)
    path._open_all({1: Behaviour(0.01), 2: Behaviour(0.02)})
    assert path._shortest_s == 0.01 and not path._copied
    path._open_all({1: Behaviour(0.01, jitter_s=0.002)})
    assert path._shortest_s == pytest.approx(0.002)
    path._open_all({1: Behaviour(0.01, jitter_s=0.005, copied=SIZE)})
    assert path._shortest_s == 0 and path._copied


def test_one_look_takes_a_burst_and_in_a_rush_all_there_is(announced):
    path, announce = announced
    many = BURST + 20
    for number in range(many):
        try:
            announce(announcement(number, CLOCK_S))
        except BlockingIOError:  # such a socket has room for few messages
            many = number
            break
    path.take_in()
    assert len(path._lines[7]._held) == many
