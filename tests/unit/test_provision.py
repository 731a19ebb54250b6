"""Waiting for nodes to come up fails at once if one of them cannot."""

import pytest

from cluster.base.errors import NodeDied, NodeError
from cluster.base.spec import ClusterSpec
from cluster.engine.container import Container
from cluster.lifecycle.provision import _check_alive

SPEC = ClusterSpec("lab", 2)


class FakeEngine:
    """An engine whose containers all have the same log."""

    def log_tail(self, container_id):
        return "no disk\n"


def container(node, state="running", *, is_connected=True):
    name = f"gradwire-lab-{node}"
    return Container("1", "lab", node, 2, 0, state, "", "", "", "", name, is_connected)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (container("node2", "exited"), "node2: no disk"),
        (container("node2", "paused"), "node2: its container is paused: docker unpause"),
        (container("node2", is_connected=False), "node2: its container is connected to no network"),
        (None, "node2: its container has been removed"),
    ],
)
def test_a_node_that_will_not_answer_is_named(second, words):
    there = [container("node1"), *([second] if second else [])]
    with pytest.raises(NodeError, match=words):
        _check_alive(FakeEngine(), SPEC, there, "")


def test_nodes_that_a_killed_down_still_removes_are_as_dead_as_others():
    """`up` makes these anew, as those that died."""
    with pytest.raises(NodeDied, match="node1: its container has been removed"):
        _check_alive(FakeEngine(), SPEC, [], "")
    with pytest.raises(NodeError) as caught:
        _check_alive(FakeEngine(), SPEC, [container("node1", "paused")], "")
    assert not isinstance(caught.value, NodeDied)


@pytest.mark.parametrize("state", ["running", "created", "restarting"])
def test_one_that_may_still_answer_is_waited_for(state):
    _check_alive(FakeEngine(), SPEC, [container("node1"), container("node2", state)], "")
