"""What is asked of a cluster, and what comes of it beside what there is."""

import pytest

from cluster.errors import UsageError
from cluster.node_limits import make_wish
from cluster.request import Request
from cluster.spec import ClusterSpec

THERE = ClusterSpec("lab", 5, 2, "mine")


def request(size=None, slot=None, image=None, name="lab", **limits):
    return Request(name, size, slot, image, None, make_wish(**limits))


def test_a_new_cluster_is_as_asked_at_the_first_free_place():
    assert request().spec(None, ()) == ClusterSpec("lab", 3, 0, "gradwire-node")
    assert request(4, image="mine").spec(None, {0, 2}) == ClusterSpec("lab", 4, 1, "mine")
    assert request(slot=7).spec(None, {7}) == ClusterSpec(
        "lab", 3, 7
    )  # the engine says what is wrong


def test_what_is_not_said_stays_as_it_is():
    assert request().spec(THERE, ()) == THERE
    assert request(2).spec(THERE, ()) == ClusterSpec("lab", 2, 2, "mine")
    assert request(slot=2, image="other").spec(THERE, ()) == ClusterSpec("lab", 5, 2, "other")


def test_a_cluster_that_is_up_does_not_move():
    with pytest.raises(UsageError, match="is up in slot 2, not 1"):
        request(slot=1).spec(THERE, ())


def test_a_limit_is_of_a_node_that_will_be_there():
    asked = request(2, cpus={"node3": 0.5})
    with pytest.raises(UsageError, match="unknown node 'node3'"):
        asked.spec(THERE, ())
    assert request(cpus={"node3": 0.5}).limits(THERE, {})["node3"].cpus == 0.5


@pytest.mark.parametrize("words", [{"size": 0}, {"size": 100}, {"slot": -1}, {"name": "-"}])
def test_what_cannot_be_is_refused_at_once(words):
    with pytest.raises(UsageError):
        request(**words)
