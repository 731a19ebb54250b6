"""What is requested of a cluster, and how it is combined with the cluster's current state."""

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import MAX_NODES, ClusterSpec
from cluster.engine.resources import make_resource_request
from cluster.run.request import Request

THERE = ClusterSpec("lab", 5, 2, "mine")


def request(size=None, slot=None, image=None, name="lab", **limits):
    return Request(name, size, slot, image, None, make_resource_request(**limits))


def test_a_new_cluster_is_as_asked_at_the_first_free_place():
    assert request().spec(None, ()) == ClusterSpec("lab", 3, 0, "gradwire-node")
    assert request(4, image="mine").spec(None, {0, 2}) == ClusterSpec("lab", 4, 1, "mine")
    assert request(slot=7).spec(None, {7}) == ClusterSpec(
        "lab", 3, 7
    )  # the engine reports that it is taken


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


@pytest.mark.parametrize(
    "words", [{"size": 0}, {"size": MAX_NODES + 1}, {"slot": -1}, {"name": "-"}]
)
def test_what_cannot_be_is_refused_at_once(words):
    with pytest.raises(UsageError):
        request(**words)


@pytest.mark.parametrize(
    "image", ["", "Foo Bar", "Foo", "x:", "x:a b", "-x", "x@sha256:12", "a//../b"]
)
def test_an_image_that_can_have_no_such_name_is_refused(image):
    with pytest.raises(UsageError, match="is no image's name"):
        request(image=image)


@pytest.mark.parametrize(
    "image",
    [
        "mine",
        "mine:2",
        "me/mine:v1.0-b",
        "localhost:5000/a/b__c",
        "Host.example/mine",
        "sha256:" + "a" * 64,
    ]
    + ["mine@sha256:" + "a" * 64],
)
def test_an_image_of_any_registry_is_taken(image):
    assert request(image=image).image == image
