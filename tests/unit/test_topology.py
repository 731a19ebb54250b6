"""Topologies: graphs by name or from a file, and the paths through them."""

from dataclasses import replace

import pytest

from cluster.base.errors import UsageError
from cluster.links.topology import next_hops, trace_path
from cluster.links.topology_file import load_topology, parse_topology

NAMES = [f"node{n}" for n in range(1, 7)]


def undirected(topology, names=NAMES):
    return sorted({tuple(sorted(pair)) for pair in topology.pairs(names)})


def test_the_shipped_graphs():
    assert len(load_topology("full").pairs(NAMES)) == 6 * 5
    ring = undirected(load_topology("ring"))
    assert len(ring) == 6
    assert ("node1", "node6") in ring
    assert load_topology("fully_connected") == load_topology("full")
    assert undirected(load_topology("star")) == [("node1", name) for name in NAMES[1:]]


@pytest.mark.parametrize("name", ["full", "ring", "star"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_they_are_right_for_few_nodes_too(name, size):
    pairs = load_topology(name).pairs(NAMES[:size])
    assert len(set(pairs)) == len(pairs)
    assert len(pairs) == {1: 0, 2: 2, 3: 4 if name == "star" else 6}[size]


def test_every_link_has_both_directions():
    for name in ("full", "ring", "star"):
        pairs = load_topology(name).pairs(NAMES)
        assert {(dst, src) for src, dst in pairs} == set(pairs)


def test_a_file_can_start_from_a_shipped_graph_and_add_links(tmp_path):
    file = tmp_path / "chord.yml"
    file.write_text("base: ring\nlinks:\n- {ends: [node1, node4], delay_ms: 80}\n")
    topology = load_topology(str(file))
    assert topology.name == "chord"
    assert len(undirected(topology)) == 7
    assert (
        topology.values("node1", "node4") == topology.values("node4", "node1") == {"delay_ms": 80}
    )


def test_what_is_said_of_a_direction_wins_over_what_is_said_of_a_node():
    topology = parse_topology(
        "x",
        {
            "base": "full",
            "nodes": {"node2": {"rate_mbyte_s": 1, "loss_pct": 2}},
            "links": [{"src": "node1", "dst": "node2", "rate_mbyte_s": 5}],
        },
        "x.yml",
    )
    assert topology.values("node1", "node2") == {"rate_mbyte_s": 5, "loss_pct": 2}
    assert topology.values("node2", "node1") == {"rate_mbyte_s": 1, "loss_pct": 2}
    assert topology.values("node1", "node3") == {}


BAD = [
    ([], "a topology is a mapping"),
    ({"bas": "ring"}, "did you mean 'base'"),
    ({"base": "rin"}, "did you mean 'ring'"),
    ({"links": []}, "no path from node1"),
    ({"links": "ring"}, "links is 'ring'"),
    ({"links": ["node1"]}, r"links\[0\] is 'node1'"),
    ({"links": [{"ends": ["node1"]}]}, "are no two nodes"),
    ({"links": [{"ends": ["node1", "node1"]}]}, "are no two nodes"),
    ({"links": [{"src": "node1"}]}, "has no two ends"),
    ({"links": [{"ends": ["node1", "node2"], "src": "node1", "dst": "node2"}]}, "no two ends"),
    ({"links": [{"ends": ["node1", "node2"], "delay": 5}]}, "did you mean 'delay_ms'"),
    ({"links": [{"ends": ["node1", "node2"], "delay_ms": -5}]}, "delay_ms is -5"),
    ({"nodes": {"node1": {"rate_mbyte": 5}}}, "did you mean 'rate_mbyte_s'"),
    ({"nodes": ["node1"]}, "nodes is"),
    ({"links": [{"ends": ["node1", "two\nlines"]}]}, r"links\[0\]: 'two\\nlines' is no name"),
    ({"links": [{"src": "", "dst": "node1"}]}, r"links\[0\]: '' is no name"),
    ({"base": "ring", "nodes": {"x" * 300: {"delay_ms": 1}}}, "nodes: 'xxx.* is no name"),
]


@pytest.mark.parametrize(("document", "message"), BAD)
def test_what_is_no_topology_is_named(document, message):
    with pytest.raises(UsageError, match=message):
        parse_topology("x", document, "x.yml").pairs(NAMES)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"links": [{"ends": ["node1", "node2"]}]}, "no path from node1 to node3, node4"),
        (
            {"base": "ring", "nodes": {"node9": {"delay_ms": 1}}},
            "names node9, but there are only 6 nodes",
        ),
        ({"base": "ring", "links": [{"src": "node1", "dst": "node3", "delay_ms": 1}]}, "no link"),
    ],
)
def test_a_graph_that_does_not_fit_the_nodes_is_refused(document, message):
    with pytest.raises(UsageError, match=message):
        parse_topology("x", document, "x.yml").pairs(NAMES)


def test_packets_take_a_shortest_way_and_every_hop_agrees():
    for name in ("full", "ring", "star"):
        pairs = load_topology(name).pairs(NAMES)
        hops = next_hops(pairs, NAMES)
        for src in NAMES:
            for dst in set(NAMES) - {src}:
                links = trace_path(hops, src, dst)
                assert set(links) <= set(pairs)
                assert links[0][0] == src
                assert links[-1][1] == dst
                if name == "star":
                    assert len(links) == (1 if "node1" in (src, dst) else 2)
    hops = next_hops(load_topology("ring").pairs(NAMES), NAMES)
    assert [b for _, b in trace_path(hops, "node2", "node5")] == ["node1", "node6", "node5"]
    assert [b for _, b in trace_path(hops, "node2", "node6")] == ["node1", "node6"]


def test_isolation_and_access_survive_the_way_over_a_node():
    said = {"base": "star", "isolated": True, "nodes": {"node2": {"downlink_mbyte_s": 3}}}
    mine = parse_topology("mine", said, "mine.yml")
    assert mine.isolated and mine.access == {"node2": {"downlink_mbyte_s": 3}}
    assert parse_topology("mine", mine.document(), "again") == mine
    ring = replace(load_topology("ring"), isolated=True)
    assert parse_topology("ring", ring.document(), "again") == ring
    with pytest.raises(UsageError, match="isolated is 'yes'"):
        parse_topology("mine", said | {"isolated": "yes"}, "mine.yml")


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'star'"):
        load_topology("sta")
    with pytest.raises(UsageError, match="no topology file"):
        load_topology("./nothing.yml")
