"""Traces on a node: when each step is due, a link's values then, and the commands to tc and the delayer."""

import itertools
import json
import math
import os
import threading
import time

import pytest
from plans import node_plan

from node.wire import egress, netem
from node.wire.commands import Device
from node.wire.layout import lay_out
from node.wire.nfqueue import backend
from node.wire.playback.player import Orders
from node.wire.playback.traces import (
    LATE_CHANGE_S,
    Playing,
    Trace,
    check_links,
    make_trace,
    under_traces,
)
from protocol.link import Link
from protocol.reader import FormatError
from protocol.trace import Ended, parse_first_order

LINK = Link("node1", "node2", 5.0, 100.0, 0.0, 0.0, 200.0)
RATES = Trace(
    [("node1", "node2")], ["rate_mbyte_s"], [0.0, 0.5, 0.6], [[4.0], [0.0], [1.0]], 2.0, math.inf
)


def shape(plan_links):
    return lay_out(node_plan((2, 3), plan_links), Device("eth0", 1500), None)


def order(**changes):
    trace = {
        "links": [["node1", "node2"]],
        "fields": ["rate_mbyte_s", "delay_ms"],
        "steps": [[0, 4.0, 30], [0.5, 1.0, 60]],
        "seconds": 1.0,
        "lasts_s": None,
    }
    return {"links": [["node1", "node2"]], "traces": {"0": trace | changes}}


def test_steps_come_round_after_round():
    moments = (0, 0.49, 0.5, 0.61, 1.99, 2.0, 2.55)
    assert [RATES.step_at(at) for at in moments] == [0, 0, 1, 2, 2, 3, 4]
    assert [RATES.due_s(step) for step in (0, 1, 2, 3, 7)] == [0, 0.5, 0.6, 2.0, 4.5]
    for step in range(3000):
        due_s = RATES.due_s(step)
        assert RATES.step_at(due_s) == step
        assert RATES.step_at(due_s - 1e-5) == step - 1


def test_the_time_is_kept_and_what_is_late_is_counted():
    playing = Playing(RATES._replace(lasts_s=5.0), 100.0)
    playing.done(100.001)
    assert playing.next_due() == 100.5
    assert not playing.advance(100.4)
    assert playing.advance(100.5)
    playing.done(100.5 + 2 * LATE_CHANGE_S)  # late
    assert playing.next_due() == 100.6
    assert playing.advance(102.01)  # two are due: the first is skipped
    playing.done(102.02)
    assert playing.report("a") == Ended("a", changes=4, late=2, worst_ms=100.0)
    assert playing.advance(107.0)  # after the end: only steps up to it, none of the next round
    assert playing.report("a").changes == len([s for s in range(99) if RATES.due_s(s) < 5.0])
    assert playing.next_due() == playing.ends == 105.0


def test_a_trace_that_ends_with_its_round_does_not_begin_another():
    playing = Playing(RATES._replace(lasts_s=2.0), 0.0)
    playing.advance(2.0)
    assert playing.applied_to(LINK, 2.0, 1514).rate_mbyte_s == 1.0


def test_the_queue_keeps_its_bytes_whatever_the_rate():
    playing = Playing(RATES, 0.0)
    rooms = set()
    for now in (0.0, 0.5, 0.6):
        playing.advance(now)
        rooms.add(egress.queue_bytes(playing.applied_to(LINK, now, 1514), 1514))
    assert rooms == {4_000_000 * 200 // 1000}


def test_an_outage_is_a_rate_at_which_one_packet_takes_as_long():
    playing = Playing(RATES, 0.0)
    playing.advance(0.5)
    assert playing.is_standing_still()
    assert playing.applied_to(LINK, 0.5, 1514).bytes_per_s == pytest.approx(1514 / 0.1)
    assert playing.applied_to(LINK, 0.575, 1514).bytes_per_s == pytest.approx(1514 / 0.025)
    playing.advance(0.6)
    assert not playing.is_standing_still()


@pytest.mark.parametrize(
    ("rows", "at", "seconds"),
    [
        ([[1.0], [0.0], [0.0]], 0.5, 1.5),  # into the next round
        ([[0.0], [0.0], [0.0]], 0.5, math.inf),
        ([[1.0], [0.0], [2.0]], 0.55, 0.05),
        ([[1.0], [0.0], [2.0]], 0.1, 0.0),
    ],
)
def test_how_long_an_outage_goes_on(rows, at, seconds):
    assert RATES._replace(rows=rows).standstill_s(at) == pytest.approx(seconds)


def test_an_endless_outage_lets_a_packet_a_second_pass():
    playing = Playing(RATES._replace(rows=[[0.0]] * 3), 0.0)
    assert playing.applied_to(LINK, 0.0, 1514).bytes_per_s == pytest.approx(1514)


WITH_AN_OUTAGE = Trace(
    [("node1", "node2")], ["rate_mbyte_s"], [0.0, 1.0, 11.0], [[1.0], [0.0], [1.0]], 12.0, math.inf
)


def standstill_bytes_s(trace, link, waiting_bytes=0, at_s=1.0):
    """Return the rate of a link in the outage of a trace, if so much waited when the trace began."""
    playing = Playing(trace, 0.0)
    playing.note_waiting({link.ends: waiting_bytes})
    playing.advance(at_s)
    return playing.applied_to(link, at_s, 1514).bytes_per_s


@pytest.mark.parametrize("rate_mbyte_s", [5.0, 65.0, 250.0, 1000.0])
def test_an_outage_lets_one_packet_of_the_trace_pass_however_fast_the_plan_is(rate_mbyte_s):
    link = LINK._replace(rate_mbyte_s=rate_mbyte_s)
    assert standstill_bytes_s(WITH_AN_OUTAGE, link) == pytest.approx(1514)


def test_an_outage_of_a_fast_trace_lets_one_of_its_super_packets_pass():
    fast = WITH_AN_OUTAGE._replace(rows=[[1.0], [0.0], [65.0]])
    assert standstill_bytes_s(fast, LINK) == pytest.approx(8 * 1514)
    lossy = LINK._replace(loss_pct=1.0)
    assert standstill_bytes_s(fast, lossy) == pytest.approx(1514)
    fields = ["rate_mbyte_s", "loss_pct"]
    at_times = fast._replace(fields=fields, rows=[[1.0, 0.0], [0.0, 2.0], [65.0, 2.0]])
    assert standstill_bytes_s(at_times, lossy) == pytest.approx(8 * 1514)


@pytest.mark.parametrize(
    ("waiting_bytes", "at_s", "frames"),
    [(900_000, 1.0, 1), (1_100_000, 1.0, 8), (1_100_000, 13.5, 1)],
)
def test_super_packets_from_before_a_trace_count_until_they_are_gone(waiting_bytes, at_s, frames):
    """At the rate of a frame they would hold the link up for seconds after the outage."""
    link = LINK._replace(rate_mbyte_s=65.0)
    found = standstill_bytes_s(WITH_AN_OUTAGE, link, waiting_bytes, at_s)
    assert found == pytest.approx(frames * 1514)


def test_what_waits_is_not_known_at_first():
    playing = Playing(WITH_AN_OUTAGE, 0.0)
    playing.advance(1.0)
    link = LINK._replace(rate_mbyte_s=65.0)
    assert playing.applied_to(link, 1.0, 1514).bytes_per_s == pytest.approx(8 * 1514)


def test_what_a_trace_does_not_say_stays_and_a_cut_stays_a_cut():
    lossy = RATES._replace(fields=["loss_pct"], rows=[[2.0]] * 3)
    assert Playing(lossy, 0.0).applied_to(LINK, 0.0, 1514) == LINK._replace(loss_pct=2.0)
    cut = LINK._replace(loss_pct=100.0)
    assert Playing(lossy, 0.0).applied_to(cut, 0.0, 1514) == cut


def test_a_change_is_said_of_the_changed_link_alone():
    others = [LINK._replace(dst="node3"), LINK._replace(src="node2", dst="node1")]
    before, after = shape([LINK, *others]), shape([LINK._replace(rate_mbyte_s=1.0), *others])
    lines = egress.change_lines(before, after)
    assert [line.split(" htb ")[0] for line in lines] == [
        "class replace dev eth0 parent 6777:1 classid 6777:11",
        "qdisc replace dev eth0 parent 6777:11 handle 11: tbf rate 1000tbit burst 1514 limit 200000",
    ]
    assert egress.change_lines(after, after) == []


BACK = LINK._replace(src="node2", dst="node1")


def test_netem_is_told_of_the_link_that_ends_here_with_other_chances_each_time():
    other = LINK._replace(src="node3", dst="node1")
    before = shape([BACK, other])
    after = shape([BACK._replace(delay_ms=20.0), other])
    lines = [netem.change(before, after._replace(changes=number)) for number in (0, 1, 2)]
    assert [len(said) for said in lines] == [1, 1, 1]
    assert all(" delay 20.000000ms " in said for (said,) in lines)
    assert len({said.split(" seed ")[1] for (said,) in lines}) == 3
    assert lines[0][0] in netem.tc_lines(before, after)  # as `apply` would say


def traced(layout, trace, at_s):
    """Return a layout with the values that a trace gives its links at a moment."""
    playing = Playing(trace, 0.0)
    playing.advance(at_s)
    return under_traces(layout._replace(changes=layout.changes + 1), [playing], at_s)


@pytest.mark.parametrize("downlink_mbyte_s", [None, 8.0])
def test_netem_is_told_nothing_of_a_rate_so_that_bursts_of_losses_go_on(downlink_mbyte_s):
    lossy = BACK._replace(loss_pct=2.0, loss_burst=10.0)
    layout = lay_out(
        node_plan((2, 3), [lossy], downlink_mbyte_s=downlink_mbyte_s), Device("eth0", 1500), None
    )
    trace = WITH_AN_OUTAGE._replace(links=[("node2", "node1")], rows=[[1.0], [0.0], [9.0]])
    steps = [traced(layout, trace, at_s) for at_s in (0.0, 1.0, 10.5, 11.0)]
    assert len({link.rate_mbyte_s for step in steps for link in step.plan.links}) == 4
    assert [netem.change(*pair) for pair in itertools.pairwise(steps)] == [[], [], []]
    begun, ended = netem.change(layout, steps[0]), netem.change(steps[-1], layout)
    assert set(ended) <= set(netem.tc_lines(None, layout))
    limits = [int(lines[-1].split(" limit ")[1].split()[0]) for lines in (begun, ended)]
    assert limits[0] > limits[1]  # at 9 MB/s more is under way than at 5
    assert (
        len(begun) == len(ended) == (2 if downlink_mbyte_s else 1)
    )  # its share of the downlink, too


def test_room_is_made_for_the_longest_delay_of_a_trace():
    """Else what is under way from before leaves no room once the delay has fallen."""
    fields, rows = ["delay_ms", "jitter_ms"], [[300.0, 0.0], [20.0, 9.0], [20.0, 0.0]]
    trace = WITH_AN_OUTAGE._replace(links=[("node2", "node1")], fields=fields, rows=rows)
    layout = lay_out(node_plan((2, 3), [BACK], downlink_mbyte_s=8.0), Device("eth0", 1500), None)
    (line,) = netem.change(traced(layout, trace, 0.0), traced(layout, trace, 11.0))
    assert f" limit {round(5e6 * (0.3 + 4 * 0.009 + 0.2) / 1514) + 20} delay 20.0" in line


def test_a_downlinks_queue_does_not_grow_while_a_trace_is_slow():
    trace = WITH_AN_OUTAGE._replace(links=[("node2", "node1")])
    layout = lay_out(node_plan((2, 3), [BACK], downlink_mbyte_s=8.0), Device("eth0", 1500), None)
    during = traced(layout, trace, 5.0)
    assert during.plan.links[0].buffer_ms > 100_000
    assert backend.request_of(during).downlink == backend.request_of(layout).downlink == (8e6, 0.2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_pct": 2.0}, " loss 2.000000% "),
        ({"jitter_ms": 3.0}, " 3.000000ms distribution normal "),
        ({"duplicate_pct": 1.0}, " duplicate 1.000000% "),
        ({"loss_pct": 10.0, "loss_burst": 4.0}, " loss gemodel "),
    ],
)
def test_netem_is_told_whatever_it_is_that_changes(change, words):
    """Netem is told not only of changed delays."""
    back = LINK._replace(src="node2", dst="node1")
    (said,) = netem.change(shape([back]), shape([back._replace(**change)]))
    assert words in said


def test_the_delayer_is_told_of_changed_queues_alone(monkeypatch):
    told = []
    monkeypatch.setattr(backend, "_tell", told.append)
    back = LINK._replace(src="node2", dst="node1")
    before, after = shape([LINK, back]), shape([LINK, back._replace(delay_ms=20.0)])
    assert backend.change(before, after) == []
    assert backend.change(after, after) == []
    ((queue, behaviour),) = told[0]["change"].items()
    assert len(told) == 1
    assert queue == backend.iptables.INCOMING + 1
    assert behaviour.delay_s == 0.02


def test_a_long_order_is_read_in_proportion_to_its_length():
    """A day at ten steps a second has 35 MB, and a pipe gives 64 KB at a time."""
    line = b"x" * 40_000_000
    reading, writing = os.pipe()
    orders = Orders(reading)
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0) as pipe:

        def put():
            for place in range(0, len(line), 65_536):
                pipe.write(line[place : place + 65_536])
            pipe.write(b"\nsecond\nthi")

        putting = threading.Thread(target=put)
        putting.start()
        began_s, got = time.thread_time(), []
        while len(got) < 2:
            got += orders.wait(10)
        took_s = time.thread_time() - began_s
        putting.join()
        pipe.write(b"rd\n")
        got += orders.wait(10)
    assert got == [line, b"second", b"third"]
    assert took_s < 2


def test_the_first_order():
    first = parse_first_order(json.dumps(order()))
    assert first.links == [("node1", "node2")]
    trace = make_trace(first.traces["0"])
    assert trace.values(1) == {"rate_mbyte_s": 1.0, "delay_ms": 60.0}
    assert (trace.times, trace.seconds, trace.lasts_s) == ([0.0, 0.5], 1.0, math.inf)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "expected an object"),
        ({"links": []}, "traces: missing"),
        (order(colour=1), "traces.0.colour: unknown key"),
        (order(fields=["colour"]), r"traces.0.fields\[0\]: expected one of rate_mbyte_s, "),
        (order(fields=[]), "traces.0.fields: expected one"),
        (order(steps=[[0, 1]]), "traces.0.steps: expected a time and 2 values in each"),
        (order(steps=[[]]), "traces.0.steps: expected a time and 2 values in each"),
        (order(steps=[]), "traces.0.steps: expected times from 0 on"),
        (order(steps=[[0.1, 1, 1]]), "times from 0 on"),
        (order(steps=[[0, 1, 1], [0, 2, 2]]), "times from 0 on"),
        (order(seconds=0.5), "times from 0 on"),
        (order(steps=[[0, -1, 1]]), r"traces.0.steps\[0\]\[1\]: expected no negative number"),
        (order(lasts_s="long"), "traces.0.lasts_s: expected a number"),
        (order(links=[["node1"]]), r"traces.0.links\[0\]: expected a list of 2"),
    ],
)
def test_what_is_no_first_order(given, words):
    with pytest.raises(FormatError, match=words):
        parse_first_order(json.dumps(given))


def test_a_trace_of_a_link_that_the_node_lacks():
    trace = RATES._replace(links=[("node1", "node9")])
    with pytest.raises(FormatError, match=r"traces.0.links: node1 has no link from node1 to node9"):
        check_links(trace, shape([LINK]).plan, "traces.0")
