"""Creating a cluster where somebody else has the slot that was free a moment ago."""

from types import SimpleNamespace

import pytest

from cluster.base.console import Console
from cluster.base.errors import ClusterError, SlotTaken
from cluster.engine.resources import make_resource_request
from cluster.lifecycle import create
from cluster.run.request import Request


class FakeEngine:
    """No cluster, as far as it knows."""

    note = ""

    def parts(self, spec):
        return [(self, [node.name for node in spec.nodes])]

    def cluster(self, name):
        return None

    def slot_of_network(self, name):
        return None

    def slots(self, *, beside):
        return set()


class Host:
    """Which slots somebody has, and what was done: the slots that were tried, and rollbacks."""

    def __init__(self):
        self.taken = {}
        self.done = []

    def reconcile(self, engine, spec, *others, force):
        self.done.append(spec.slot)
        if spec.slot in self.taken:
            raise self.taken[spec.slot]
        return None, None


@pytest.fixture
def host(monkeypatch):
    host = Host()
    monkeypatch.setattr(create, "reconcile", host.reconcile)
    monkeypatch.setattr(create, "provide_image", lambda engine, image, report: False)
    monkeypatch.setattr(create, "remove_until_quiet", lambda *_: host.done.append("rolled back"))
    return host


def bring_up(slot=None):
    request = Request("lab", 1, slot, None, None, make_resource_request(None, None, None))
    compose = SimpleNamespace(end=lambda: None)
    return create.create_cluster(FakeEngine(), request, compose, Console(quiet=True))


def test_a_slot_that_is_taken_is_left_for_the_next(host):
    host.taken = dict.fromkeys((0, 1), SlotTaken("its subnet is another's"))
    assert bring_up().spec.slot == 2
    assert host.done == [0, "rolled back", 1, "rolled back", 2]


def test_a_slot_that_was_asked_for_is_the_only_one(host):
    host.taken = {7: SlotTaken("its subnet is another's")}
    with pytest.raises(SlotTaken):
        bring_up(slot=7)
    assert host.done == [7, "rolled back"]


def test_another_failure_is_no_reason_to_go_on(host):
    host.taken = {0: ClusterError("a node died")}
    with pytest.raises(ClusterError, match="a node died"):
        bring_up()
    assert host.done == [0, "rolled back"]


def test_where_every_slot_seems_taken_it_ends(host):
    host.taken = dict.fromkeys(range(100), SlotTaken("invalid pool request"))
    with pytest.raises(SlotTaken):
        bring_up()
    assert host.done.count("rolled back") == create.MOST_AVOIDED + 1
