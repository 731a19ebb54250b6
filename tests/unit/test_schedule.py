"""Schedules: how they are read from a file, and what is refused before anything starts."""

from math import inf

import pytest

from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.links.link import draw_links
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology
from cluster.schedule.events import check_nodes, check_schedule, check_slow_start, check_steps
from cluster.schedule.record import event_record, read_events
from cluster.schedule.schedule_file import load_schedule

RIDE = PROJECT_DIR / "examples" / "ride.csv"
LTE = "time_s,rate_mbyte_s,delay_ms\n0,1,50\n1,2,60\n"
LINKS = draw_links(load_profile("wan"), load_topology("star"), ClusterSpec(size=3).nodes, 1)


@pytest.fixture
def schedule(tmp_path):
    def load(text):
        path = tmp_path / "storm.yml"
        path.write_text(text)
        return load_schedule(path)

    return load


def test_moments_durations_and_changes(schedule):
    wan, link, cut = schedule(
        "- {at: 12s, profile: wan}\n"
        "- {at: 500ms, link: node1:node3, both: true, delay_ms: 80, loss_pct: 2, for: 10s}\n"
        "- {at: step 200, partition: [[node1], [node2, node3]]}\n"
    )
    assert (wan.after_s, wan.step, wan.for_s, wan.profile.name) == (12, None, None, "wan")
    assert (link.after_s, link.for_s) == (0.5, 10)
    assert [(c.src, c.dst) for c in link.changes] == [("node1", "node3"), ("node3", "node1")]
    assert link.changes[0].values == {"delay_ms": 80, "loss_pct": 2}
    assert (cut.step, cut.after_s, cut.for_s) == (200, 0, None)


def test_a_partition_cuts_the_links_between_its_sets_and_no_other(schedule):
    (cut,) = schedule("- {at: 1s, partition: [[node1, node2], [node3]]}")
    changes = cut.changes_on(LINKS)
    assert {(c.src, c.dst) for c in changes} == {("node1", "node3"), ("node3", "node1")}
    assert all(c.values == {"loss_pct": 100} for c in changes)
    (some,) = schedule("- {at: 1s, partition: [[node2], [node3]]}")  # node1 is in neither set
    assert some.changes_on(LINKS) == ()


def test_a_straggler_is_a_node_with_few_processors(schedule):
    slow, back = schedule(
        "- {at: 10s, cpus: {node3: 0.25, node1: 1}, for: 5s}\n- {at: 1s, cpus: {all: none}}"
    )
    assert (slow.after_s, slow.for_s, slow.cpus) == (10, 5, {"node3": 0.25, "node1": 1})
    assert back.cpus == {"all": None}
    check_nodes([slow, back], ["node1", "node2", "node3"])
    check_schedule([slow, back], ())  # nodes without links have processors, too
    with pytest.raises(UsageError, match="unknown node 'node3'"):
        check_nodes([slow], ["node1", "node2"])


def test_a_profile_that_running_nodes_cannot_take_is_refused(schedule, tmp_path):
    warm = tmp_path / "warm.yml"
    warm.write_text("rate_mbyte_s: 2\ndelay_ms: 8\nslow_start_after_idle: false\n")
    events = schedule(
        f"- {{at: 1s, link: node1:node2, loss_pct: 2}}\n- {{at: 2s, profile: {warm}}}"
    )
    check_slow_start(events, is_on=False)
    with pytest.raises(UsageError, match="slow start after idle is on and would be off"):
        check_slow_start(events, is_on=True)


def test_a_flap_is_a_cut_again_and_again(schedule):
    flaps = schedule("- {at: 10s, flap: node1:node2, down: 500ms, up: 2s, times: 3}")
    assert [(event.after_s, event.for_s) for event in flaps] == [(10, 0.5), (12.5, 0.5), (15, 0.5)]
    assert {(c.src, c.dst) for c in flaps[0].changes} == {("node1", "node2"), ("node2", "node1")}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("flap: node1:node2, down: 20ms, up: 2s, times: 250", "down is '20ms'"),
        ("flap: node1:node2, down: 2s, up: 299ms, times: 250", "up is '299ms'"),
        ("link: node1:node2, delay_ms: 4, for: 0s", "for is '0s'"),
        ("profile: wan, for: 100ms", "for is '100ms'"),
    ],
)
def test_what_is_over_before_it_can_be_made_is_refused(schedule, item, words):
    with pytest.raises(UsageError, match=words) as caught:
        schedule(f"- {{at: 0s, {item}}}")
    assert "300ms or longer" in caught.value.hint and "trace" in caught.value.hint


def test_a_trace_may_be_short(schedule):
    (ride,) = schedule(f"- {{at: 0s, trace: {RIDE}, link: node1:node2, for: 50ms}}")
    assert ride.playback.lasts_s == 0.05


def test_flaps_end_within_the_year_that_a_run_can_keep(schedule):
    flap = "flap: node1:node2, down: 1h, up: 1h"
    (*_, last) = schedule(f"- {{at: 300h, {flap}, times: 4243}}")
    assert read_events([event_record(last)], "run.yml") == (last,)
    with pytest.raises(UsageError, match=r"item 1: the last of 4244 cuts begins after 8786 h"):
        schedule(f"- {{at: 300h, {flap}, times: 4244}}")


def test_the_examples_are_some():
    assert len(load_schedule(PROJECT_DIR / "examples" / "storm.yml")) == 4
    ride, *flaps = load_schedule(PROJECT_DIR / "examples" / "ride.yml")
    assert ride.playback.trace.name == "ride.csv" and len(flaps) == 3


def test_a_trace_lies_beside_its_schedule(schedule, tmp_path):
    (tmp_path / "lte.csv").write_text(LTE)
    (tmp_path / "lte.up").write_text("1\n")
    ride, steady, once = schedule(
        "- {at: 2s, trace: lte.csv, link: node1:node3, both: true, loop: true, for: 60s}\n"
        "- {at: 2s, trace: lte.up, link: node1:node2}\n"
        "- {at: 9s, trace: lte.up, link: node1:node2, loop: false}\n"
    )
    assert ride.playback.pairs == (("node1", "node3"), ("node3", "node1"))
    assert (ride.after_s, ride.for_s, ride.changes) == (2, None, ())  # it ends by itself
    assert [event.playback.lasts_s for event in (ride, steady, once)] == [60, inf, 0.001]


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ("{at: 5s, link: node1:node3, rate_mbyte_s: 1}", "rate_mbyte_s"),
        ("{at: step 3, link: node3:node1, both: true, delay_ms: 1}", "delay_ms"),
        ("{at: 61s, trace: lte.csv, link: node1:node3}", "delay_ms"),
    ],
)
def test_what_would_change_the_same_as_a_trace_meanwhile_is_refused(
    schedule, tmp_path, other, field
):
    (tmp_path / "lte.csv").write_text(LTE)
    trace = "- {at: 2s, trace: lte.csv, link: node1:node3, loop: true, for: 60s}\n"
    with pytest.raises(UsageError, match=f"would change {field} of node1:node3"):
        check_schedule(schedule(f"{trace}- {other}"), LINKS)


@pytest.mark.parametrize(
    "other",
    [
        "{at: 5s, link: node1:node3, loss_pct: 1}",  # not a value of the trace
        "{at: 5s, link: node3:node1, delay_ms: 1}",  # the other direction
        "{at: 1s, link: node1:node3, delay_ms: 1}",  # before the trace, which overrides it
        "{at: 62s, link: node1:node3, delay_ms: 1}",
        "{at: 5s, partition: [[node1], [node2, node3]], for: 1s}",
        "{at: 5s, flap: node1:node3, down: 1s, up: 1s, times: 2}",
        "{at: 5s, profile: mobile}",
        "{at: 5s, heal: true}",
    ],
)
def test_what_leaves_a_traces_values_alone_may_happen_meanwhile(schedule, tmp_path, other):
    (tmp_path / "lte.csv").write_text(LTE)
    trace = "- {at: 2s, trace: lte.csv, link: node1:node3, loop: true, for: 60s}\n"
    check_schedule(schedule(f"{trace}- {other}"), LINKS)


BAD = [
    ("at: 12s", "a schedule is a list"),
    ("- [1", "not YAML"),
    ("- {profile: wan}", "item 1"),
    ("- {at: 12s}", "0 of profile"),
    ("- {at: 12s, profile: wan, heal: true}", "2 of profile"),
    ("- {at: noon, profile: wan}", "at is 'noon'"),
    ("- {at: 12s, profile: wann}", "did you mean 'wan'"),
    ("- {at: 12s, link: node1, delay_ms: 1}", "no link"),
    ("- {at: 12s, link: node1:node2, dely_ms: 1}", "did you mean 'delay_ms'"),
    ("- {at: 12s, link: node1:node2, delay_ms: far}", "delay_ms is 'far'"),
    ("- {at: 12s, link: node1:node2}", "nothing to change"),
    ("- {at: 12s, partition: [[node1]]}", "partition is"),
    ("- {at: 12s, partition: [[node1], [node1]]}", "a node twice"),
    ("- {at: 12s, flap: node1:node2, down: 1s, up: 1s}", "times is missing"),
    ("- {at: 12s, trace: lte.csv}", "a trace needs a link"),
    ("- {at: 12s, trace: lte.csv, link: node1:node2}", "no trace"),
    ("- {at: 12s, trace: lte.csv, link: node1:node2, delay_ms: 3}", "unknown key"),
    ("- {at: 12s, profile: wan, for: long}", "for is 'long'"),
    ("- {at: 12s, flap: node1:node2, down: 1s, up: 1s, times: 1, for: 1s}", "unknown key"),
    ("- {at: 12s, cpus: 0.5}", "cpus is 0.5"),
    ("- {at: 12s, cpus: {node3: 0}}", "cpus of node3 is 0"),
    ("- {at: 12s, cpus: {node3: half}}", "cpus of node3 is 'half'"),
    ("- {at: 12s, cpus: {node3: 0.5}, memory: 1g}", "unknown key"),
    ("- {at: 12s, heal: false}", "heal is False"),
    ("- {at: 12s, link: node1:node2, both: 'no', delay_ms: 1}", "both is 'no'"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_what_is_wrong_is_named_with_its_item(schedule, text, words):
    with pytest.raises(UsageError) as caught:
        schedule(text)
    assert words in str(caught.value)
    assert "storm.yml" in str(caught.value)


@pytest.mark.parametrize("moment", ["5", "step x", "step 1234567890", "9999h", "[1]"])
def test_a_moment_that_is_none_says_that_it_may_be_a_step(schedule, moment):
    with pytest.raises(UsageError, match="item 1: at is ") as caught:
        schedule(f"- {{at: {moment}, profile: wan}}")
    assert caught.value.hint == "10s, 500ms, 2m, or step 200; at most a year"


def test_an_event_without_its_moment_says_that_it_is_missing(schedule):
    with pytest.raises(UsageError, match=r"item 2: at is missing\n") as caught:
        schedule("- {at: 1s, heal: true}\n- {profile: wan}")
    assert caught.value.hint == "at: 10s, or at: step 200"
    with pytest.raises(UsageError, match=r"item 1 is 'wan'"):
        schedule("- wan")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {at: 1s, link: node2:node3, delay_ms: 1}", "unknown link 'node2:node3'"),
        ("- {at: 1s, flap: node2:node3, down: 1s, up: 1s, times: 1}", "unknown link"),
        (f"- {{at: 1s, trace: {RIDE}, link: node2:node3}}", "unknown link 'node2:node3'"),
        ("- {at: 1s, partition: [[node1], [node9]]}", "unknown node 'node9'"),
        ("- {at: 1s, partition: [[node2], [node3]]}", "could bypass the partition over node1"),
    ],
)
def test_what_cannot_happen_on_these_links_is_refused(schedule, text, words):
    with pytest.raises(UsageError, match=words):
        check_schedule(schedule(text), LINKS)


def test_steps_that_a_run_does_not_have_are_refused(schedule):
    events = schedule("- {at: step 5, profile: wan}")
    check_steps(events, 5)
    with pytest.raises(UsageError, match="only node.train counts steps"):
        check_steps(events, 0)
    with pytest.raises(UsageError, match="steps 1 to 4"):
        check_steps(events, 4)


def test_links_that_are_not_shaped_cannot_change(schedule):
    check_schedule((), ())
    with pytest.raises(UsageError, match="no link is shaped"):
        check_schedule(schedule("- {at: 1s, profile: wan}"), ())
    check_schedule(schedule("- {at: 1s, cpus: {node3: 0.25}}\n- {at: 9s, heal: true}"), ())


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load_schedule(tmp_path / "none.yml")
