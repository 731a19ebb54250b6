"""The nodes of a host without an engine, as another version of gradwire left their orders: none is lost by that."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from cluster.hosts.ship_image import SHIP_TIMEOUT_S
from node.bare import folders, nodes
from node.bare.nodes import LONGEST_TRANSFER_S
from node.bare.runtime import HostError
from protocol.bare import BareNode, Image
from protocol.labels import LABEL_CLUSTER, WORKING_DIR
from protocol.reader import document, read
from protocol.vxlan_plan import VxlanPlan

NAME = "gradwire-lab-node1"
VXLAN = VxlanPlan("node1", "10.77.0.11", "02:67:77:00:00:01", 1, 22001, {})


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """A host with two images, of which nobody but a node needs the first; the containers that were ended there."""
    ended = []
    for module in (folders, nodes):
        monkeypatch.setattr(module, "NODES_FOLDER", str(tmp_path / "nodes"))
        monkeypatch.setattr(module, "IMAGES_FOLDER", str(tmp_path / "images"))
    monkeypatch.setattr(folders, "SHARED_FOLDERS", str(tmp_path / "shared"))
    monkeypatch.setattr(folders, "RUNTIME", tmp_path / "runtime")
    monkeypatch.setattr(folders, "ENDS", tmp_path / "ends")
    monkeypatch.setattr(nodes, "ENDS", tmp_path / "ends")
    monkeypatch.setattr(nodes, "CURRENT_IMAGE", str(tmp_path / "current"))
    monkeypatch.setattr(nodes.runtime, "states", lambda: {NAME: "running"})
    monkeypatch.setattr(nodes.runtime, "delete", ended.append)
    for name in ("old", "new"):
        (tmp_path / "images" / name).mkdir(parents=True)
        write_image(tmp_path, name)
    (tmp_path / "current").symlink_to(tmp_path / "images" / "new")
    return ended


def write_image(tmp_path, name, **more):
    image = document(Image(name, "gradwire-node", [], {}, [])) | more
    (tmp_path / "images" / name / nodes.IMAGE_FILE).write_text(json.dumps(image))


def order(name=NAME):
    """The order of a node that another checkout has made."""
    labels = {LABEL_CLUSTER: "lab", "gradwire.node": "node1", WORKING_DIR: "/checkout"}
    made = BareNode(name, "node1", "old", labels, [], {}, 4096, 22001, VXLAN, {}, "/shared")
    return document(made)


def write_order(tmp_path, text):
    folder = tmp_path / "nodes" / NAME
    (folder / "upper").mkdir(parents=True)
    (folder / "order.json").write_text(text)
    return folder


def test_a_key_that_this_version_does_not_know_is_no_reason_to_lose_a_node(tmp_path, ended):
    write_order(tmp_path, json.dumps(order() | {"hosts": {"node1": "10.77.0.11"}}))
    (listed,) = nodes.list_nodes()
    assert (listed.name, listed.state) == (NAME, "running")
    assert nodes.prune() == []
    assert (tmp_path / "images" / "old").exists()
    assert nodes.remove_all("lab", "/checkout") == [NAME] and ended == [NAME]


def test_nodes_of_another_checkout_stay_with_what_they_share(tmp_path, ended):
    """Its cluster may have taken the name by the time at which a lost host is back, and is cleaned up by hand."""
    folder = write_order(tmp_path, json.dumps(order()))
    nodes.shared_folder("lab").mkdir(parents=True)
    assert nodes.remove_all("lab", "/another") == [] and ended == []
    assert folder.exists() and nodes.shared_folder("lab").exists()
    assert nodes.remove_all("lab", "/checkout") == [NAME]
    assert not folder.exists() and not nodes.shared_folder("lab").exists()


def without(key):
    return json.dumps({name: value for name, value in order().items() if name != key})


@pytest.mark.parametrize("text", [without("image"), "{", "[]", ""])
def test_an_order_that_cannot_be_read_is_an_error_and_its_node_stays(tmp_path, ended, text):
    folder = write_order(tmp_path, text)
    new = read(BareNode, order())
    for act in (
        nodes.list_nodes,
        lambda: nodes.make(new),
        lambda: nodes.remove_all("lab", "/checkout"),
        lambda: nodes.remove_all("other", "/checkout"),
        nodes.prune,
    ):
        with pytest.raises(HostError, match=f"{NAME}: .*by hand"):
            act()
    assert ended == [] and folder.exists()
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"old", "new"}


def test_a_node_that_nobody_can_read_can_be_removed_by_its_name(tmp_path, ended):
    folder = write_order(tmp_path, "{")
    nodes.remove(NAME)
    assert ended == [NAME] and not folder.exists()


def test_what_is_no_node_is_none(tmp_path, ended):
    (tmp_path / "nodes" / "half-made").mkdir(parents=True)
    (tmp_path / "nodes" / "file").touch()
    assert nodes.list_nodes() == []


def test_an_image_of_a_newer_version_is_an_image(tmp_path, ended):
    write_image(tmp_path, "old", since="2027")
    assert {image.id for image in nodes.list_images()} == {"old", "new"}


@pytest.mark.parametrize(("age_s", "left"), [(0, True), (LONGEST_TRANSFER_S + 60, False)])
def test_what_came_only_in_part_goes_once_nobody_can_still_be_sending_it(
    tmp_path, ended, monkeypatch, age_s, left
):
    """A host that was cut off in the middle of a transfer, or started anew, has nobody who would remove it."""
    folder = tmp_path / "images" / ".new-0123"
    folder.mkdir()
    os.utime(folder, (0, 0))  # tar gives it the time of the image's root
    clock = SimpleNamespace(time=lambda: time.time() + age_s)
    monkeypatch.setattr(nodes, "time", clock)
    assert (folder.name in nodes.prune()) is not left
    assert folder.exists() is left and (tmp_path / "images" / "new").exists()


def test_no_transfer_takes_longer_than_what_came_in_part_is_kept():
    assert LONGEST_TRANSFER_S >= SHIP_TIMEOUT_S
