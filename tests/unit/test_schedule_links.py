"""What a schedule makes of links is known before a run: what would end it is refused, what is slow is waited for."""

import pytest

import cluster.run.job
import cluster.schedule.runner
from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run.job import Job
from cluster.run.program import training
from cluster.run.rank_placement import place_ranks
from cluster.schedule.runner import ScheduleRunner
from cluster.schedule.schedule_file import load_schedule
from cluster.shaping.link_state import planned_link_state

SPEC = ClusterSpec(size=3)
PLACES = place_ranks([node.name for node in SPEC.nodes])
PROGRAM = training(["--steps", "40"])
WAN = planned_link_state(link_plans(SPEC.nodes, make_link_spec("wan", "full", 1, "nfqueue")))
"""node1 -> node2 has a delay of 19.6 ms, without jitter."""
LINK = "link: node1:node2"
TRACES = {
    "wild": "time_s,delay_ms,jitter_ms\n0,60,10\n1,10,50\n2,60,10\n",
    "near": "time_s,delay_ms\n0,60\n1,2\n2,60\n",
    "far": "time_s,delay_ms\n0,60\n1,80\n2,60\n",
    "shaky": "time_s,jitter_ms\n0,1\n1,30\n2,1\n",
    "calm": "time_s,delay_ms,jitter_ms\n0,60,10\n1,80,40\n2,60,10\n",
}


@pytest.fixture
def job(tmp_path):
    """A function that returns a launch over wan with a schedule."""

    def make(*items):
        for name, text in TRACES.items():
            (tmp_path / f"{name}.csv").write_text(text)
        path = tmp_path / "storm.yml"
        path.write_text("".join(f"- {{{item}}}\n" for item in items) or "[]")
        return Job(SPEC, PROGRAM, PLACES, WAN, load_schedule(path), "none", 1)

    return make


REFUSED = {
    "alone": (f"at: 1s, {LINK}, jitter_ms: 60",),
    "after another": (f"at: 1s, {LINK}, jitter_ms: 8", f"at: 2s, {LINK}, delay_ms: 2"),
    "written in another order": (f"at: 2s, {LINK}, delay_ms: 2", f"at: 1s, {LINK}, jitter_ms: 8"),
    "after another is over": (
        f"at: 1s, {LINK}, delay_ms: 200, for: 5s",
        f"at: 2s, {LINK}, jitter_ms: 60",
    ),
    "after a heal": (
        f"at: 1s, {LINK}, delay_ms: 200",
        "at: 2s, heal: true",
        f"at: 3s, {LINK}, jitter_ms: 60",
    ),
    "beneath it a profile": (f"at: 1s, {LINK}, jitter_ms: 8", "at: 2s, profile: datacenter"),
    "a profile that is over": (
        "at: 1s, profile: mobile, for: 5s",
        f"at: 2s, {LINK}, jitter_ms: 40",
    ),
    "at steps": (f"at: step 1, {LINK}, jitter_ms: 8", f"at: step 2, {LINK}, delay_ms: 2"),
    "at a step, whenever it comes": (
        f"at: step 1, {LINK}, jitter_ms: 60",
        f"at: 2s, {LINK}, delay_ms: 40",
    ),
    "in a trace": (f"at: 1s, trace: wild.csv, {LINK}",),
    "in a trace at a step": (
        f"at: step 1, trace: wild.csv, {LINK}",
        f"at: 1s, {LINK}, loss_pct: 1",
    ),
    "a trace over jitter": (f"at: 1s, {LINK}, jitter_ms: 8", f"at: 2s, trace: near.csv, {LINK}"),
    "jitter beneath a trace": (
        f"at: 1s, trace: near.csv, {LINK}, loop: true",
        f"at: 2s, {LINK}, jitter_ms: 8",
    ),
    "a trace of jitter": (f"at: 1s, trace: shaky.csv, {LINK}",),
    "a profile beneath a trace": (
        f"at: 1s, {LINK}, delay_ms: 80, for: 9s",
        f"at: 2s, trace: shaky.csv, {LINK}, loop: true",
    ),
    "two traces": (
        f"at: 1s, trace: shaky.csv, {LINK}, loop: true",
        f"at: 1s, trace: near.csv, {LINK}, loop: true",
    ),
}
ACCEPTED = {
    "room is made before": (f"at: 1s, {LINK}, delay_ms: 200", f"at: 2s, {LINK}, jitter_ms: 60"),
    "a profile makes room": ("at: 1s, profile: mobile", f"at: 2s, {LINK}, jitter_ms: 40"),
    "over in time": (f"at: 1s, {LINK}, jitter_ms: 8, for: 1s", f"at: 2s, {LINK}, delay_ms: 2"),
    "over at the same time": (
        f"at: 1s, {LINK}, delay_ms: 200, for: 2s",
        f"at: 1500ms, {LINK}, jitter_ms: 60, for: 1500ms",
    ),
    "over together, in decimals": (
        f"at: 1.1s, {LINK}, jitter_ms: 8, for: 2.2s",
        f"at: 3.3s, {LINK}, delay_ms: 2",
    ),
    "healed": (
        f"at: 1s, {LINK}, jitter_ms: 8, for: 9s",
        "at: 2s, heal: true",
        f"at: 3s, {LINK}, delay_ms: 2",
    ),
    "the other direction": (
        f"at: 1s, {LINK}, jitter_ms: 8",
        "at: 2s, link: node2:node1, delay_ms: 2",
    ),
    "in the order of steps": (
        f"at: step 9, {LINK}, jitter_ms: 60",
        f"at: step 3, {LINK}, delay_ms: 200",
    ),
    "if the step comes in time": (
        f"at: 1s, {LINK}, delay_ms: 200, for: 9s",
        f"at: step 5, {LINK}, jitter_ms: 60",
        "at: 20s, heal: true",
    ),
    "if the step is over by then": (
        f"at: step 2, {LINK}, jitter_ms: 8, for: 3s",
        f"at: step 3, {LINK}, delay_ms: 2",
    ),
    "a trace with room": (f"at: 1s, trace: calm.csv, {LINK}",),
    "a trace that makes room": (
        f"at: 1s, trace: far.csv, {LINK}, loop: true, for: 9s",
        f"at: 2s, {LINK}, jitter_ms: 9",
    ),
    "a trace that is over": (
        f"at: 1s, trace: near.csv, {LINK}",
        f"at: 9s, {LINK}, jitter_ms: 8",
    ),
}


@pytest.mark.parametrize("items", REFUSED.values(), ids=REFUSED)
def test_a_schedule_that_would_ask_for_too_much_jitter_is_refused(job, items):
    with pytest.raises(UsageError, match="is more than half of delay_ms") as caught:
        job(*items).check()
    assert str(caught.value).startswith(("at: ", "over: at: "))


@pytest.mark.parametrize("items", ACCEPTED.values(), ids=ACCEPTED)
def test_a_schedule_that_leaves_room_for_its_jitter_is_none_of_those(job, items):
    storm = job(*items)
    storm.check()
    assert storm.document("RUN")["stalled_after_s"] >= 60


class Clock:
    """The clock of a schedule, which a change of links moves on by `takes_s`."""

    def __init__(self, takes_s):
        self.now_s, self.takes_s = 0.0, takes_s

    def monotonic(self):
        return self.now_s

    time = monotonic


def failure_of(job, tmp_path, monkeypatch):
    """Return how the schedule of seconds fails on nodes that need 0.2 s for a change, by a clock of its own."""
    clock = Clock(0.2)
    monkeypatch.setattr(cluster.schedule.runner, "time", clock)

    def apply_some(fleet, plans):
        clock.now_s += clock.takes_s

    monkeypatch.setattr(cluster.schedule.runner, "apply_some", apply_some)
    fleet, limits = type("Fleet", (), {"nodes": SPEC.nodes}), type("Limits", (), {"limit": list})
    player = ScheduleRunner(
        fleet, WAN, limits(), job.schedule, "", tmp_path / "log", type("C", (), {"say": print})()
    )
    player._started = 0.0
    while clock.now_s < 30 and player._try(player._look):
        clock.now_s += cluster.schedule.runner.LOOK_S
    return player.failure


PLAYED = {
    words: (items, words in REFUSED)
    for words, items in (REFUSED | ACCEPTED).items()
    if not any("step" in item or "trace" in item for item in items)
}
"""Only time decides when these change links, and only the runner does it."""


@pytest.mark.parametrize(("items", "is_refused"), PLAYED.values(), ids=PLAYED)
def test_the_runner_agrees(job, tmp_path, monkeypatch, items, is_refused):
    failure = failure_of(job(*items), tmp_path, monkeypatch)
    assert ("is more than half" in failure) == is_refused, failure


def test_links_count_as_slow_as_they_ever_are(job):
    ends = ("node1", "node2")
    storm = job(
        f"at: 1s, {LINK}, rate_mbyte_s: 0.5, delay_ms: 700, for: 1s",
        f"at: 3s, {LINK}, delay_ms: 2",
        "at: 4s, profile: poor",
        "at: 5s, heal: true",
    )
    slow = {link.ends: link for link in storm.slowest_links}
    poor = link_plans(SPEC.nodes, make_link_spec("poor", "full", 1, "nfqueue"))
    there = {link.ends: link for plan in poor.values() for link in plan.links}
    assert slow[ends].rate_mbyte_s == min(0.5, there[ends].rate_mbyte_s)
    assert slow[ends].delay_ms + slow[ends].buffer_ms >= 700
    assert slow["node2", "node3"] == there["node2", "node3"]
    assert storm.slowest_mbyte_s == min(link.rate_mbyte_s for link in slow.values())


def test_the_means_of_a_trace_count(job):
    trace = job(f"at: 1s, trace: far.csv, {LINK}, loop: true")
    slow = {link.ends: link for link in trace.slowest_links}
    assert slow["node1", "node2"].delay_ms == pytest.approx((60 + 80 + 60) / 3)


def test_links_are_looked_at_once_for_all_ranks(job, monkeypatch):
    calls = []
    found = cluster.run.job.slowest_links

    def counted(*args):
        calls.append(args)
        return found(*args)

    monkeypatch.setattr(cluster.run.job, "slowest_links", counted)
    storm = job("at: 1s, flap: node1:node2, down: 1s, up: 1s, times: 3")
    storm.check()
    orders = storm.orders("RUN")
    assert len(orders) == 3 and len(calls) == 1
