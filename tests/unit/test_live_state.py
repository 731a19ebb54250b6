"""The state document of a run in progress, made from nodes' lines, exits and events."""

import json
import math
from dataclasses import replace

import pytest
from live_runs import BEGAN, MBYTE, hear, line, running, tracker, under_way

from cluster.accounting.clocks import HostClock
from cluster.live.describe import describe
from cluster.live.news import ClocksMeasured, Happened, Noted, Phase, RankEnded, RankRestarted
from cluster.live.sample import RankSample, Sample, parse_sample
from cluster.live.state import LineRow, parse_state, to_json
from cluster.live.tracker import update
from protocol.rank import LOST

NOTE = "{begun} {open} all_reduce 4799528 train 12 {at}"


def rows(one, at):
    return describe(one, (), at).ranks


def states(one, at):
    return [row.state for row in rows(one, at)]


def test_steps_time_and_links_of_a_run_under_way():
    state = describe(under_way(10), [LineRow("node1", "hello")], BEGAN + 10)
    assert (state.phase, state.step, state.steps) == ("running", 10, 200)
    assert state.steps_s == pytest.approx(1.0)
    assert state.left_s == pytest.approx(190)
    assert (state.computing, state.communicating) == (pytest.approx(0.5), pytest.approx(0.3))
    assert state.other == pytest.approx(0.2)
    assert state.told_by == "metrics"
    link = state.links[0]
    assert (link.src, link.dst, link.asked_mbyte_s) == ("node1", "node2", 4.0)
    assert link.mbyte_s == pytest.approx(1.0)
    assert link.sent_bytes == 9 * MBYTE  # since the first sample
    assert state.history[-1].mbyte_s == pytest.approx(6.0)
    assert state.nodes_cpu_pct == pytest.approx(0.3)
    assert state.lines == (LineRow("node1", "hello"),)


def test_the_document_is_read_as_it_was_written():
    state = describe(under_way(3), [LineRow("node1", "é")], BEGAN + 3)
    assert parse_state(to_json(state)) == state
    assert "\n" not in to_json(state)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"run": 5},
        {"ranks": [5]},
        {"ranks": {}},
        {"links": [{"src": "a", "dst": "b", "asked_mbyte_s": "much"}]},
        {"links": [{"src": "a"}]},
        {"notes": [[]]},
        {"step": True},
        {"time": 10**400},
        {"time": math.inf},
        {"elapsed_s": math.nan},
    ],
)
def test_a_document_of_another_shape_is_none(change):
    said = json.loads(to_json(describe(running(), (), BEGAN)))
    assert parse_state(json.dumps(said)) is not None
    if change != {"ranks": {}}:
        assert parse_state(json.dumps(said | change)) is None
    else:  # an empty mapping counts as no rows
        assert parse_state(json.dumps(said | change)).ranks == ()


def test_a_document_that_is_cut_short_is_none():
    text = to_json(describe(running(), (), BEGAN))
    assert parse_state(text[:-5]) is None
    assert parse_state("[" * 100000) is None
    assert parse_state(json.dumps(json.loads(text) | {"added_later": 1})) is not None


def test_numbers_that_json_has_not_become_null():
    state = describe(running(), (), BEGAN, host_cpu_pct=math.nan)
    assert json.loads(to_json(state))["host_cpu_pct"] is None


def test_a_rank_in_a_collective_waits_for_who_has_not_begun_it():
    one, at = running(), BEGAN + 5
    one = hear(
        one, 0, at, state="S", cpu_s=0, main_s=0, collective=NOTE.format(begun=5, open=1, at=at - 2)
    )
    one = hear(one, 1, at, collective=NOTE.format(begun=4, open=0, at=at - 9))
    one = hear(
        one, 2, at, state="S", cpu_s=0, main_s=0, collective=NOTE.format(begun=5, open=1, at=at - 1)
    )
    first, second, third = rows(one, at)
    assert (first.state, first.doing) == (
        "waiting",
        "for node2: all_reduce of 4.8 MB (train, step 12)",
    )
    assert (second.state, third.state) == ("computing", "waiting")
    one = hear(
        one,
        1,
        at + 0.1,
        state="S",
        cpu_s=5,
        main_s=5,
        collective=NOTE.format(begun=5, open=1, at=at),
    )
    assert states(one, at + 0.1) == ["collective"] * 3


def test_who_was_seen_last_before_a_collective_began_is_not_late():
    one, at = running(), BEGAN + 5
    one = hear(one, 1, at - 0.9, collective=NOTE.format(begun=4, open=0, at=at - 9))
    one = hear(
        one,
        0,
        at,
        state="S",
        cpu_s=0,
        main_s=0,
        collective=NOTE.format(begun=5, open=1, at=at - 0.5),
    )
    assert states(one, at)[0] == "collective"


@pytest.mark.parametrize(
    ("ahead_s", "seen_s", "is_late"), [(30.0, -0.9, False), (-30.0, 0.1, True)]
)
def test_who_is_late_is_told_by_one_clock(ahead_s, seen_s, is_late):
    """node2 is on a host whose clock differs; node1 has been in the collective for half a second."""
    one = update(running(), ClocksMeasured({"node2": HostClock(ahead_s, 0.01)}), BEGAN)
    at = BEGAN + 5
    note = NOTE.format(begun=4, open=0, at=at - 9 + ahead_s)
    one = hear(one, 1, at + seen_s + ahead_s, collective=note)
    note = NOTE.format(begun=5, open=1, at=at - 0.5)
    one = hear(one, 0, at, state="S", cpu_s=0, main_s=0, collective=note)
    assert states(one, at)[0] == ("waiting" if is_late else "collective")


def test_nobody_waits_for_a_rank_that_has_ended():
    one, at = running(), BEGAN + 5
    one = hear(
        one, 0, at, state="S", cpu_s=0, main_s=0, collective=NOTE.format(begun=5, open=1, at=at - 2)
    )
    one = hear(one, 1, at, collective=NOTE.format(begun=4, open=0, at=at - 9))
    one = update(one, RankEnded("node2", 0), at)
    assert states(one, at)[:2] == ["collective", "ended"]


def test_a_rank_that_computes_while_a_collective_is_under_way_computes():
    one, at = running(), BEGAN + 5
    note = NOTE.format(begun=5, open=1, at=at)
    one = hear(hear(one, 0, at, collective=note), 0, at + 1, collective=note)
    assert rows(one, at + 1)[0].state == "computing"
    resting = {"main_s": 6.0, "cpu_s": 8.0, "collective": note}  # gloo's threads are working
    assert rows(hear(one, 0, at + 2, **resting), at + 2)[0].state == "collective"


def test_every_other_state_has_its_word():
    one, at = running(), BEGAN + 1
    assert states(one, at) == ["starting"] * 3
    one = hear(
        hear(hear(one, 0, at, state="T"), 1, at, state="S", cpu_s=0), 2, at, state="D", cpu_s=0
    )
    assert states(one, at) == ["stopped", "waiting", "waiting"]
    one = update(update(one, RankEnded("node1", 0), at), RankEnded("node2", LOST), at)
    one = update(one, RankEnded("node3", -9), at)
    assert states(one, at) == ["ended", "lost", "failed"]
    again = update(running(), RankRestarted("node2", 1), at)
    row = rows(again, at)[1]
    assert (row.state, row.restarts) == ("restarting", 1)


def test_a_node_that_is_not_heard_of_is_silent_and_its_links_unknown():
    one = under_way(5)
    one = hear(hear(one, 0, BEGAN + 12), 1, BEGAN + 12)
    state = describe(one, (), BEGAN + 12)
    assert [row.state for row in state.ranks] == ["computing", "computing", "silent"]
    assert state.ranks[2].silent_s == 7.0
    assert {link.mbyte_s for link in state.links if link.src == "node3"} == {None}
    assert states(update(one, Phase("collecting"), BEGAN + 13), BEGAN + 60)[2] == "computing"


def test_programs_without_metrics_have_shares_by_what_was_seen():
    one = running()
    for second in range(1, 9):
        at = BEGAN + second
        waits = {
            "state": "S",
            "cpu_s": 0,
            "main_s": 0,
            "collective": NOTE.format(begun=1, open=1, at=0),
        }
        one = hear(one, 0, at, **({} if second % 2 else waits))
    state = describe(one, (), at)
    assert (state.told_by, state.step) == ("looks", None)
    assert 0.3 < state.ranks[0].computing < 0.7
    assert state.left_s is None


def test_counters_that_begin_anew_and_clocks_that_are_set_back_say_nothing_wrong():
    one = under_way(5)
    one = hear(one, 0, BEGAN + 6, sent=100)  # the counters began anew
    link = describe(one, (), BEGAN + 6).links[0]
    assert (link.mbyte_s, link.sent_bytes) == (None, 4 * MBYTE)
    one = hear(one, 0, BEGAN + 2, sent=MBYTE)
    assert describe(one, (), BEGAN + 7).links[0].mbyte_s is None


def test_events_and_notes_are_kept_and_bounded():
    one = tracker()
    for number in range(100):
        one = update(update(one, Happened(number, "wan"), BEGAN), Noted(str(number)), BEGAN)
    state = describe(one, (), BEGAN)
    assert [event.after_s for event in state.events] == list(range(80, 100))
    assert state.notes[-1] == "99" and len(state.notes) == 10


HOSTILE = [
    "",
    "null",
    "[]",
    '"words"',
    "{",
    "[" * 100_000,
    '{"time": "now"}',
    '{"time": true}',
    '{"time": NaN}',
    '{"time": 1e400}',
    '{"time": ' + "9" * 400 + "}",
    '{"time": 1, "x": "' + "x" * 70_000 + '"}',
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_line_of_telemetry_counts_as_not_there(text):
    assert parse_sample(text, [0], ["node2"]) is None


def test_a_line_that_is_nested_too_deeply_does_no_harm():
    """Some versions of Python parse it, others refuse."""
    deep = '{"time": 1, "ranks": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}"
    assert parse_sample(deep, [0], ["node2"]) in (None, Sample(1, {0: RankSample()}))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "1",
        [],
        {},
        [[]],
        -1,
        math.nan,
        math.inf,
        10**30,
        "\x1b[2J",
        "[bold]x[/bold]",
        "²",
    ],
)
def test_whatever_stands_in_a_line_a_document_comes_of_it(value):
    keys = (
        "state",
        "cpu_s",
        "main_s",
        "collective",
        "step",
        "loss",
        "score",
        "compute_s",
        "comm_s",
    )
    for key in (*keys, "began", "time"):
        text = line(0, BEGAN + 1, ["node2"], **{key: value})
        sample = parse_sample(text, [0], ["node2"])
        assert isinstance(sample, Sample), key
        one = hear(running(), 0, BEGAN + 1, **{key: value})
        assert parse_state(to_json(describe(one, (), BEGAN + 2)))
    for links in (value, {"node2": value}, {"node2": [value] * 4}, {"node2": [1, 1, 1, value, 1]}):
        said = json.loads(line(0, BEGAN + 1)) | {"links": links}
        sample = parse_sample(json.dumps(said), [0], ["node2"])
        assert sample.links == {}


def test_a_node_has_no_word_on_others():
    said = json.loads(line(0, BEGAN + 1, ["node2", "node9"], step=5))
    said["ranks"]["1"] = said["ranks"]["0"]
    sample = parse_sample(json.dumps(said), [0], ["node2"])
    assert (set(sample.ranks), set(sample.links)) == ({0}, {"node2"})


@pytest.mark.parametrize(
    "note", ["1 1 a b c d e", "x", "1 1 all_reduce 5 train 1 nan", "9" * 150, "1 " * 90]
)
def test_a_note_that_is_none_is_no_collective(note):
    sample = parse_sample(line(0, BEGAN + 1, collective=note), [0], [])
    assert sample.ranks[0].collective is None


def test_a_loss_that_is_no_number_is_told_apart_from_one_not_told():
    """Nodes leave out a loss that is not finite, and so does a program that has none."""
    one = hear(running(), 0, BEGAN + 1, step=1, compute_s=0.5, comm_s=0.1)
    one = hear(one, 1, BEGAN + 1, step=1)
    shown = describe(one, (), BEGAN + 1)
    assert [row.bad_loss for row in shown.ranks] == ["not a number", "", ""]
    assert parse_state(to_json(shown)) == shown
    foreign = hear(replace(running(), steps=None), 0, BEGAN + 1, step=1, compute_s=0.5, comm_s=0.1)
    assert describe(foreign, (), BEGAN + 1).ranks[0].bad_loss == ""
    told = hear(one, 0, BEGAN + 2, step=2, compute_s=0.9, comm_s=0.1, loss=2.0)
    assert describe(told, (), BEGAN + 2).ranks[0].bad_loss == ""
