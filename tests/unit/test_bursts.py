"""Bursts larger than a link's queue: how they are sent, and the buffer computed from them."""

import random
from dataclasses import replace

import pytest
from ports import free_ports

from cluster.base.spec import ClusterSpec
from cluster.contract.bursts import (
    FRAME_BYTES,
    buffer_error,
    buffer_ms,
    burst_links,
    burst_orders,
    bursts_s,
    queue_frames,
)
from cluster.contract.checks import buffer_tolerance_ms, hides_queue
from cluster.contract.floods import USUAL, load_mbyte_s
from cluster.contract.measured import Measured, Queue
from cluster.contract.verdicts import judge
from cluster.links.expected import Expected
from cluster.links.link import draw_links
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology
from node.probe.burst import QueueModel, burst
from protocol.link import Link
from protocol.probe import Burst, BurstOrder, BurstSend

LINK = Link("node1", "node2", 5.0, 80.0, 0.0, 0.0, 160.0)
BACK = LINK._replace(src="node2", dst="node1")


def links_of(size, profile):
    nodes = ClusterSpec(size=size).nodes
    return draw_links(load_profile(profile), load_topology("full"), nodes, 1)


def arrived(link, room_ms, sent_s, stream):
    """Return the frames of a double-queue burst that arrive: queued, passed at once, and carried while sending."""
    frames = min(
        2 * queue_frames(link), link.rate_mbyte_s * (room_ms + 1 + 1e3 * sent_s) * 1e3 / FRAME_BYTES
    )
    return sum(stream.random() >= link.lost_pct / 100 for _ in range(int(frames)))


@pytest.mark.parametrize("loss_pct", [0.0, 5.0])
@pytest.mark.parametrize("sent_s", [0.0, 0.003, 0.02])
def test_what_arrives_is_what_the_queue_held(loss_pct, sent_s):
    link, stream = LINK._replace(loss_pct=loss_pct), random.Random(1)
    for room_ms in (160.0, 80.0, 200.0):
        found_ms = buffer_ms(link, arrived(link, room_ms, sent_s, stream), sent_s)
        assert abs(found_ms - room_ms) <= (buffer_tolerance_ms(link) if loss_pct else 0.5)
        is_right = abs(found_ms - link.buffer_ms) <= buffer_tolerance_ms(link)
        assert is_right == (room_ms == 160.0)


def test_losses_leave_it_as_uncertain_as_they_are_many():
    assert buffer_error(LINK) == 0
    assert buffer_error(LINK._replace(loss_pct=5.0)) == pytest.approx(
        (0.05 / 0.95 / 528) ** 0.5, rel=0.01
    )


def test_queues_of_few_frames_and_those_that_no_machine_fills_are_left_out():
    asked = Expected((LINK, BACK))
    assert burst_links(asked) == [LINK, BACK]
    quick = LINK._replace(rate_mbyte_s=66.0)
    assert burst_links(Expected((quick, BACK))) == [quick, BACK]
    for odd in (
        LINK._replace(rate_mbyte_s=0.1, buffer_ms=100.0),  # seven frames
        LINK._replace(rate_mbyte_s=500.0),
        LINK._replace(rate_mbyte_s=66.0, loss_pct=0.5),  # single frames
        LINK._replace(loss_pct=100.0),
    ):
        assert odd not in burst_links(Expected((odd, BACK)))
    assert burst_links(Expected((LINK, BACK), uplinks={"node1": 2.0})) == [BACK]


@pytest.mark.parametrize("profile", ["mobile", "wan"])
def test_side_by_side_go_as_many_as_a_machine_carries(profile):
    links = burst_links(Expected(links_of(4, profile)))
    orders = burst_orders(links, {f"node{n}": f"10.0.0.{n}" for n in range(1, 5)})
    at = {link: orders[link.src].sends[link.dst].at_s for link in links}
    for moment in at.values():
        together = [
            load_mbyte_s(link)
            for link, at_s in at.items()
            if at_s <= moment < at_s + link.buffer_ms / 1e3
        ]
        assert sum(together) <= USUAL.budget_mbyte_s or len(together) == 1
    for link in links:
        assert orders[link.dst].counts[link.src] == orders[link.src].sends[link.dst].port
        assert orders[link.src].sends[link.dst].datagrams == 2 * queue_frames(link)
        assert at[link] + 2 * link.buffer_ms / 1e3 < orders[link.dst].seconds == bursts_s(links)


def test_a_burst_is_sent_and_counted():
    """Over loopback, which has room for the whole burst."""
    port, silent = free_ports(2)
    send = BurstSend(0.05, "127.0.0.1", port, 4, datagrams=400, queued=200, datagrams_s=200.0)
    found = burst(BurstOrder({"self": send}, {"self": port, "silent": silent}, 0.3), "127.0.0.1")
    assert 400 <= found["self"].arrived <= 404  # the first call probes if several can go as one
    assert 0 < found["self"].sent_s < 0.3 and 0 <= found["self"].short_s < 0.3
    assert found["silent"] == Burst(arrived=0, sent_s=None, short_s=None)


def slow_burst(link, room_ms, pauses_s):
    """Return what is measured by a double-queue burst with these pauses, on a queue of this size."""
    datagrams_s = link.bytes_per_s / FRAME_BYTES
    asked = QueueModel(queue_frames(link), datagrams_s)
    there = QueueModel(round(room_ms / 1e3 * datagrams_s), datagrams_s)
    at_once = 2 * queue_frames(link) // len(pauses_s)
    for pause_s in pauses_s:
        asked.add(at_once, pause_s)
        there.add(at_once, pause_s)
    measured_ms = room_ms - 1e3 * there.short_s
    return Queue(measured_ms, 1e3 * asked.short_s)


EVEN, AT_THE_END = [0.02] * 20, [0.0] * 19 + [0.15]


@pytest.mark.parametrize("pauses_s", [EVEN, AT_THE_END, [0.3, *AT_THE_END]])
def test_a_queue_that_a_slow_sender_cannot_fill_is_measured_again_and_not_called_broken(pauses_s):
    right = slow_burst(LINK, LINK.buffer_ms, pauses_s)
    assert right.buffer_ms < LINK.buffer_ms - buffer_tolerance_ms(LINK)
    assert right.buffer_ms + right.short_ms == pytest.approx(LINK.buffer_ms, abs=1)
    assert hides_queue(LINK, right)


def test_a_queue_that_no_burst_could_fill_is_undecided_also_if_nothing_else_says_that_the_host_is_busy():
    right = slow_burst(LINK, LINK.buffer_ms, EVEN)
    found = Measured(160.0, 0.0, 60, 60, 60, 0, delay_ms=80.0, queue=right)
    verdict = judge(LINK, Expected((LINK, BACK)), found)
    assert (verdict.broken, verdict.undecided) == ((), ("buffer",))
    assert "too slow" in verdict.limits[0]
    half = slow_burst(LINK, LINK.buffer_ms / 2, [0.0] * 20)
    verdict = judge(LINK, Expected((LINK, BACK)), replace(found, queue=half))
    assert (verdict.broken, verdict.undecided, verdict.limits) == (("buffer",), (), ())


def test_a_burst_slower_than_its_link_says_nothing_about_the_queue():
    """As on netem in the guest: 16 MB/s of datagrams on a link of 86, whose queue seemed to hold -691 ms."""
    link = LINK._replace(rate_mbyte_s=86.4014, buffer_ms=57.249)
    assert hides_queue(link, Queue(-690.7, short_ms=689.7))
    assert not hides_queue(link, Queue(-690.7, short_ms=50.0))
    assert not hides_queue(link, Queue(200.0, short_ms=689.7))  # no sender makes a queue too large


@pytest.mark.parametrize("pauses_s", [[0.0] * 20, [0.001] * 20])
def test_a_queue_of_half_the_size_is_not_put_down_to_a_sender_that_was_quick(pauses_s):
    half = slow_burst(LINK, LINK.buffer_ms / 2, pauses_s)
    assert half.buffer_ms == pytest.approx(LINK.buffer_ms / 2, abs=1)
    assert not hides_queue(LINK, half)
