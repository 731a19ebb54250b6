"""Creation of a cluster if somebody else takes the slot that was free a moment ago."""

import shutil
from types import SimpleNamespace

import pytest

from cluster.base import spec
from cluster.base.console import Console
from cluster.base.errors import ClusterError, SlotTaken
from cluster.base.spec import ClusterSpec
from cluster.engine.resources import make_resource_request
from cluster.hosts import record
from cluster.hosts.hosts_file import Host as Machine
from cluster.hosts.hosts_file import Hosts
from cluster.lifecycle import create
from cluster.run.request import Request


class FakeEngine:
    """An engine that knows of no cluster."""

    note = ""
    existing, nodes, engines = None, (), ()
    left_networks, left_volumes = [], []

    def containers(self, name):
        return self.nodes

    def parts(self, spec):
        return [(self, [node.name for node in spec.nodes])]

    def cluster(self, name):
        return self.existing

    def slot_of_network(self, name):
        return None

    def slots(self, *, beside):
        return set()

    def networks(self, name):
        return self.left_networks

    def labelled_volumes(self, name):
        return self.left_volumes

    def left_behind(self, name):
        return []


class Host:
    """A fake host: the slots that are taken, and a log of the slots tried and the rollbacks."""

    def __init__(self):
        self.taken = {}
        self.done, self.records = [], []

    def reconcile(self, engine, spec, *others, force):
        self.done.append(spec.slot)
        self.records.append(record.read_hosts(spec.name))
        if spec.slot in self.taken:
            raise self.taken[spec.slot]
        return None, None


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The state folder of the cluster."""
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    return ClusterSpec("lab").state_dir


@pytest.fixture
def host(monkeypatch, folder):
    def roll_back(*_):
        host.done.append("rolled back")
        shutil.rmtree(folder, ignore_errors=True)

    host = Host()
    monkeypatch.setattr(create, "reconcile", host.reconcile)
    monkeypatch.setattr(create, "provide_image", lambda engine, image, report: False)
    monkeypatch.setattr(create, "remove_until_quiet", roll_back)
    return host


def bring_up(slot=None, *, engine=None, hosts=None, force=False, quiet=True):
    limits = make_resource_request(None, None, None)
    request = Request("lab", 1, slot, None, None, limits, hosts)
    compose = SimpleNamespace(end=lambda: None)
    console = Console(quiet=quiet)
    return create.create_cluster(engine or FakeEngine(), request, compose, console, force=force)


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


def test_what_is_on_the_other_hosts_goes_if_one_is_lost_meanwhile(host, monkeypatch, capsys):
    """Its SSH connection has ended; with it, all that the engine of both hosts could say is an error."""
    host.taken = {0: ClusterError("host east does not answer any more")}
    west = FakeEngine()
    west.left_behind = lambda name: [f"host east does not answer: node2 of {name!r} stays there"]
    cleaned = []
    monkeypatch.setattr(create, "has_ended", lambda engine: True)
    monkeypatch.setattr(
        create, "connect_engine", lambda name, hosts, partly: west if partly else None
    )
    monkeypatch.setattr(create, "remove_until_quiet", lambda engine, name: cleaned.append(engine))
    with pytest.raises(ClusterError, match="host east does not answer any more"):
        bring_up(quiet=False)
    assert cleaned == [west]
    assert "node2 of 'lab' stays there" in capsys.readouterr().err


@pytest.fixture
def lost_late(monkeypatch):
    """Engines of hosts, and a removal that fails on an engine once its connection has ended, which is only then."""
    tries = []

    def remove(engine, name):
        tries.append(engine)
        if engine.is_lost:
            engine.has_ended = True
            raise ClusterError("host east does not answer any more")

    def engine_of(*hosts, is_lost):
        engine = FakeEngine()
        engine.engines, engine.is_lost, engine.has_ended = hosts, is_lost, False
        return engine

    monkeypatch.setattr(create, "has_ended", lambda engine: engine.has_ended)
    monkeypatch.setattr(create, "remove_until_quiet", remove)
    return SimpleNamespace(tries=tries, engine_of=engine_of)


def test_what_is_on_the_other_hosts_goes_if_the_loss_of_one_shows_only_then(
    lost_late, monkeypatch, capsys
):
    """The fleet gives the nodes of a silent host up before the ssh client notices."""
    both = lost_late.engine_of("west", "east", is_lost=True)
    west = lost_late.engine_of("west", is_lost=False)
    west.left_behind = lambda name: [f"host east does not answer: node2 of {name!r} stays there"]
    asked = []
    monkeypatch.setattr(
        create, "connect_engine", lambda name, hosts, partly: asked.append((hosts, partly)) or west
    )
    create._roll_back(both, "lab", BOXES, Console())
    assert lost_late.tries == [both, west] and asked == [(BOXES, True)]
    said = capsys.readouterr().err
    assert "node2 of 'lab' stays there" in said and "could not remove" not in said


def test_a_host_that_is_lost_again_and_again_ends_the_removal(lost_late, monkeypatch, capsys):
    def connect(name, hosts, partly):
        return lost_late.engine_of("west", "east", is_lost=True)

    monkeypatch.setattr(create, "connect_engine", connect)
    create._roll_back(connect("lab", None, partly=False), "lab", None, Console())
    assert len(lost_late.tries) == 3
    assert "could not remove all of 'lab'" in capsys.readouterr().err


def test_where_every_slot_seems_taken_it_ends(host):
    host.taken = dict.fromkeys(range(100), SlotTaken("invalid pool request"))
    with pytest.raises(SlotTaken):
        bring_up()
    assert host.done.count("rolled back") == create.MOST_AVOIDED + 1


BOXES = Hosts((Machine("box", "me@box"),))


@pytest.mark.parametrize("is_asked", [True, False])
def test_hosts_are_on_record_also_in_the_next_slot(host, is_asked):
    if not is_asked:  # only a record, as of a cluster whose nodes were removed by hand
        record.write_record("lab", BOXES, {"node1": "box"})
    host.taken = {0: SlotTaken("its subnet is another's")}
    assert bring_up(hosts=BOXES if is_asked else None).spec.slot == 1
    assert host.records == [BOXES, BOXES] and record.read_hosts("lab") == BOXES


def foreign(state="running", where="box"):
    engine = FakeEngine()
    engine.existing = ClusterSpec("lab", 1)
    engine.nodes = [SimpleNamespace(node="node1", state=state, host=where)]
    return engine


def test_a_cluster_that_runs_on_a_host_and_to_which_we_have_no_keys_is_left_alone(host, folder):
    engine = foreign()
    with pytest.raises(ClusterError, match="on host box, and this checkout has no keys") as failed:
        bring_up(engine=engine, hosts=BOXES)
    assert "--force" in failed.value.hint and host.done == [] and not folder.exists()
    assert bring_up(engine=engine, hosts=BOXES, force=True).was_there


@pytest.mark.parametrize(
    "engine", [foreign("exited"), foreign(where="")], ids=["does not run", "is on this machine"]
)
def test_one_that_is_mended_all_the_same(host, engine):
    assert bring_up(engine=engine).was_there


def test_one_of_ours_is_known_by_its_keys(host, folder):
    record.write_record("lab", BOXES, {"node1": "box"})
    (folder / "node1").mkdir()
    assert bring_up(engine=foreign()).was_there


@pytest.fixture
def others():
    """The engine after another checkout's nodes have gone: its volume holds results that were not fetched."""
    engine = FakeEngine()
    engine.left_networks, engine.left_volumes = ["gradwire-lab_data"], ["gradwire-lab_shared"]
    return engine


def test_what_another_checkout_has_left_under_this_name_stays(host, folder, others):
    """A rollback would remove it, and so would `down` after a creation that succeeds."""
    host.taken = {0: ClusterError("a node died")}
    with pytest.raises(ClusterError, match="this checkout has not made") as refused:
        bring_up(engine=others)
    assert "network gradwire-lab_data and volume gradwire-lab_shared" in refused.value.message
    assert "python -m cluster.up --name lab --force" in refused.value.hint
    assert host.done == [] and not folder.exists()


def test_with_force_a_cluster_is_created_over_it(host, others):
    assert bring_up(engine=others, force=True).spec.slot == 0


def test_what_a_killed_command_of_this_checkout_has_left_is_made_whole(host, folder, others):
    folder.mkdir(parents=True)
    assert bring_up(engine=others).spec.slot == 0


def test_what_a_rollback_could_not_remove_is_no_other_checkouts(host, others, monkeypatch):
    """The next slot is tried all the same."""
    host.taken = {0: SlotTaken("its subnet is another's")}
    engine = FakeEngine()

    def leave(*_):
        engine.left_networks = others.left_networks
        raise ClusterError("the network is in use")

    monkeypatch.setattr(create, "remove_until_quiet", leave)
    assert bring_up(engine=engine).spec.slot == 1
