"""At the end of a schedule, links and processors are as before, on every way out and after any failure."""

import json
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from plans import node_plan

import cluster.schedule.runner
from cluster.base import spec
from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import ClusterSpec
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.resources import Limit
from cluster.links.changes import Change
from cluster.run import runner
from cluster.schedule.events import Event
from cluster.schedule.runner import ScheduleRunner
from cluster.shaping.restore import restore_limits
from cluster.shaping.temporary_changes import read_temporary_changes
from protocol.link import Link

PLANS = {"node1": node_plan([2], [Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)])}
STORM = (
    Event("straggler", cpus={"node2": 0.25}),
    Event("far", changes=(Change("node1", "node2", {"delay_ms": 60.0}),)),
)


class FakeShape:
    """A shape of two nodes; only one link is planned."""

    plans = PLANS
    links = ()
    wanted = None


class FakeEngine:
    """An engine that limits two nodes; its first `failures` calls of `set_limits` report an error after they acted."""

    def __init__(self):
        self.held = {"node1": Limit(), "node2": Limit(1)}
        self.failures = 0

    def containers(self, name):
        return list(self.held)

    def limits(self, containers):
        return dict(self.held)

    def set_limits(self, containers, limits):
        self.held |= limits
        if limits and self.failures:
            self.failures -= 1
            raise ClusterError("the engine refused")


class QuietConsole:
    """A console that discards its messages."""

    def say(self, words):
        pass


@pytest.fixture
def applied(monkeypatch):
    """The plans in force on the nodes."""
    in_force = dict(PLANS)
    monkeypatch.setattr(
        cluster.schedule.runner, "apply_some", lambda fleet, plans: in_force.update(plans)
    )
    return in_force


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("way_out", [None, KeyboardInterrupt, ClusterError("a rank failed")])
def test_everything_is_as_before(applied, tmp_path, way_out, failures):
    engine = FakeEngine()
    processors = CpuLimits(engine, "lab")
    player = ScheduleRunner(
        None, FakeShape(), processors, STORM, "", tmp_path / "log", QuietConsole()
    )
    engine.failures = failures
    try:
        with player:
            wait_for(lambda: player.failure or applied != PLANS)
            assert engine.held["node2"].cpus == 0.25
            if way_out:
                raise way_out
    except (KeyboardInterrupt, ClusterError):
        pass
    assert engine.held == {"node1": Limit(), "node2": Limit(1)}
    assert applied == PLANS
    assert bool(player.failure) == bool(failures)


@pytest.fixture
def noted(applied, tmp_path, monkeypatch):
    """A schedule that is ready to begin, its engine, its note's context, and a function that reads the notes."""
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    lab = ClusterSpec("lab", size=2)
    lab.state_dir.mkdir(parents=True)
    engine = FakeEngine()
    processors = CpuLimits(engine, "lab")
    player = ScheduleRunner(
        None, FakeShape(), processors, STORM, "", tmp_path / "log", QuietConsole()
    )
    job = SimpleNamespace(spec=lab, schedule=STORM)
    context = runner._noted(job, processors, player)
    return SimpleNamespace(
        player=player,
        engine=engine,
        lab=lab,
        context=context,
        notes=lambda: read_temporary_changes(lab),
    )


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["_await_last_look", "_give_back", "_heal"])
def test_what_an_interrupt_keeps_from_being_restored_is_left_to_the_next_command(
    noted, applied, monkeypatch, where
):
    """CPU limits are recorded in the note only: without it they would stay changed."""
    monkeypatch.setattr(noted.player, where, interrupt)
    with pytest.raises(KeyboardInterrupt), noted.context, noted.player:
        wait_for(lambda: applied != PLANS)
        assert noted.engine.held["node2"].cpus == 0.25
    assert [note.alive for note in noted.notes()] == [False]
    restore_limits(noted.engine, noted.lab, QuietConsole())
    assert noted.engine.held == {"node1": Limit(), "node2": Limit(1)}


@pytest.mark.parametrize("began", [True, False])
def test_nothing_is_left_to_the_next_command_if_nothing_is_changed_any_more(noted, applied, began):
    with pytest.raises(ClusterError, match="a rank failed"), noted.context:
        with noted.player if began else nullcontext():
            wait_for(lambda: applied != PLANS or not began)
        raise ClusterError("a rank failed")
    assert noted.notes() == []


def wait_for(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def at_work(applied, tmp_path):
    """A running schedule without events, to which tests pass events directly; and its engine."""
    engine = FakeEngine()
    processors = CpuLimits(engine, "lab")
    player = ScheduleRunner(None, FakeShape(), processors, (), "", tmp_path / "log", QuietConsole())
    with player:
        yield player, engine


def test_heal_takes_everything_back(at_work, applied):
    player, engine = at_work
    for event in STORM:
        player._do(event)
    assert applied != PLANS and engine.held["node2"].cpus == 0.25
    player._do(Event("heal", heal=True))
    assert applied == PLANS and engine.held["node2"] == Limit(1)
    player._do(STORM[0])  # changes after a heal take effect, too
    assert engine.held["node2"].cpus == 0.25


def test_what_is_for_a_while_is_over_after_it(at_work, applied):
    player, _ = at_work
    far = STORM[1]
    player._do(replace(far, for_s=3600.0))
    player._look()
    assert applied != PLANS
    player._lasting.clear()
    player._do(replace(far, for_s=0.0))
    player._look()
    assert applied == PLANS


class SlowNodes:
    """Nodes of which each change of links takes `takes_s` of a clock of their own, and the time that they were cut."""

    def __init__(self, takes_s):
        self.now_s, self.takes_s = 0.0, takes_s
        self.cut_s, self.is_cut = 0.0, False

    def monotonic(self):
        return self.now_s

    time = monotonic

    def wait(self, seconds):
        self.now_s += seconds
        self.cut_s += seconds * self.is_cut

    def apply_some(self, fleet, plans):
        self.wait(self.takes_s * bool(plans))
        for plan in plans.values():
            self.is_cut = plan.links[0].loss_pct == 100


class Console:
    """A console that keeps its messages."""

    def __init__(self):
        self.said = []

    def say(self, words):
        self.said.append(words)


def play(nodes, events, tmp_path, monkeypatch):
    """Run a schedule by the clock of slow nodes; return its lines in events.jsonl, and what it said."""
    monkeypatch.setattr(cluster.schedule.runner, "time", nodes)
    monkeypatch.setattr(cluster.schedule.runner, "apply_some", nodes.apply_some)
    log, console = tmp_path / "log", Console()
    processors = CpuLimits(FakeEngine(), "lab")
    player = ScheduleRunner(None, FakeShape(), processors, events, "", log, console)
    player._started = nodes.monotonic()
    while player._waiting or player._lasting:
        player._look()
        nodes.wait(cluster.schedule.runner.LOOK_S)
        assert nodes.now_s < 100
    player.__exit__()
    assert not player.failure
    return [json.loads(line) for line in log.read_text().splitlines()], console.said


def flaps(down_s, up_s, times):
    cut = (Change("node1", "node2", {"loss_pct": 100.0}),)
    each_s = down_s + up_s
    return [Event(f"cut {n}", n * each_s, for_s=down_s, changes=cut) for n in range(times)]


def test_a_flap_cuts_for_as_long_as_it_says(tmp_path, monkeypatch):
    """Each cut was undone at the earliest 50 ms after the last: links stayed cut, and nothing said so."""
    nodes = SlowNodes(0.2)
    lines, said = play(nodes, flaps(0.3, 0.3, 40), tmp_path, monkeypatch)
    assert nodes.cut_s == pytest.approx(40 * 0.3, rel=0.1)
    assert [line["what"] for line in lines[:4]] == ["cut 0", "over: cut 0", "cut 1", "over: cut 1"]
    assert max(line["late_s"] for line in lines) <= 0.06
    assert not [words for words in said if "late" in words]


def test_what_comes_late_is_told(tmp_path, monkeypatch):
    nodes = SlowNodes(1.0)
    lines, said = play(nodes, flaps(0.3, 0.3, 10), tmp_path, monkeypatch)
    assert [line["what"] for line in lines[-2:]] == ["cut 9", "over: cut 9"]
    assert lines[-1]["late_s"] == pytest.approx(20 - 1 - 9 * 0.6 - 0.3, abs=0.3)
    worst = f"up to {lines[-1]['late_s']:.1f} s"
    assert said[-1].startswith(f"schedule: 19 changes came more than 0.5 s late, {worst}")
    assert "events.jsonl" in said[-1]


def test_what_is_over_at_once_is_undone_at_once(tmp_path, monkeypatch):
    """One at a time, three links would be healed in 0.6 s instead of 0.2."""
    far = [
        Event(
            f"far {n}", 1.0, for_s=2.0, changes=(Change("node1", "node2", {"delay_ms": 60.0 + n}),)
        )
        for n in range(3)
    ]
    lines, _ = play(SlowNodes(0.2), far, tmp_path, monkeypatch)
    ends = [line for line in lines if line["what"].startswith("over: ")]
    assert [line["what"] for line in ends] == ["over: far 0", "over: far 1", "over: far 2"]
    assert len({line["after_s"] for line in ends}) == 1


def test_what_is_over_ends_before_what_begins_then(tmp_path, monkeypatch):
    far, near = (
        Change("node1", "node2", {"delay_ms": 60.0}),
        Change("node1", "node2", {"delay_ms": 9.0}),
    )
    events = [
        Event("far", 1.1, for_s=2.2, changes=(far,)),
        Event("near", 3.3, for_s=1.0, changes=(near,)),
    ]
    lines, _ = play(SlowNodes(0.2), events, tmp_path, monkeypatch)
    assert [line["what"] for line in lines] == ["far", "over: far", "near", "over: near"]


def test_after_the_end_of_a_run_no_event_begins(at_work, applied):
    player, _ = at_work
    player._waiting = list(STORM)
    player._over.set()
    player._look()
    assert applied == PLANS and player._waiting == list(STORM)
    player._waiting = []


def test_orders_are_made_before_the_clock_of_the_schedule_starts(monkeypatch):
    """They took ten seconds of it on 64 nodes."""
    done = []

    class Noted:
        """A context manager, and all else that a launch needs, which notes when it is used."""

        ended = ()

        def __init__(self, name):
            self.name = name

        def __enter__(self):
            done.append(self.name)
            return SimpleNamespace(ended=[])

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(runner, "staged", lambda *_: Noted("staged"))
    monkeypatch.setattr(runner, "live_posts", lambda *_: [])
    ranks = SimpleNamespace(wait=list)
    monkeypatch.setattr(runner, "RankProcesses", lambda *_: ranks)
    live = SimpleNamespace(
        printer=lambda *_: None, tell=None, following=lambda *_: Noted("following")
    )
    job = SimpleNamespace(places=(), max_restarts=0, orders=lambda _: done.append("orders"))
    console = SimpleNamespace(say=None, program_output=None)
    runner._run_ranks(None, job, Path("RUN"), console, Noted("player"), None, live)
    assert done.index("orders") < done.index("player")


BUG = KeyError("no such plan")


@pytest.mark.parametrize("error", [BUG, OSError(28, "No space left on device"), ValueError()])
def test_whatever_ends_a_schedule_is_kept_as_its_failure(applied, tmp_path, monkeypatch, error):
    """Otherwise the run would exit with 0, although its links did not change as scheduled."""
    player = ScheduleRunner(
        None,
        FakeShape(),
        CpuLimits(FakeEngine(), "lab"),
        STORM,
        "",
        tmp_path / "log",
        QuietConsole(),
    )

    def fail(fleet, plans):
        raise error

    monkeypatch.setattr(cluster.schedule.runner, "apply_some", fail)
    with player:
        wait_for(lambda: player.failure or not player._thread.is_alive())
    assert type(error).__name__ in player.failure or "No space left" in player.failure


class FakeTail:
    """The lines of a rank's metrics file."""

    def __init__(self, lines):
        self._lines = lines

    def lines(self):
        return iter(self._lines)


def awaiting(tmp_path, *steps):
    """A schedule with an event at each of these steps."""
    events = [Event(f"at {step}", step=step) for step in steps]
    return ScheduleRunner(None, FakeShape(), None, events, "", tmp_path / "log", QuietConsole())


def test_metrics_of_any_kind_do_not_end_the_counting_of_steps(tmp_path):
    player = awaiting(tmp_path, 3)
    odd = [
        "[]",
        "5",
        "null",
        "{",
        "[" * 100_000,
        '{"event": "step"}',
        '{"event": "step", "step": "x"}',
    ]
    odd += ['{"event": "step", "step": null}', '{"event": "step", "step": 1e999}', '{"event": []}']
    player._watch_steps(
        FakeTail([*odd, '{"event": "step", "rank": 0, "time": 1.5, "step": 3, "sent_bytes": 0}'])
    )
    assert list(player._steps) == [3]


def step_line(step):
    return json.dumps({"event": "step", "rank": 0, "time": 1.5, "step": step, "sent_bytes": 0})


def test_of_steps_only_the_awaited_and_the_last_are_kept(tmp_path):
    """A node may tell any number of them."""
    player = awaiting(tmp_path, 5, 8)
    player._watch_steps(FakeTail(map(step_line, [*range(7), 10**6, *range(10_000, 20_000)])))
    assert list(player._steps) == [5]
    player._started = 0.0
    player._note("now", 0.0)
    assert json.loads((tmp_path / "log").read_text())["step"] == 10**6


def test_metrics_that_cannot_be_read_any_more_are_the_failure(tmp_path):
    """Events that wait for a step would otherwise never come, without a reason."""

    class Broken(FakeTail):
        def lines(self):
            raise NodeError("an answer without end", {"node1": "too much"})

        def close(self):
            pass

    player = awaiting(tmp_path, 3)
    nodes = [SimpleNamespace(name="node1")]
    player._fleet = SimpleNamespace(nodes=nodes, start=lambda node, argv: Broken(()))
    player._processors = CpuLimits(FakeEngine(), "lab")
    with player:
        wait_for(lambda: player.failure)
    assert "an answer without end" in player.failure


def test_a_change_that_does_not_end_holds_the_end_of_a_run_only_so_long(
    applied, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster.schedule.runner, "END_TIMEOUT_S", 0.2)
    processors = CpuLimits(FakeEngine(), "lab")
    player = ScheduleRunner(
        None, FakeShape(), processors, STORM, "", tmp_path / "log", QuietConsole()
    )
    is_stuck, may_go_on = threading.Event(), threading.Event()

    def hold():
        is_stuck.set()
        may_go_on.wait(20)

    monkeypatch.setattr(player, "_look", hold)
    ending = threading.Thread(target=lambda: player.__exit__(), daemon=True)
    player.__enter__()
    assert is_stuck.wait(5)
    ending.start()
    ending.join(5)
    is_over = not ending.is_alive()
    may_go_on.set()
    ending.join(20)
    assert is_over
    assert "has not ended within" in player.failure
