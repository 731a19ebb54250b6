"""Hosts that do not answer: each is named, and what the next `up` needs to make the cluster whole stays."""

import os
from types import SimpleNamespace

import pytest
from fake_hosts import HOSTS, SPEC, FakeHost, FakeTunnel

from cluster.base import spec
from cluster.base.console import Console
from cluster.base.errors import ClusterError
from cluster.engine.resources import make_resource_request
from cluster.hosts import connect, record
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.swarm_compose import SwarmCompose
from cluster.hosts.swarm_engines import SwarmEngines
from cluster.lifecycle import create, removal
from cluster.run.request import Request

PLACEMENT = {"node1": "west", "node2": "east", "node3": "west", "node4": "east"}
EAST_NODES = {"east": ["node2", "node4"]}
FORCED = "python -m cluster.down --name lab --force"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Use a lock and a state folder of the test's own, and do not wait between two looks."""
    monkeypatch.setattr("cluster.hosts.swarm_lock.ADDRESS", f"\0test-{os.getpid()}".encode())
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    monkeypatch.setattr(removal, "LOOK_INTERVAL_S", 0.0)


@pytest.fixture
def west():
    return FakeHost("west", [])


@pytest.fixture
def east():
    return FakeHost("east", [])


@pytest.fixture
def both(west, east, monkeypatch):
    monkeypatch.setattr(HostCompose, "start_early", lambda _: None)
    return SwarmEngines(HOSTS, [west, east], {})


@pytest.fixture
def left(west):
    """The engine of west, while east does not answer."""
    return SwarmEngines(HOSTS, [west], EAST_NODES, [HOSTS.hosts[1]])


def kept():
    """Return the names of all files of the state folder."""
    return sorted(path.name for path in SPEC.state_dir.rglob("*") if path.is_file())


def up(engine):
    limits = make_resource_request(None, None, None)
    request = Request("lab", 4, None, None, None, limits, HOSTS)
    compose = SimpleNamespace(end=lambda: None)
    return create.create_cluster(engine, request, compose, Console())


@pytest.fixture
def lost_during_up(monkeypatch, capsys, both, left, west, east):
    """A creation that has failed because east was lost; east is back afterwards, with its nodes."""
    west.has_network = west.has_volume = east.has_network = east.has_volume = False

    def fail(engine, spec, *_, **__):
        west.nodes, east.nodes = ["node1", "node3"], ["node2", "node4"]
        west.has_network = west.has_volume = east.has_network = east.has_volume = True
        west.has_mark = east.has_mark = True
        for node in spec.nodes:
            (spec.state_dir / node.name).mkdir()
            (spec.state_dir / node.name / f"key of {node.name}").touch()
        raise ClusterError("host east does not answer any more")

    monkeypatch.setattr(create, "provide_image", lambda *_: False)
    monkeypatch.setattr(create, "has_ended", lambda engine: engine is both)
    monkeypatch.setattr(create, "connect_engine", lambda name, hosts, partly: left)
    monkeypatch.setattr(create, "reconcile", fail)
    with pytest.raises(ClusterError, match="host east does not answer any more"):
        up(both)


@pytest.mark.usefixtures("lost_during_up")
def test_the_next_up_has_the_keys_of_the_nodes_that_a_lost_host_kept(
    both, west, east, monkeypatch, capsys
):
    said = capsys.readouterr().err
    assert "host east does not answer: node2, node4 of 'lab' stay there" in said
    assert "python -m cluster.up --name lab makes it whole" in said
    assert (west.nodes, east.nodes) == ([], ["node2", "node4"])
    assert kept() == [record.FILE, *(f"key of node{number}" for number in range(1, 5))]
    assert record.read_record("lab") == record.Record(HOSTS, PLACEMENT)
    monkeypatch.setattr(create, "reconcile", lambda *_, **__: (None, None))
    again = up(both)  # without --force
    assert again.was_there and again.spec.size == 4


@pytest.mark.usefixtures("lost_during_up")
def test_down_removes_all_of_it_once_the_host_is_back(both, west, east):
    removed = removal.remove_cluster(both, "lab", Console())
    assert "container gradwire-lab-node4" in removed and f"keys {SPEC.state_dir}" in removed
    assert west.nodes == east.nodes == [] and "left" in east.done
    assert not SPEC.state_dir.exists()


@pytest.mark.usefixtures("lost_during_up")
def test_down_with_force_forgets_the_cluster_though_a_host_is_lost(left):
    assert f"keys {SPEC.state_dir}" in removal.remove_cluster(left, "lab", Console(), force=True)
    assert not SPEC.state_dir.exists()


def test_a_host_that_comes_back_with_nodes_on_a_swarm_that_is_gone_joins_the_new_one(
    both, west, east
):
    """The others have left the swarm meanwhile: what its nodes have of the network leads to nobody."""
    west.done, west.has_network = ["left"], False
    east.nodes, east.has_mark = ["node2", "node4"], True
    with SwarmCompose("lab", both) as compose:
        compose.prepare(SPEC)
    assert "made a swarm" in west.done and east.nodes == []
    assert east.done[:3] == [["node2", "node4"], "left", "joined 10.1.0.1"]


THREE = Hosts((*HOSTS.hosts, Host("north", "north", internal_ip="10.1.0.3")))
NODES = {"west": ["node1"], "east": ["node2", "node4"], "north": ["node3"]}


@pytest.fixture
def lost(monkeypatch):
    """The names of the hosts that do not answer."""
    names = set()

    class FakeSwarmHost(FakeHost):
        def __init__(self, host, tunnel):
            super().__init__(host.name, [])

    class Unreachable(FakeTunnel):
        def __init__(self, host, *, waits):
            super().__init__(host)

        def wait(self):
            if self.host.name in names:
                name = self.host.name
                raise ClusterError(f"host {name} cannot be reached", f"ssh {name}")

    monkeypatch.setattr(connect, "Tunnel", Unreachable)
    monkeypatch.setattr(connect, "SwarmHost", FakeSwarmHost)
    return names


def test_hosts_that_do_not_answer_are_named_or_gone_without(lost):
    lost.add("east")
    with pytest.raises(ClusterError, match=r"\(it has node2, node4\)") as failed:
        connect._connect_several("lab", HOSTS, NODES, partly=False)
    assert failed.value.hint == f"ssh east; or remove the cluster without it: {FORCED}"
    found = connect._connect_several("lab", HOSTS, NODES, partly=True)
    assert [one.host_name for one in found.engines] == ["west"] and found.lost == HOSTS.hosts[1:]


def test_several_that_do_not_answer_are_all_named(lost):
    lost |= {"east", "north"}
    with pytest.raises(ClusterError) as failed:
        connect._connect_several("lab", THREE, NODES, partly=False)
    assert failed.value.message == (
        "host east cannot be reached (it has node2, node4); "
        "host north cannot be reached (it has node3)"
    )
    assert failed.value.hint == (
        f"ssh east; ssh north; or remove the cluster without them: {FORCED}"
    )


@pytest.mark.parametrize("partly", [False, True])
def test_a_cluster_is_not_removed_without_all_of_its_hosts(lost, partly):
    """That would fail, too."""
    lost |= {"west", "east"}
    with pytest.raises(ClusterError, match="host west .*; host east") as failed:
        connect._connect_several("lab", HOSTS, NODES, partly=partly)
    assert failed.value.hint == "ssh west; ssh east"
