"""Traces on a node: when each step is due, a link's values then, and the commands to tc and the delayer."""

import json
import math

import pytest
from plans import node_plan

from node.wire import egress, netem
from node.wire.commands import Device
from node.wire.layout import lay_out
from node.wire.nfqueue import backend
from node.wire.replay.traces import LATE_S, Playing, Trace, check_links, make_trace
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
    playing.done(100.5 + 2 * LATE_S)  # late
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
        "qdisc replace dev eth0 parent 6777:11 handle 11: tbf rate 1tbit burst 1514 limit 200000",
    ]
    assert egress.change_lines(after, after) == []


def test_netem_is_told_of_the_link_that_ends_here_with_other_chances_each_time():
    back, other = LINK._replace(src="node2", dst="node1"), LINK._replace(src="node3", dst="node1")
    before = shape([back, other])
    after = shape([back._replace(delay_ms=20.0), other])
    lines = [netem.change(before, after, number) for number in (0, 1, 2)]
    assert [len(said) for said in lines] == [1, 1, 1]
    assert all(" delay 20.000000ms " in said for (said,) in lines)
    assert len({said.split(" seed ")[1] for (said,) in lines}) == 3
    assert lines[0][0] in netem.tc_lines(before, after)  # number 0 is what `apply` would say


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
    (said,) = netem.change(shape([back]), shape([back._replace(**change)]), 1)
    assert words in said


def test_the_delayer_is_told_of_changed_queues_alone(monkeypatch):
    told = []
    monkeypatch.setattr(backend, "_tell", told.append)
    back = LINK._replace(src="node2", dst="node1")
    before, after = shape([LINK, back]), shape([LINK, back._replace(delay_ms=20.0)])
    assert backend.change(before, after, 3) == []
    assert backend.change(after, after, 4) == []
    ((queue, behaviour),) = told[0]["change"].items()
    assert len(told) == 1
    assert queue == backend.iptables.INCOMING + 1
    assert behaviour.delay_s == 0.02


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
