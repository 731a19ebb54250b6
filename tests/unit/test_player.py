"""The end of a schedule: links and processors are as before, on every way out, and whatever failed meanwhile."""

import time

import pytest

import cluster.player
from cluster.changes import Change
from cluster.errors import ClusterError
from cluster.node_limits import Limit
from cluster.player import Player
from cluster.processors import Processors
from cluster.schedule import Event

PLANS = {"node1": {"links": [{"src": "node1", "dst": "node2", "delay_ms": 5.0}]}}
STORM = (
    Event("straggler", cpus={"node2": 0.25}),
    Event("far", changes=(Change("node1", "node2", {"delay_ms": 60.0}),)),
)


class FakeShape:
    """Two nodes, one link of which anybody speaks."""

    plans = PLANS
    links = ()
    wanted = None


class FakeEngine:
    """Holds two nodes to limits; refuses the first `failures` times, when it is done."""

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
    """Nobody listens."""

    def say(self, words):
        pass


@pytest.fixture
def applied(monkeypatch):
    """The plans as the nodes have them."""
    in_force = dict(PLANS)
    monkeypatch.setattr(cluster.player, "apply_some", lambda fleet, plans: in_force.update(plans))
    return in_force


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("way_out", [None, KeyboardInterrupt, ClusterError("a rank failed")])
def test_everything_is_as_before(applied, tmp_path, way_out, failures):
    engine = FakeEngine()
    processors = Processors(engine, "lab")
    player = Player(None, FakeShape(), processors, STORM, "", tmp_path / "log", QuietConsole())
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


def wait_for(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
