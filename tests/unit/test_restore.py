"""Temporary changes of killed commands are undone; those of live commands are left alone."""

import json
import subprocess

import pytest
from plans import node_plan

from cluster import api
from cluster.base import spec
from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import ClusterSpec
from cluster.engine.resources import Limit
from cluster.shaping import restore
from cluster.shaping.link_record import write_record
from cluster.shaping.link_state import LinkState
from cluster.shaping.restore import (
    differing,
    find_leftovers,
    is_changing,
    not_as_recorded,
    restore_limits,
)
from cluster.shaping.temporary_changes import forget, give_up, note_temporary_change, restoring
from protocol.link import Link

LAB = ClusterSpec("lab", size=2)


class FakeEngine:
    """An engine whose two nodes are limited to a quarter of a processor."""

    def __init__(self):
        self.held = {"node1": Limit(0.25), "node2": Limit(0.25)}

    def containers(self, name):
        return list(self.held)

    def limits(self, containers):
        return dict(self.held)

    def set_limits(self, containers, limits):
        self.held |= limits


NEAR = Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)
ASKED = dict.fromkeys(("node1", "node2"), node_plan([2], [NEAR]))
CUT = node_plan([2], [NEAR._replace(loss_pct=100.0)])
FAR = node_plan([2], [NEAR._replace(delay_ms=60.0)])


@pytest.fixture
def in_force():
    """The plans in force on the nodes: node2 is cut off."""
    return ASKED | {"node2": CUT}


@pytest.fixture
def lab(monkeypatch, in_force):
    """The cluster, whose links are asked to be as in `ASKED`; `replayed` are those that traces change."""
    replayed = []

    def read_cluster_links(fleet, spec):
        return LinkState((), dict(in_force), "cubic", (), 1500, {}, tuple(replayed))

    for module in (api, restore):
        monkeypatch.setattr(module, "read_cluster_links", read_cluster_links)
        monkeypatch.setattr(module, "apply_some", lambda fleet, plans: in_force.update(plans))
    monkeypatch.setattr(restore, "clear_some", lambda fleet, nodes: None)
    monkeypatch.setattr(api, "apply_plans", lambda fleet, plans: in_force.update(plans))
    monkeypatch.setattr(api, "plans_to_be", lambda spec, link_spec: ASKED)
    monkeypatch.setattr(api.Cluster, "engine", FakeEngine())
    monkeypatch.setattr(api.Cluster, "fleet", None)
    write_record(LAB, ASKED)
    lab = api.Cluster("lab", console=HeardConsole(), force=True)
    lab._spec, lab.replayed = LAB, replayed
    return lab


class HeardConsole:
    """A console that records its messages."""

    def __init__(self):
        self.said = []

    def say(self, words):
        self.said.append(words)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    LAB.state_dir.mkdir(parents=True)


def test_what_a_killed_command_took_of_processors_is_given_back():
    killed = note_temporary_change(LAB, "launch a", {"node1": Limit(2.0)})
    # Written by an earlier process that had our PID.
    killed.write_text(json.dumps(json.loads(killed.read_text()) | {"started": "1"}))
    alive = note_temporary_change(LAB, "launch b", {"node2": Limit()})
    engine, console = FakeEngine(), HeardConsole()
    forget(restore_limits(engine, LAB, console))
    assert engine.held == {"node1": Limit(2.0), "node2": Limit(0.25)}
    assert (killed.exists(), alive.exists()) == (False, True)
    assert console.said == ["node1: restored the CPU limits that `launch a` left changed"]


def test_a_change_that_could_not_be_undone_does_not_count_as_going_on():
    in_force = LinkState((), {}, "cubic", (), 1500, {})
    note = note_temporary_change(LAB, "python", {"node1": Limit(2.0)})
    assert is_changing(LAB, in_force)
    with pytest.raises(KeyboardInterrupt), restoring(note):
        raise KeyboardInterrupt
    assert not is_changing(LAB, in_force) and note.exists()
    engine = FakeEngine()
    forget(restore_limits(engine, LAB, HeardConsole()))
    assert engine.held["node1"] == Limit(2.0) and not note.exists()
    gone = note_temporary_change(LAB, "python")
    with pytest.raises(KeyboardInterrupt), restoring(gone):  # not: no such file
        gone.unlink()
        raise KeyboardInterrupt
    with restoring(again := note_temporary_change(LAB, "python")):
        pass
    assert not again.exists()


def test_a_change_that_could_not_be_undone_does_not_go_on_after_its_process_has_ended():
    ended = subprocess.Popen(["true"])
    ended.wait()
    note = note_temporary_change(LAB, "shape --for 60", {"node1": Limit(2.0)})
    note.write_text(json.dumps(json.loads(note.read_text()) | {"pid": ended.pid}))
    give_up(note)
    assert not is_changing(LAB, LinkState((), {}, "cubic", (), 1500, {}))
    forget(restore_limits(FakeEngine(), LAB, HeardConsole()))
    assert not note.exists()


def test_nodes_whose_links_are_not_the_recorded_ones_are_known():
    near = Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)
    asked, other = (node_plan([2], [near._replace(delay_ms=ms)]) for ms in (5.0, 60.0))
    in_force = LinkState((), {"node1": asked, "node2": other}, "cubic", (), 1500, {})
    assert differing(in_force, {"node1": asked, "node2": other}) == []
    assert differing(in_force, {"node1": asked, "node2": asked}) == ["node2"]
    assert differing(in_force, {"node1": asked}) == ["node2"]
    assert differing(in_force, {"node1": asked, "node2": other, "node3": asked}) == ["node3"]


def test_a_temporary_change_keeps_no_node_from_getting_lost_links_back():
    near = Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)
    asked, other = (node_plan([2], [near._replace(delay_ms=ms)]) for ms in (5.0, 60.0))
    recorded = {"node1": asked, "node2": asked}
    changed, restarted = (
        LinkState((), plans, "cubic", (), 1500, {})
        for plans in ({"node1": asked, "node2": other}, {"node2": other})
    )
    assert not_as_recorded(LAB, changed, recorded) == ["node2"]
    with restoring(note_temporary_change(LAB, "shape --for 60")):
        assert not_as_recorded(LAB, changed, recorded) == []
        assert not_as_recorded(LAB, restarted, recorded) == ["node1"]


def test_a_node_on_which_links_cannot_be_restored_is_named(monkeypatch):
    """It says that it has applied them, and goes on telling of none."""
    near = Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)
    asked = node_plan([2], [near])
    write_record(LAB, {"node1": asked, "node2": asked})
    told, applied = LinkState((), {"node1": asked}, "cubic", (), 1500, {}), []
    monkeypatch.setattr(restore, "apply_some", lambda fleet, plans: applied.extend(plans))
    monkeypatch.setattr(restore, "clear_some", lambda fleet, nodes: None)
    monkeypatch.setattr(restore, "read_cluster_links", lambda fleet, spec: told)
    with pytest.raises(NodeError, match="could not be restored") as failed:
        restore.restore_links(None, LAB, HeardConsole())
    assert applied == ["node2"] and list(failed.value.outcomes) == ["node2"]


def note_killed(what, limits=None):
    """Write a note as a killed command leaves it."""
    note = note_temporary_change(LAB, what, limits)
    give_up(note)
    return note


def test_what_a_killed_command_changed_is_not_taken_for_a_living_ones_wish(lab, in_force):
    """The note was thrown away, and a run went on over cut links, as if these were asked for."""
    killed = note_killed("launch --schedule", {"node1": Limit(2.0)})
    with restoring(living := note_temporary_change(LAB, "shape --for 1h")):
        in_force["node1"] = FAR
        with pytest.raises(ClusterError, match="`launch --schedule`.*`shape --for 1h`") as refusal:
            lab.settle()
        assert refusal.value.hint and len(refusal.value.message.splitlines()) == 1
        assert killed.exists() and in_force == {"node1": FAR, "node2": CUT}
    assert not living.exists()
    assert lab.settle().plans == in_force == ASKED
    assert not killed.exists()


def test_limits_are_restored_once_although_the_links_must_wait(lab):
    """What the user asks for meanwhile would be overwritten."""
    note_killed("launch --schedule", {"node1": Limit(2.0)})
    with restoring(note_temporary_change(LAB, "shape --for 1h")), pytest.raises(ClusterError):
        lab.settle()
    assert lab.engine.held["node1"] == Limit(2.0)
    lab.engine.held["node1"] = Limit(1.0)
    lab.settle()
    assert lab.engine.held["node1"] == Limit(1.0)


def test_what_a_killed_command_changed_is_not_taken_for_a_traces_wish(lab, in_force):
    killed = note_killed("launch --schedule")
    lab.replayed.append(("node1", "node2"))
    with pytest.raises(ClusterError, match="`launch --schedule`.*a trace"):
        lab.settle()
    lab.replayed.clear()
    lab.settle()
    assert in_force == ASKED and not killed.exists()


def test_where_a_killed_command_left_nothing_a_living_one_is_no_hindrance(lab, in_force):
    in_force |= ASKED
    killed = note_killed("launch --schedule")
    with restoring(note_temporary_change(LAB, "shape --for 1h")):
        lab.settle()
    assert not killed.exists()


def test_links_that_are_all_asked_for_anew_need_no_restoring(lab, in_force):
    killed = note_killed("launch --schedule")
    with restoring(living := note_temporary_change(LAB, "shape --for 1h")):
        lab.shape("a link spec")
        assert living.exists() and not killed.exists()
    assert in_force == ASKED


def test_a_note_stays_until_the_links_are_restored(lab, monkeypatch):
    killed = note_killed("launch --schedule")

    def fail(fleet, plans):
        raise ClusterError("node2 does not answer")

    monkeypatch.setattr(restore, "apply_some", fail)
    with pytest.raises(ClusterError, match="does not answer"):
        lab.settle()
    assert killed.exists()


def test_status_says_which_command_undoes_what_a_killed_one_left(lab, in_force):
    note_killed("launch --schedule")
    said = find_leftovers(LAB, lab.links())
    assert said == [
        "`launch --schedule` was killed; the next up or launch undoes its temporary changes",
        "node2: the links in force differ from those asked for; the next up or launch applies them again",
    ]
    del in_force["node1"]
    with restoring(note_temporary_change(LAB, "shape --for 1h")):
        said = find_leftovers(LAB, lab.links())
    first = "the first up or launch after the end of `shape --for 1h`"
    assert sorted(said) == [
        f"`launch --schedule` was killed; {first} undoes its temporary changes",
        "`shape --for 1h` changes links or processors for a while",
        f"node1: the links in force differ from those asked for; {first} applies them again",
    ]
