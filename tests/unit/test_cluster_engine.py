"""A Cluster's engine: it reconnects to a host after its connection has ended, or after `down`."""

from types import SimpleNamespace

import pytest

from cluster import api
from cluster.base.console import Console
from cluster.base.errors import ClusterError, RunFailed
from cluster.base.spec import ClusterSpec
from cluster.hosts import connect
from cluster.hosts.host_engine import HostEngine


def host_engine():
    engine = HostEngine.__new__(HostEngine)
    engine.tunnel = SimpleNamespace(has_ended=False)
    return engine


@pytest.fixture
def made(monkeypatch):
    """The engines that were connected to, in order."""
    made = []

    def connect_engine(name, hosts, partly=False):
        made.append(host_engine())
        return made[-1]

    monkeypatch.setattr(api, "connect_engine", connect_engine)
    return made


@pytest.fixture
def lab():
    return api.Cluster("lab", console=Console(quiet=True))


def test_a_connection_that_lives_is_kept(lab, made):
    assert lab.engine is lab.engine is made[0] and len(made) == 1


def test_an_engine_of_this_machine_never_ends():
    assert not connect.has_ended(SimpleNamespace(engines=[SimpleNamespace()]))


def test_one_that_has_ended_is_made_anew_with_its_logins(lab, made):
    closed = []
    lab._fleet = SimpleNamespace(close=lambda: closed.append("fleet"))
    lab.engine.tunnel.has_ended = True
    assert lab.engine is made[1] and closed == ["fleet"] and lab._fleet is None


def test_nodes_are_logged_in_to_by_the_new_one(lab, made, monkeypatch):
    monkeypatch.setattr(api, "reach_nodes", lambda engine, spec, timeout_s: engine)
    lab._spec = ClusterSpec("lab")
    lab._fleet = SimpleNamespace(close=lambda: None)
    lab.engine.tunnel.has_ended = True
    assert lab.fleet is made[1]


@pytest.mark.parametrize("fails", [False, True])
def test_down_leaves_no_engine_behind(lab, made, monkeypatch, fails):
    def remove_cluster(engine, *_, **__):
        if fails:
            raise ClusterError("host box does not answer any more")
        return []

    monkeypatch.setattr(api, "remove_cluster", remove_cluster)
    if fails:
        with pytest.raises(ClusterError):
            lab.down()
    else:
        lab.down()
    assert lab.engine is made[1]


@pytest.mark.parametrize("failure", [RunFailed("rank 1 failed"), None])
def test_a_run_that_failed_is_told_though_down_fails_too(lab, monkeypatch, capsys, failure):
    def down(self):
        raise ClusterError("host box cannot be reached")

    lab.console = Console()
    monkeypatch.setattr(api.Cluster, "up", lambda self: self)
    monkeypatch.setattr(api.Cluster, "down", down)
    with pytest.raises(RunFailed if failure else ClusterError), lab:
        if failure:
            raise failure
    said = capsys.readouterr().err
    assert ("stays up: host box cannot be reached" in said) == bool(failure)
