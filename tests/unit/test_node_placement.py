"""Placement of nodes on hosts: by name, by number, or by share of the rest."""

import itertools

import pytest

from cluster.base.errors import UsageError
from cluster.hosts.hosts_file import Host
from cluster.hosts.node_placement import nodes_by_host, place


def nodes(count):
    return [f"node{number}" for number in range(1, count + 1)]


def host(name, nodes=None, cpus=1.0):
    return Host(name, name, internal_ip="192.168.1.1", nodes=nodes, cpus=cpus)


def placed(count, *hosts):
    """Return the first letters of the hosts of node1, node2, …."""
    found = place(nodes(count), hosts)
    assert list(found) == nodes(count)
    return "".join(name[0] for name in found.values())


@pytest.mark.parametrize(
    ("count", "hosts", "words"),
    [
        (4, [host("a"), host("b")], "abab"),
        (3, [host("a")], "aaa"),
        (6, [host("a", cpus=2), host("b", cpus=1)], "aabaab"),
        (4, [host("a", cpus=0.5), host("b", cpus=4)], "bbbb"),
        (4, [host("a", 1), host("b", 3)], "abbb"),
        (2, [host("a", 1), host("b", 3)], "ab"),
        (5, [host("a"), host("b", 2)], "bbaaa"),
        (4, [host("a", ("node2", "node4")), host("b", 1), host("c")], "baca"),
        (1, [host("a"), host("b")], "a"),
    ],
)
def test_named_ones_first_then_numbers_then_shares(count, hosts, words):
    assert placed(count, *hosts) == words


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([host("a", ("node4",))], "host a: nodes names node4, and the cluster has 3 nodes"),
        ([host("a", ("node1", "node1"))], "node1 is named by host a, twice"),
        ([host("a", ("node1",)), host("b", ("node1",))], "node1 is named by hosts a and b"),
        ([host("a", 1), host("b", 1)], "places for 2 of 3 nodes, and none for node3"),
        ([host("a", ("node2",))], "places for 1 of 3 nodes, and none for node1, node3"),
    ],
)
def test_what_cannot_be_is_one_line(hosts, words):
    with pytest.raises(UsageError, match=words) as refused:
        place(nodes(3), hosts)
    assert "\n" not in refused.value.message and refused.value.hint


@pytest.mark.parametrize("kinds", list(itertools.product((None, 3, 40), (0.5, 1.0, 3.0), repeat=2)))
def test_to_grow_moves_no_node(kinds):
    first, second = host("a", *kinds[:2]), host("b", *kinds[2:])
    try:
        most = placed(43, first, second, host("c"))
    except UsageError:
        return
    assert all(placed(count, first, second, host("c")) == most[:count] for count in range(1, 43))


def test_shares_are_as_large_as_their_processors():
    found = placed(60, host("a", cpus=1), host("b", cpus=2), host("c", cpus=3))
    assert [found.count(name) for name in "abc"] == [10, 20, 30]


def test_the_nodes_of_a_host_that_got_none_are_none():
    hosts = [host("a", 4), host("b")]
    assert nodes_by_host(place(nodes(2), hosts), hosts) == {"a": ["node1", "node2"], "b": []}
