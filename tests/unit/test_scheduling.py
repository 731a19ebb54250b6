"""A reserved share of a processor is held as long as it suffices."""

import pytest

from node.base import scheduling
from node.base.scheduling import (
    DEADLINE,
    FOR_PINGS,
    FOR_THE_WIRE,
    NORMAL,
    PARTS,
    PERIOD_NS,
    Reservation,
)


@pytest.fixture
def kernel(monkeypatch):
    """Records requests to the scheduler, with clocks that only the test advances."""

    class Kernel:
        now_s = used_s = 100.0
        asked = []
        agrees = True
        left_ns = PERIOD_NS

        def set_scheduler(self, policy, slice_ns, period_ns=0):
            self.asked.append((policy, slice_ns, period_ns))
            return self.agrees and slice_ns <= self.left_ns

        def pass_by(self, seconds, load):
            self.now_s += seconds
            self.used_s += seconds * load

    kernel = Kernel()
    kernel.asked = []
    monkeypatch.setattr(scheduling, "_set_scheduler", kernel.set_scheduler)
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: kernel.now_s)
    monkeypatch.setattr(scheduling.time, "thread_time", lambda: kernel.used_s)
    monkeypatch.setattr(scheduling.os, "cpu_count", lambda: 2)
    return kernel


def held(nodes):
    reservation = Reservation(FOR_THE_WIRE)
    reservation.share_among(nodes)
    reservation.look()
    return reservation


@pytest.mark.parametrize(("nodes", "share"), [(2, FOR_THE_WIRE.most), (16, 0.1), (64, 0.025)])
def test_all_nodes_of_a_cluster_can_have_the_same(kernel, nodes, share):
    assert held(nodes).share == pytest.approx(share)
    assert kernel.asked == [(DEADLINE, round(share * PERIOD_NS), PERIOD_NS)]
    assert nodes * share < 0.95 * 2


def test_what_is_too_small_is_given_up_before_it_is_used_up_and_taken_back(kernel):
    reservation = held(16)
    kernel.pass_by(0.006, load=0.9)
    reservation.look()
    assert [policy for policy, _, _ in kernel.asked] == [DEADLINE, NORMAL]
    for load in (0.9, 0.06):  # 0.06 is within the share, but twice 0.06 is not
        kernel.pass_by(0.2, load)
        reservation.look()
    assert len(kernel.asked) == 2
    kernel.pass_by(0.2, load=0.01)
    reservation.look()
    assert kernel.asked[2][0] == DEADLINE


def test_a_share_that_cannot_be_changed_is_still_held_and_can_be_given_up(kernel):
    reservation = held(2)
    kernel.agrees = False
    reservation.share_among(16)
    kernel.agrees = True
    kernel.pass_by(0.006, load=0.9)
    reservation.look()
    assert [policy for policy, _, _ in kernel.asked] == [DEADLINE] * (1 + len(PARTS)) + [NORMAL]


def test_where_others_have_reserved_most_a_part_is_taken_and_given_up_when_that_is_used_up(kernel):
    """A second cluster on one machine: its wires had no reservation at all."""
    kernel.left_ns = round(0.06 * PERIOD_NS)
    reservation = held(2)
    assert reservation.share == pytest.approx(FOR_THE_WIRE.most / 4)
    assert len(kernel.asked) == 3
    kernel.pass_by(0.006, load=0.04)
    reservation.look()
    assert len(kernel.asked) == 3
    kernel.pass_by(0.006, load=0.06)
    reservation.look()
    assert [policy for policy, _, _ in kernel.asked[3:]] == [NORMAL]


def test_nobody_looks_all_the_time(kernel):
    reservation = held(2)
    kernel.pass_by(0.001, load=1.0)
    reservation.look()
    assert len(kernel.asked) == 1


def test_a_kernel_that_refuses_is_asked_again_later(kernel):
    kernel.agrees = False
    reservation = held(2)
    kernel.pass_by(0.01, load=0.0)
    reservation.look()
    assert len(kernel.asked) == len(PARTS)
    kernel.pass_by(0.1, load=0.0)
    reservation.look()
    assert len(kernel.asked) == 2 * len(PARTS)


def test_wires_and_pings_together_want_no_more_than_the_kernel_lends():
    assert FOR_THE_WIRE.together + 2 * FOR_PINGS.together <= 0.95


def test_two_clusters_of_three_nodes_have_room_on_two_processors(kernel):
    wire, pings = held(3), Reservation(FOR_PINGS)
    pings.share_among(3)
    assert 2 * 3 * (wire.share + 2 * pings.share) < 0.95 * 2


def test_pings_give_a_share_up_before_they_use_it_up_and_want_none_that_is_too_small(kernel):
    """A process that has used its share up waits until the period ends, so its use would never exceed the share."""
    reservation = Reservation(FOR_PINGS)
    reservation.share_among(3)
    assert reservation.share == pytest.approx(0.045)
    kernel.pass_by(0.03, load=0.045)
    reservation.look()
    assert [policy for policy, _, _ in kernel.asked] == [DEADLINE, NORMAL]
    small = Reservation(FOR_PINGS)
    small.share_among(6)
    kernel.pass_by(1.0, load=0.0)
    small.look()
    assert len(kernel.asked) == 2
