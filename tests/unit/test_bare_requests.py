"""What hosts without an engine are asked: how much at a time, and what is said of one that hangs."""

import json
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from cluster.base import processes
from cluster.base.errors import ClusterError
from cluster.engine.cpu_limits import CpuLimits
from cluster.hosts.bare_host import AT_ONCE, BareHost
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.several import SeveralEngines
from cluster.hosts.tunnel import Tunnel
from protocol.bare import BareNode, Listed, Nodes
from protocol.reader import document
from protocol.vxlan_plan import VxlanPlan

WEST = Host("west", "root@west", engine="none", internal_ip="10.1.0.1")
EAST = Host("east", "root@east", engine="none", internal_ip="10.1.0.2")
MAX_SESSIONS = 10  # of one connection, as sshd comes
VXLAN = VxlanPlan("node1", "10.77.0.11", "02:67:77:00:00:01", 1, 22001, {})


class Counted:
    """A tunnel to a host with these nodes, which refuses sessions as its sshd would; keeps its orders."""

    has_ended = False

    def __init__(self, nodes=()):
        self.listed, self.orders = json.dumps(document(Nodes(list(nodes)))), []
        self.free = threading.Semaphore(MAX_SESSIONS)

    def run(self, argv, stdin=""):
        if argv == ["id", "-u"]:
            return subprocess.CompletedProcess(argv, 0, "0\n", "")
        if not self.free.acquire(blocking=False):
            return subprocess.CompletedProcess(argv, 255, "", "session request failed")
        try:
            time.sleep(0.1)  # `runc list`
            if stdin:
                self.orders.append((argv[4], json.loads(stdin)))
            return subprocess.CompletedProcess(argv, 0, "{}" if stdin else self.listed, "")
        finally:
            self.free.release()


def listed(number):
    labels = {"gradwire.cluster": "lab", "gradwire.node": f"node{number}"}
    labels |= {"gradwire.size": "15", "gradwire.slot": "0"}
    name, quota_us = f"gradwire-lab-node{number}", 1000 * number
    return Listed(name, "img", labels, "running", 0, False, 1e9, True, 100_000, quota_us, 0)


def named(count):
    return [SimpleNamespace(id=f"gradwire-lab-node{n}") for n in range(1, count + 1)]


def test_limits_of_many_nodes_are_one_request_a_host():
    """With one for each node at a time, sshd refuses some, and the host seemed to be gone."""
    west = BareHost(WEST, Counted(map(listed, range(1, 14))))
    east = BareHost(EAST, Counted(map(listed, (14, 15))))
    several = SeveralEngines(Hosts((WEST, EAST)), [west, east], {})
    limits = CpuLimits(several, "lab").before
    assert {node: limit.cpus for node, limit in limits.items()} == {
        f"node{number}": pytest.approx(number / 100) for number in range(1, 16)
    }
    gone = SimpleNamespace(id="gradwire-lab-node9", node="node99", host="west")
    assert several.slow_starts([gone, *several.containers("lab")[:1]])["node1"]


@pytest.mark.parametrize("verb", ["make", "remove"])
def test_nodes_are_made_and_removed_some_at_a_time_so_that_each_request_ends(verb):
    count = 2 * AT_ONCE + 1
    host = BareHost(WEST, Counted())
    orders = [
        BareNode(one.id, "node1", "img", {}, [], {}, 4096, 22001, VXLAN, {}, "/shared")
        for one in named(count)
    ]
    if verb == "make":
        host.make(orders)
        asked = [[one["name"] for one in order["nodes"]] for _, order in host.tunnel.orders]
    else:
        host.remove_containers(named(count))
        asked = [order["names"] for _, order in host.tunnel.orders]
    assert [len(names) for names in asked] == [AT_ONCE, AT_ONCE, 1]
    assert [name for names in asked for name in names] == [one.id for one in named(count)]


@pytest.fixture
def hanging(monkeypatch):
    """A host that takes each request and never answers."""
    host = BareHost(WEST, Counted())
    host.tunnel = Tunnel.__new__(Tunnel)
    host.tunnel.host = WEST
    host.tunnel.remote = lambda argv: ["sleep", "60"]
    monkeypatch.setattr(processes, "TIMEOUT_S", 0.1)
    return host


def test_a_host_that_hangs_is_named_with_what_it_was_asked(hanging):
    with pytest.raises(ClusterError) as failed:
        hanging.remove_containers(named(3))
    assert failed.value.message == (
        "host west: remove (gradwire-lab-node1, gradwire-lab-node2, gradwire-lab-node3) has not ended within 0 s"
    )
    assert "ssh root@west" in failed.value.hint and "docker" not in failed.value.hint
    with pytest.raises(ClusterError, match="host west: list has not ended within 0 s"):
        hanging.listed()


def test_a_program_that_hangs_on_a_host_is_named_with_the_host(hanging):
    with pytest.raises(ClusterError, match="host west: `uname -m` has not ended within 0 s"):
        hanging.architecture()


def test_a_log_that_is_left_early_is_ended(hanging):
    """A quiet log never notices that nobody reads it any more."""
    began = time.monotonic()
    with hanging.tunnel.open(["tail"]):
        pass
    assert time.monotonic() - began < 5
    lines = hanging.follow_log("node1", follow=True, lines="all")
    hanging.tunnel.remote = lambda argv: ["sh", "-c", "echo a b c said; exec sleep 60"]
    assert next(lines) == "said"
    lines.close()
    assert time.monotonic() - began < 10


def test_a_log_takes_nothing_of_our_standard_input(hanging):
    hanging.tunnel.remote = lambda argv: ["cat"]
    ours, theirs = os.pipe()
    kept = os.dup(0)
    os.dup2(ours, 0)
    os.write(theirs, b"meant for us\n")
    os.close(theirs)
    try:
        with hanging.tunnel.open(["tail"]) as process:
            assert process.stdout.read() == ""
        assert os.read(0, 99) == b"meant for us\n"
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(ours)
