"""Tests that the fast path in C gives the same verdicts as the path in Python for the same announcements."""

import random
import socket
import struct

import pytest

from node.wire.nfqueue import fast_path
from node.wire.nfqueue.delay_line import Behaviour
from node.wire.nfqueue.fast_path import DRAWS, FastPath, load_library
from node.wire.nfqueue.python_path import PythonPath

BOOT_S, WALL_S = 5000.0, 1.7e9
PLAIN, ROUGH, BURSTS = 7, 8, 0x77FF
BEHAVIOURS = {
    PLAIN: Behaviour(0.010),
    ROUGH: Behaviour(0.030, jitter_s=0.004, loss=0.1, seed=3),
    BURSTS: Behaviour(0.012, jitter_s=0.001, distribution="uniform", bursts=(0.05, 0.4), seed=4),
}


def announcement(queue, packet, stamp_s):
    """Return an nfnetlink_queue message: packet number, device, hardware address, time of arrival, hook."""
    attributes = struct.pack("=HH", 11, 1) + struct.pack(">IHBx", packet, 0x0800, 0) + bytes(8)
    attributes += struct.pack("=HH", 16, 9) + bytes(12)
    if stamp_s is not None:
        micros = round(stamp_s * 1e6)
        attributes += struct.pack("=HH", 20, 4) + struct.pack(">QQ", *divmod(micros, 1_000_000))
    head = struct.pack("=IHHII", 20 + len(attributes), 3 << 8, 0, 0, 0)
    return head + struct.pack(">BBH", 0, 0, queue) + attributes


class Kernel:
    """A fake kernel: the other end of the socket of a path."""

    def __init__(self):
        self.end, self.paths = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for one in (self.end, self.paths):
            one.setblocking(False)

    def heard(self):
        """Return the new verdicts of each queue, in order: (verdict, last packet that it covers)."""
        told = {}
        for message in self._messages():
            kind, queue = struct.unpack_from("=4xH10xxx", message)[0], message[18:20]
            if kind == 3 << 8 | 3:
                verdict = struct.unpack_from(">II", message, 24)
                told.setdefault(int.from_bytes(queue, "big"), []).append(verdict)
        return told

    def _messages(self):
        while True:
            try:
                data = self.end.recv(1 << 16)
            except BlockingIOError:
                return
            while data:
                length = int.from_bytes(data[:4], "little")
                yield data[:length]
                data = data[length:]


class Both:
    """The reference and the fast path, each with its own fake kernel, on one clock."""

    def __init__(self, monkeypatch):
        self.now_s = BOOT_S
        monkeypatch.setattr("node.wire.nfqueue.python_path.monotonic", lambda: self.now_s)
        monkeypatch.setattr(
            "node.wire.nfqueue.python_path.time", lambda: self.now_s - BOOT_S + WALL_S
        )
        self.kernels = Kernel(), Kernel()
        self.slow = PythonPath(self.kernels[0].paths)
        self.library = load_library()
        self.fast = FastPath(self.library, self.kernels[1].paths)

    def set(self, behaviours):
        for (
            queue,
            behaviour,
        ) in behaviours.items():  # this kind of socket has room for few messages only
            self.slow._open_all({queue: behaviour})
            self.fast._set({queue: behaviour})
            for kernel in self.kernels:
                kernel.heard()

    def announce(self, queue, packet, stamped=True):
        stamp_s = self.now_s - BOOT_S + WALL_S if stamped else None
        for kernel in self.kernels:
            kernel.end.send(announcement(queue, packet, stamp_s))

    def look(self):
        """Run each once; return the verdicts of both, and for each how long until it must run again."""
        self.slow.take_in()
        self.slow.release_due()
        pointer = self.fast._pointer
        self.library.fast_path_take_in(pointer, self.now_s, self.now_s - BOOT_S + WALL_S)
        self.library.fast_path_release_due(pointer, self.now_s)
        self.fast._draw_more()
        told = [kernel.heard() for kernel in self.kernels]
        waits = [self.slow.wait_s(), self.library.fast_path_wait_s(pointer, self.now_s)]
        return told, waits


@pytest.fixture
def both(monkeypatch):
    return Both(monkeypatch)


def test_the_image_has_it():
    assert load_library() is not None


def test_without_it_all_is_done_in_python(monkeypatch, tmp_path):
    monkeypatch.setattr(fast_path, "LIBRARY", tmp_path / "none.so")
    assert load_library() is None


def test_the_same_announcements_lead_to_the_same_verdicts_at_the_same_time(both):
    chance, packets, verdicts = random.Random(5), 0, 0
    both.set(BEHAVIOURS)
    for _ in range(4 * DRAWS):
        both.now_s += chance.choice([1e-5, 2e-4, 6e-4, 5e-3])
        for _ in range(chance.choice([0, 1, 1, 3])):
            packets += 1
            both.announce(chance.choice(list(BEHAVIOURS)), packets, stamped=chance.random() < 0.9)
        (slow, fast), (slow_s, fast_s) = both.look()
        assert fast == slow
        assert fast_s == pytest.approx(float("inf") if slow_s is None else slow_s, abs=2e-6)
        verdicts += sum(map(len, slow.values()))
    assert packets > 2 * DRAWS and verdicts > 500
    taken = both.fast.taken()
    assert taken == both.slow.taken() and sum(came for came, _ in taken.values()) == packets
    assert taken[PLAIN][1] == 0 and 0 < taken[ROUGH][1] < taken[ROUGH][0]
    late, worst_s = both.fast.lateness()
    assert late == both.slow.late > 0
    assert worst_s == pytest.approx(both.slow.worst_late_s, abs=2e-6)


def test_a_changed_link_keeps_what_it_holds_and_treats_what_comes_by_other_rules(both):
    both.set({PLAIN: BEHAVIOURS[PLAIN]})
    both.announce(PLAIN, 1)
    both.look()
    both.set({PLAIN: Behaviour(0.001, loss=1.0)})
    both.announce(PLAIN, 2)
    both.look()
    both.set({PLAIN: Behaviour(0.001)})
    both.announce(PLAIN, 3)
    both.look()
    both.now_s += 0.0101
    (slow, fast), _ = both.look()
    assert fast == slow == {PLAIN: [(1, 1), (0, 2), (1, 3)]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"delay_s": 0.02},
        {"loss": 0.2},
        {"jitter_s": 0.001, "distribution": "uniform"},
        {"loss": 0},
    ],
)
@pytest.mark.parametrize(
    "packets", [1, 300, DRAWS + 150]
)  # with draws of one or of two batches left
def test_after_a_change_the_random_streams_continue_with_the_next_packet(both, packets, changes):
    rough = BEHAVIOURS[ROUGH]
    both.set({ROUGH: rough})
    for packet in range(packets):
        both.announce(ROUGH, packet)
        both.look()
        both.now_s += 0.05
    both.set({ROUGH: rough._replace(**changes)})
    both.set({ROUGH: rough})
    for packet in range(packets, packets + 60):
        both.announce(ROUGH, packet)
        both.now_s += 0.05
        (slow, fast), _ = both.look()
        assert fast == slow != {}


def test_a_queue_that_stays_as_it_was_is_left_alone(both, monkeypatch):
    both.set(BEHAVIOURS)
    monkeypatch.setattr(both.fast, "_library", None)
    both.fast._set(BEHAVIOURS)
    assert both.kernels[1].heard() == {}


def test_a_closed_queue_lets_all_go_and_the_others_stay(both):
    both.set({PLAIN: BEHAVIOURS[PLAIN], ROUGH: Behaviour(0.02)})
    both.announce(PLAIN, 1)
    both.announce(ROUGH, 2)
    both.look()
    for one in (both.slow, both.fast):
        one.keep([ROUGH])
    assert [kernel.heard() for kernel in both.kernels] == [{PLAIN: [(1, 1)]}] * 2
    both.announce(PLAIN, 3)  # of a queue that was removed
    both.now_s += 0.0201
    (slow, fast), _ = both.look()
    assert fast == slow == {ROUGH: [(1, 2)]}


def test_what_is_no_announcement_is_passed_over(both):
    both.set({PLAIN: BEHAVIOURS[PLAIN]})
    whole = announcement(PLAIN, 1, WALL_S)
    broken = struct.pack("=HH", 3, 1)  # an attribute shorter than its own header
    for message in (b"", whole[:12], whole[:20], whole[:20] + broken, whole[:30]):
        both.kernels[1].end.send(message)
    both.library.fast_path_take_in(both.fast._pointer, both.now_s, WALL_S)
    both.now_s += 1
    both.library.fast_path_release_due(both.fast._pointer, both.now_s)
    told = both.kernels[1].heard()
    assert all(verdict == 1 for verdict, _ in told.get(PLAIN, []))


def test_more_packets_than_it_has_room_for_at_first_are_held_in_order(both):
    both.set({PLAIN: Behaviour(10.0)})
    for packet in range(1, 3001):
        both.now_s += 1e-4
        both.kernels[1].end.send(announcement(PLAIN, packet, None))
        both.library.fast_path_take_in(both.fast._pointer, both.now_s, WALL_S)
    both.now_s += 10.0 - 0.15005
    both.library.fast_path_release_due(both.fast._pointer, both.now_s)
    ((verdict, up_to),) = both.kernels[1].heard()[PLAIN]
    assert verdict == 1 and up_to == pytest.approx(1500, abs=3)
