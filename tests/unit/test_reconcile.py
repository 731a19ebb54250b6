"""A node that dies while `up` looks at it is recreated, like one that was dead before."""

from types import SimpleNamespace

import pytest

from cluster.base.console import Console
from cluster.base.errors import NodeDied, NodeError
from cluster.base.spec import ClusterSpec
from cluster.engine.resources import Limit, make_resource_request
from cluster.lifecycle import reconcile

SPEC = ClusterSpec("lab", size=2)
NODES = [node.name for node in SPEC.nodes]


class Engine:
    """An engine that reports two running nodes, although one no longer answers."""

    def containers(self, name):
        return [SimpleNamespace(node=node, state="running", is_connected=True) for node in NODES]

    def limits(self, there):
        return {node: Limit() for node in NODES}

    def parts(self, spec):
        return [(self, NODES)]

    def set_limits(self, there, changed):
        assert not changed

    def slow_starts(self, there):
        return dict.fromkeys(NODES, True)


@pytest.fixture
def forgotten():
    """The killed commands whose notes were removed."""
    return []


@pytest.fixture
def bring_up(monkeypatch, forgotten):
    """A function that reconciles while logging in to the running nodes fails with the given error."""

    def run(error):
        def reach_nodes(engine, spec, timeout_s):
            raise error

        for name in ("check_checkout", "check_project", "write_record"):
            monkeypatch.setattr(reconcile, name, lambda *_: None)
        monkeypatch.setattr(reconcile, "restore_limits", lambda *_: ["the killed"])
        monkeypatch.setattr(reconcile, "forget", forgotten.extend)
        monkeypatch.setattr(reconcile, "_log_in", lambda engine, spec, there: None)
        monkeypatch.setattr(reconcile, "make_keys", lambda engine, spec: set())
        monkeypatch.setattr(reconcile, "plans_to_be", lambda spec, link_spec: {})
        monkeypatch.setattr(reconcile, "is_running", lambda engine, spec, there: True)
        monkeypatch.setattr(reconcile, "reach_nodes", reach_nodes)
        monkeypatch.setattr(reconcile, "make_nodes", lambda *given, **flags: ("made", given[2]))
        monkeypatch.setattr(Engine, "remove_containers", lambda *_: None, raising=False)
        resources = make_resource_request(None, None, None)
        console = Console(quiet=True)
        return reconcile.reconcile(Engine(), SPEC, None, resources, None, console)

    return run


def test_a_node_that_died_since_is_made_anew_beside_those_that_are_there(bring_up, forgotten):
    made, there = bring_up(NodeDied("a node died", {"node1": "sshd is up"}))
    assert made == "made" and [container.node for container in there] == NODES
    assert forgotten == ["the killed"]


def test_one_that_lives_and_does_not_answer_is_an_error(bring_up, forgotten):
    with pytest.raises(NodeError, match="not every node came up"):
        bring_up(NodeError("not every node came up", {"node1": "no SSH"}))
    assert forgotten == []  # its links are not restored yet
