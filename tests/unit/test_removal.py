"""Removal of a cluster takes all of it, including late arrivals, and nothing of another checkout."""

from types import SimpleNamespace

import docker.errors
import pytest
import requests

from cluster.base import spec
from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.down import in_short
from cluster.engine import client
from cluster.engine.container import Container
from cluster.engine.sdk_errors import Missing, StillInUse, engine_errors
from cluster.lifecycle import removal
from cluster.lifecycle.removal import remove_cluster


class FakeEngine:
    """An engine with the nodes of one cluster; `found` is what each call of `remove` removes."""

    engines = ()

    def __init__(self, *found, nodes=(), networks=(), volumes=()):
        self._found, self._nodes = list(found), list(nodes)
        self._networks, self._volumes = list(networks), list(volumes)
        self.looks = 0

    def containers(self, name):
        return self._nodes

    def networks(self, name):
        return self._networks

    def labelled_volumes(self, name):
        return self._volumes

    def left_behind(self, name):
        return []

    def remove(self, name):
        self.looks += 1
        return self._found.pop(0) if self._found else []


class QuietConsole:
    """A console that discards its messages."""

    def say(self, words):
        pass


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """The folder that holds the clusters' keys; no test waits between two looks."""
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    monkeypatch.setattr(removal, "LOOK_INTERVAL_S", 0.0)
    return tmp_path


def node_of(checkout):
    about = {"state": "running", "health": "", "image": "", "image_id": ""}
    return Container(
        "1",
        "lab",
        "node1",
        1,
        0,
        **about,
        working_dir=checkout,
        name="lab-node1",
        is_connected=True,
    )


def test_what_comes_late_of_a_half_made_cluster_goes_too():
    """Compose of a killed command may still create parts for several looks."""
    ClusterSpec("lab").state_dir.mkdir(parents=True)
    engine = FakeEngine(["network"], [], [], ["node1"], [], [], [], ["node2"])
    removed = remove_cluster(engine, "lab", QuietConsole())
    assert [what for what in removed if "keys" not in what] == ["network", "node1", "node2"]
    assert not ClusterSpec("lab").state_dir.exists()


class BusyEngine(FakeEngine):
    """An engine that refuses to remove the volume for some looks: a killed command's last node is being created."""

    def __init__(self, refusals, *found):
        super().__init__(*found, nodes=[node_of("/here")])
        self.refusals = refusals

    def remove(self, name):
        if self.looks < self.refusals:
            self.looks += 1
            raise StillInUse("the Docker engine refused: volume is in use")
        return super().remove(name)


def test_what_is_still_in_use_is_removed_as_soon_as_it_is_not():
    ClusterSpec("lab").state_dir.mkdir(parents=True)
    removed = remove_cluster(BusyEngine(3, ["node1", "volume"]), "lab", QuietConsole(), force=True)
    assert [what for what in removed if "keys" not in what] == ["node1", "volume"]
    with pytest.raises(StillInUse, match="volume is in use"):
        remove_cluster(BusyEngine(10_000), "lab", QuietConsole(), force=True)


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (409, "volume is in use", StillInUse),
        (403, "network x has active endpoints", StillInUse),
        (500, "no space left", ClusterError),
    ],
)
def test_the_engine_says_what_is_still_in_use(status, words, kind):
    response = requests.Response()
    response.status_code = status
    with (
        pytest.raises(ClusterError, match=words) as refused,
        engine_errors("the engine", "start it"),
    ):
        raise docker.errors.APIError("refused", response, explanation=words)
    assert type(refused.value) is kind


def test_a_cluster_of_another_checkout_stays():
    engine = FakeEngine(["node1"], nodes=[node_of("/of/somebody/else")])
    with pytest.raises(ClusterError, match="brought up from /of/somebody/else"):
        remove_cluster(engine, "lab", QuietConsole())
    assert engine.looks == 0
    assert remove_cluster(engine, "lab", QuietConsole(), force=True) == ["node1"]


@pytest.mark.parametrize(
    "left",
    [
        {"networks": ["gradwire-lab_data"]},
        {"volumes": ["gradwire-lab_shared"]},
        {"networks": ["gradwire-lab_data"], "volumes": ["gradwire-lab_shared"]},
    ],
)
def test_what_is_left_of_a_cluster_that_this_checkout_has_not_made_stays(left):
    """A shared volume holds results of `--shared` that could not be fetched."""
    engine = FakeEngine(["volume"], **left)
    with pytest.raises(ClusterError, match="this checkout has not made") as refused:
        remove_cluster(engine, "lab", QuietConsole())
    assert all(name in refused.value.message for names in left.values() for name in names)
    assert engine.looks == 0 and "--force" in refused.value.hint
    assert remove_cluster(engine, "lab", QuietConsole(), force=True) == ["volume"]


def test_what_is_left_of_a_cluster_of_this_checkout_is_removed():
    """Its state folder says so, even if nodes and network were removed by hand."""
    ClusterSpec("lab").state_dir.mkdir(parents=True)
    removed = remove_cluster(FakeEngine(["volume"], volumes=["v"]), "lab", QuietConsole())
    assert "volume" in removed


def test_a_volume_counts_as_someones_only_with_the_labels_and_the_name_of_a_cluster(monkeypatch):
    """The engine itself makes one without labels, which belongs to nobody and has no results."""
    made = {"Name": "gradwire-lab_shared", "Labels": {"gradwire.cluster": "lab"}}
    found = [made, made | {"Name": "backup"}, made | {"Name": "gradwire-lab_x", "Labels": None}]

    class Api:
        def volumes(self, filters):
            label = filters["label"].split("=")
            has = [one for one in found if tuple(label) in (one["Labels"] or {}).items()]
            return {"Volumes": has or None}

    monkeypatch.setattr(client, "_connect", lambda url: Api())
    assert client.Engine().labelled_volumes("lab") == ["gradwire-lab_shared"]
    assert client.Engine().labelled_volumes("other") == []


def test_of_many_nodes_that_were_removed_the_first_and_the_last_are_named():
    few = ["container a-node1", "container a-node2", "network a_data", "keys /x/.gradwire/a"]
    assert in_short(few) == ", ".join(few)
    many = [*(f"container a-node{number}" for number in range(1, 65)), "network a_data"]
    assert in_short(many) == "64 containers (a-node1 to a-node64), network a_data"


def test_what_someone_else_has_removed_is_one_line():
    """A container may go, by `docker rm`, between two calls of a command; else that would be a bug of ours."""
    gone = docker.errors.NotFound("404 Client Error", explanation="No such container: node2")
    with pytest.raises(Missing) as caught, engine_errors("the engine", "docker info"):
        raise gone
    assert caught.value.message == "the engine refused: No such container: node2"
    assert caught.value.hint == "python -m cluster.status"


def test_one_whose_connection_has_ended_is_not_asked_again(monkeypatch):
    """What it has can only be removed through a new one."""
    monkeypatch.setattr(removal, "has_ended", lambda engine: engine.looks == 2)
    engine = BusyEngine(10_000)
    with pytest.raises(ClusterError, match="volume is in use"):
        removal.remove_until_quiet(engine, "lab")
    assert engine.looks == 2


class SlowEngine(BusyEngine):
    """An engine that takes a minute for each request, by a clock of its own."""

    now_s = 0.0

    def remove(self, name):
        self.now_s += 60.0
        return super().remove(name)


@pytest.fixture
def slow(monkeypatch):
    """A function that returns a slow engine, by whose clock removals count."""

    def make(*arguments):
        engine = SlowEngine(*arguments)
        clock = SimpleNamespace(monotonic=lambda: engine.now_s, sleep=lambda seconds: None)
        monkeypatch.setattr(removal, "time", clock)
        return engine

    return make


def test_an_engine_that_hangs_is_given_up_after_minutes(slow):
    """The Docker SDK waits for a minute for each request, of which there were fifty."""
    engine = slow(10_000)
    with pytest.raises(ClusterError, match="volume is in use"):
        removal.remove_until_quiet(engine, "lab")
    assert engine.looks == 3


def test_an_engine_that_is_only_slow_is_waited_for(slow):
    engine = slow(1, *[[f"node{number}"] for number in range(1, 9)])
    assert len(removal.remove_until_quiet(engine, "lab")) == 8
