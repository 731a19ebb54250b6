"""GPUs of nodes: valid requests, their form in Compose, and what the engine reports about them."""

import pytest
import yaml

from cluster.api import Cluster
from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import compose_document
from cluster.engine.compose_up import compose_failure
from cluster.engine.resources import (
    Limit,
    device_request,
    make_resource_request,
    moves_gpus,
    new_gpus,
    read_limit,
    split_words,
)

NODES = ("node1", "node2", "node3")
# What the engine reports for a container to which Compose gave all GPUs, or two of them.
ALL_REQUESTED = {"Driver": "nvidia", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}
TWO_REQUESTED = {
    "Driver": "nvidia",
    "Count": 0,
    "DeviceIDs": ["0", "1"],
    "Capabilities": [["gpu"]],
}


def test_each_node_gets_its_own_and_who_is_not_named_keeps_his():
    wish = make_resource_request(gpus=split_words(["node1=0", "node2=1,2"]))
    now = {"node3": Limit(gpus="all")}
    given = [limit.gpus for limit in wish.limits(NODES, now).values()]
    assert given == ["0", "1,2", "all"]
    assert make_resource_request().limits(NODES, now)["node3"].gpus == "all"
    assert make_resource_request(gpus="none").limits(NODES, now)["node3"].gpus is None
    assert (
        Cluster("lab", gpus={"node2": 1}).request.resources.limits(NODES, {})["node2"].gpus == "1"
    )


@pytest.mark.parametrize("word", ["", "some", "-1", "0,", "1.5", "0;1", "all,0", True])
def test_what_is_no_gpu_is_refused(word):
    with pytest.raises(UsageError, match="gpus of node1 is"):
        make_resource_request(gpus={"node1": word})


def test_a_wish_for_a_node_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="unknown node 'node9'"):
        make_resource_request(gpus={"node9": "0"}).limits(NODES, {})


def test_gpus_of_a_container_are_read_back():
    assert read_limit({"DeviceRequests": [ALL_REQUESTED]}) == Limit(gpus="all")
    assert read_limit({"DeviceRequests": [TWO_REQUESTED]}) == Limit(gpus="0,1")
    for none in (None, [], [ALL_REQUESTED | {"Capabilities": [["tpu"]]}]):
        assert read_limit({"DeviceRequests": none}) == Limit()


def test_only_other_gpus_make_a_node_anew():
    has, other = {"node1": Limit(1, gpus="0")}, {"node1": Limit(1, gpus="1")}
    assert moves_gpus(other, has)
    assert not moves_gpus({"node1": Limit(2, 2**30, "0")}, has)
    assert not moves_gpus(other, {})  # no nodes exist yet
    assert new_gpus(other, has) == new_gpus(other, {}) == ["1"]
    assert new_gpus({"node1": Limit()}, has) == new_gpus(has, has) == []


@pytest.mark.parametrize("gpus", ["all", "0", "0,1"])
def test_what_is_asked_of_the_engine_is_read_back(gpus):
    assert read_limit({"DeviceRequests": [device_request(gpus)]}).gpus == gpus


def test_the_document_reserves_them_for_their_nodes_alone():
    services = compose_document(ClusterSpec(), {"node2": Limit(gpus="0,1")})["services"]
    assert "deploy" not in services["node1"]
    (device,) = services["node2"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["0", "1"], "capabilities": ["gpu"]}


def test_all_gpus_are_what_the_overlay_says():
    overlay = yaml.safe_load((PROJECT_DIR / "compose" / "gpu.yml").read_text())
    document = compose_document(ClusterSpec(), {node: Limit(gpus="all") for node in NODES})
    for node in NODES:
        assert document["services"][node]["deploy"] == overlay["services"][node]["deploy"]


def test_a_machine_without_the_toolkit_says_what_to_install():
    complaint = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    error = compose_failure(complaint, ClusterSpec("lab"))
    assert complaint in error.message
    assert "NVIDIA container toolkit" in error.hint
    assert "cluster.up --name lab --gpus none" in error.hint
