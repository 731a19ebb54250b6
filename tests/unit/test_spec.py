"""Addresses follow from names; impossible clusters are refused."""

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import MAX_NODES, ClusterSpec, free_slot, select_nodes


def test_every_address_can_be_read_off_the_name_and_the_slot():
    node2 = ClusterSpec(slot=3).nodes[1]
    assert (node2.name, node2.rank, node2.address) == ("node2", 1, "10.77.3.12")
    assert (node2.mac, node2.ssh_host, node2.ssh_port) == ("02:67:77:03:00:02", "127.0.0.1", 22302)


def test_ports_of_a_large_cluster_continue_in_a_second_range():
    nodes = ClusterSpec(size=101, slot=3).nodes
    assert [node.ssh_port for node in nodes[97:]] == [22398, 22399, 12300, 12301]


def test_no_two_nodes_of_any_two_slots_share_an_address_a_mac_or_a_port():
    nodes = [node for slot in range(100) for node in ClusterSpec("c", MAX_NODES, slot).nodes]
    for field in ("address", "mac", "ssh_port"):
        assert len({getattr(node, field) for node in nodes}) == len(nodes)
    assert max(node.ssh_port for node in nodes) < 32768


@pytest.mark.parametrize("size", [0, -1, MAX_NODES + 1])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(UsageError, match=f"{size} nodes"):
        ClusterSpec(size=size)


@pytest.mark.parametrize("name", ["", "Upper", "a b", "-x", "../x", "a" * 32])
def test_names_that_docker_or_a_path_could_not_take_are_refused(name):
    with pytest.raises(UsageError, match="not usable"):
        ClusterSpec(name)


def test_a_new_cluster_takes_the_lowest_slot_that_is_free():
    assert free_slot([]) == 0
    assert free_slot([0, 1, 3]) == 2
    with pytest.raises(UsageError):
        free_slot(range(100))


def test_nodes_are_chosen_by_name_and_unknown_names_are_named():
    nodes = ClusterSpec().nodes
    assert [n.name for n in select_nodes(nodes, ["node3"])] == ["node3"]
    assert len(select_nodes(nodes, [])) == 3
    with pytest.raises(UsageError, match="node7"):
        select_nodes(nodes, ["node7"])
