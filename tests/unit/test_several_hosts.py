"""Several engines as one: which engine gets a request, how failures are reported, and each host's documents."""

import os
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
import yaml
from fake_hosts import HOSTS, NETWORK, SPEC, FakeHost, is_locked

from cluster.base.errors import ClusterError, UsageError
from cluster.base.spec import ClusterSpec, Node
from cluster.engine.compose import compose_document, compose_text, document_of
from cluster.engine.resources import Limit, check_room, make_resource_request
from cluster.hosts import swarm
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.swarm_compose import SwarmCompose
from cluster.hosts.swarm_engines import SwarmEngines
from cluster.hosts.swarm_host import LABEL_SWARM, is_for
from cluster.hosts.swarm_lock import swarm_lock
from cluster.hosts.swarm_plan import Overlay
from cluster.ssh.keys import ssh_config


@pytest.fixture(autouse=True)
def own_lock(monkeypatch):
    """Use a lock that other tests and commands of this machine do not share."""
    monkeypatch.setattr("cluster.hosts.swarm_lock.ADDRESS", f"\0test-{os.getpid()}".encode())


@pytest.fixture
def west():
    return FakeHost("west", ["node1", "node3"])


@pytest.fixture
def east():
    return FakeHost("east", ["node2", "node4"])


def start_compose(call):
    """Stand in for Compose itself."""
    call._engine.done.append("Compose starts")


@pytest.fixture
def both(west, east, monkeypatch):
    monkeypatch.setattr(HostCompose, "start_early", start_compose)
    return SwarmEngines(HOSTS, [west, east], {})


def test_containers_are_those_of_all_hosts_in_rank_order(both):
    found = both.containers("lab")
    assert [one.node for one in found] == ["node1", "node2", "node3", "node4"]
    assert [one.host for one in found] == ["west", "east"] * 2
    assert both.cluster("lab") == replace(SPEC, image="custom")
    assert all(one.image_id == both.image_ids("x")[one.host] for one in found)


def test_each_operation_goes_to_the_engine_that_it_is_for(both, west, east):
    found = both.containers("lab")
    assert both.log_tail("id of node4") == "id of node4 on east"
    both.set_limits(found[:3], {"node1": Limit(1)})
    assert west.done == [["node1", "node3"]] and east.done == [["node2"]]
    both.remove_containers(found[1:2])
    assert west.done == [["node1", "node3"]] and east.done[1:] == [["node2"]]


def test_what_any_host_holds_is_taken(both):
    assert both.slots(beside="lab") == {4, 7, 9} and both.slot_of_network("lab") == 3
    assert both.labelled_volumes("lab") == ["gradwire-lab_shared"]
    assert both.networks("lab") == [NETWORK] and both.room() == (2, 2**32)


def test_nodes_are_reached_by_their_hosts(both):
    dial = both.dial_to(SPEC)
    assert [dial(node, 1.0) for node in SPEC.nodes] == [
        "node1 by west",
        "node2 by east",
        "node3 by west",
        "node4 by east",
    ]
    blocks = ssh_config(SPEC, both.proxy_commands(SPEC)).split("Host ")
    assert "ProxyCommand ssh -W %h:%p west" in blocks[1] and "%p east" in blocks[2]
    assert "ProxyCommand" not in ssh_config(SPEC)


def test_one_that_fails_is_named_with_its_nodes(both, east):
    both.parts(SPEC)
    east.failure = ClusterError("the Docker engine of host east does not answer any more", "look")
    with pytest.raises(ClusterError, match=r"host east .* \(it has node2, node4\)") as failed:
        both.containers("lab")
    assert failed.value.hint == "look"


def test_down_takes_nodes_network_and_swarm(both, west, east):
    *nodes, volume, network, second, first = both.remove("lab")
    assert len(nodes) == 4 and volume == "volume gradwire-lab_shared"
    assert [network, second, first] == [
        f"network {NETWORK}",
        "swarm of host east",
        "swarm of host west",
    ]
    assert west.done == [["node1", "node3"], "left"] and east.done == [["node2", "node4"], "left"]
    assert both.left_behind("lab") == []


def test_down_ends_what_a_down_that_was_ended_began(both, west, east):
    """A manager counts a host that has left the swarm as ready for some seconds more."""
    east.done.append("left")
    assert "swarm of host west" in both.remove("lab")
    assert west.done[-1] == "left" and east.done.count("left") == 1


def test_what_stays_on_a_lost_host_is_said_with_the_command_that_removes_it(west):
    left = SwarmEngines(HOSTS, [west], {"east": ["node2", "node4"]}, [HOSTS.hosts[1]])
    assert "swarm of host west" in left.remove("lab")
    (words,) = left.left_behind("lab")
    assert words.startswith("host east does not answer: node2, node4 of 'lab' stay there")
    assert "ssh east 'docker rm -fv" in words and "docker swarm leave --force" in words


def test_a_lost_host_is_not_told_to_leave_a_swarm_that_was_there(west):
    west.is_ours, west.is_busy = False, True
    left = SwarmEngines(HOSTS, [west], {"east": ["node2", "node4"]}, [HOSTS.hosts[1]])
    left.remove("lab")
    there, here = left.left_behind("lab")
    assert "ssh east 'docker rm -fv" in there and "swarm" not in there
    assert f"network {NETWORK} stays on host west" in here
    assert here.endswith(f"ssh west 'docker network rm {NETWORK}'")


def test_a_host_that_stays_in_a_swarm_whose_manager_is_lost_is_said(east):
    left = SwarmEngines(HOSTS, [east], {"west": ["node1"]}, [HOSTS.hosts[0]])
    left.remove("lab")
    said = left.left_behind("lab")
    assert any(one.startswith("host east stays in a swarm") for one in said), said
    assert f"docker network rm {NETWORK}" in said[0]


def test_a_limit_is_held_against_the_host_of_its_node(both):
    wish = make_resource_request({"node1": 8, "node2": 3})
    (_, west_nodes), (_, east_nodes) = both.parts(SPEC)
    check_room(wish, 8, 2**33, west_nodes, "host west")
    with pytest.raises(UsageError, match="cpus of node2 is 3, and host east has 2"):
        check_room(wish, 2, 2**32, east_nodes, "host east")


def test_a_host_without_nodes_has_no_part(both):
    assert [(part.host_name, nodes) for part, nodes in both.parts(ClusterSpec("lab", 1))] == [
        ("west", ["node1"])
    ]


def test_each_host_gets_its_own_services_and_a_network_that_is_there():
    whole = compose_document(SPEC, mounts_keys=False, network=NETWORK)
    part = yaml.safe_load(document_of(compose_text(whole), ["node2", "node4"]))
    assert list(part["services"]) == ["node2", "node4"]
    assert part["networks"] == {"data": {"external": True, "name": NETWORK}}
    node4 = part["services"]["node4"]
    assert node4 == whole["services"]["node4"]
    assert node4["networks"]["data"]["ipv4_address"] == "10.77.0.14"
    assert node4["mac_address"] == "02:67:77:00:00:04"


def test_a_dial_leads_nowhere_else(both):
    stranger = Node("node9", 8, "10.77.0.19", "", "127.0.0.1", 22009)
    with pytest.raises(KeyError):
        both.dial_to(SPEC)(stranger, 1.0)


@pytest.mark.parametrize(
    ("labels", "swarm", "ours"),
    [
        (None, {"LocalNodeState": "inactive"}, False),
        ({}, {"LocalNodeState": "active", "RemoteManagers": [{"Addr": "10.0.0.1:2377"}]}, False),
        ({LABEL_SWARM: "10.0.0.1:2377"}, {"LocalNodeState": "inactive"}, True),
        ({LABEL_SWARM: "10.0.0.1:2377"}, {}, True),
        (
            {LABEL_SWARM: "10.0.0.1:2377"},
            {"LocalNodeState": "pending", "RemoteManagers": [{"Addr": "10.0.0.1:2377"}]},
            True,
        ),
        # A bridge left by a killed command of ours; later the host joined somebody else's swarm.
        (
            {LABEL_SWARM: "10.0.0.1:2377"},
            {"LocalNodeState": "active", "RemoteManagers": [{"Addr": "10.0.0.7:2377"}]},
            False,
        ),
        ({LABEL_SWARM: "10.0.0.1:2377"}, {"LocalNodeState": "locked"}, False),
    ],
)
def test_a_bridge_of_ours_is_no_proof_of_another_swarm(labels, swarm, ours):
    assert is_for({"Labels": labels}, swarm) is ours


def compose_of(both, encrypted):
    both.hosts = replace(HOSTS, encrypted=encrypted)
    return SwarmCompose("lab", both)


@pytest.mark.parametrize(
    ("found", "asked", "made"),
    [
        (None, True, True),
        (Overlay(0, False), False, None),
        (Overlay(0, True), True, None),
        (Overlay(0, False), True, True),
        (Overlay(0, True), False, False),
        (Overlay(3, False), False, False),
    ],
)
def test_a_network_that_is_left_over_is_used_only_where_it_is_as_asked(
    both, west, east, found, asked, made
):
    west.has_network, west.found = found is not None, found
    with compose_of(both, asked) as compose:
        compose.prepare(SPEC)
    assert west.is_encrypted is made


def test_one_that_is_in_use_is_refused(both, west):
    west.is_busy = True
    with compose_of(both, True) as compose, pytest.raises(ClusterError) as failed:
        compose.prepare(SPEC)
    assert failed.value.message == f"network {NETWORK} of host west is in use, and not encrypted"
    assert "cluster.down --name lab" in failed.value.hint


def test_one_command_at_a_time_changes_swarms_while_compose_gets_ready(both, west, monkeypatch):
    with compose_of(both, False) as compose:
        compose.prepare(SPEC)
    assert west.done == ["Compose starts", "holds, locked: True"] and not is_locked()
    monkeypatch.setattr(
        "cluster.hosts.swarm_engines.part_hosts", lambda *_: [f"locked: {is_locked()}"]
    )
    assert both.remove("lab")[-1] == "swarm of host locked: True" and not is_locked()


def test_a_lock_that_is_not_released_is_an_error():
    words = "another command .* swarm"
    with swarm_lock(), pytest.raises(ClusterError, match=words), swarm_lock(0.3):
        pass


def test_a_manager_that_was_just_started_is_asked_again(west, east, monkeypatch):
    monkeypatch.setattr(swarm, "LOOK_INTERVAL_S", 0.0)
    west.answers = False
    assert swarm.join_hosts([west, east], "lab") is west
    west.failure, west.failures = ClusterError("The swarm does not have a leader."), 2
    assert swarm.join_hosts([west, east], "lab") is west and west.failure is None
    monkeypatch.setattr(swarm, "SETTLE_S", 0.0)
    west.answers = False
    with pytest.raises(UsageError, match="host east is in another swarm"):
        swarm.join_hosts([west, east], "lab")


def test_two_that_fail_are_both_named(both, west, east):
    both.parts(SPEC)
    for host in (west, east):
        words = f"host {host.host_name} does not answer any more"
        host.failure = ClusterError(words, f"ssh {host.host_name} true")
    with pytest.raises(ClusterError) as failed:
        both.containers("lab")
    assert failed.value.message == (
        "host west does not answer any more (it has node1, node3); "
        "host east does not answer any more (it has node2, node4)"
    )
    assert failed.value.hint == "ssh west true; ssh east true"


def test_a_stream_of_starts_that_breaks_ends_nothing(both, west, east, monkeypatch):
    def starts_of(host, *nodes):
        @contextmanager
        def starts(cluster):
            yield stream()

        def stream():
            yield from nodes
            raise ConnectionError(host.host_name)

        return starts

    failures, before = [], set(threading.enumerate())
    monkeypatch.setattr(threading, "excepthook", failures.append)
    west.starts, east.starts = starts_of(west, "node1"), starts_of(east, "node2")
    with both.starts("lab") as news:
        assert {next(news), next(news)} == {"node1", "node2"}
        for thread in set(threading.enumerate()) - before:
            thread.join(30)
    assert not failures


def test_who_listens_to_several_streams_of_starts_ends_with_them(both, west, east):
    @contextmanager
    def silent(cluster):
        yield iter(())

    west.starts = east.starts = silent
    with both.starts("lab") as news:
        listener = threading.Thread(target=list, args=(news,), daemon=True)
        listener.start()
    listener.join(30)
    assert not listener.is_alive()
