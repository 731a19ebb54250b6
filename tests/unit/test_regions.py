"""Regions of the world: links from measured round trips, not from ranges."""

import json

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link import draw_access, draw_links, round_trips_ms
from cluster.links.link_spec import LinkSpec, make_link_spec
from cluster.links.profiles import load_profile, parse_profile
from cluster.links.topology_file import load_topology, parse_topology

FULL = load_topology("full")
AWS = load_profile("aws-regions")


def links_of(size):
    links = draw_links(AWS, FULL, ClusterSpec(size=size).nodes, 1)
    return {(link.src, link.dst): link for link in links}


def test_nodes_take_regions_in_their_order():
    """For Oregon, Virginia, Ohio and Tokyo, the source has round trips of 67, 49, 96, 11, 143 and 130 ms."""
    links = links_of(4)
    rtts_ms = round_trips_ms(links.values())
    assert rtts_ms["node1", "node2"] == rtts_ms["node2", "node1"] == 67
    assert rtts_ms["node3", "node4"] == 130
    assert links["node1", "node2"].rate_mbyte_s == links["node2", "node1"].rate_mbyte_s == 98.75
    assert links["node2", "node3"].delay_ms == 5.5


def test_the_eleventh_node_is_in_the_first_region_again():
    links = links_of(11)
    assert links["node1", "node11"].delay_ms == 2.5
    assert links["node11", "node2"].delay_ms == links["node1", "node2"].delay_ms


def test_two_nodes_may_be_in_one_region():
    between = [{"ends": ["a", "b"], "rtt_ms": 8, "rate_mbyte_s": 5}]
    document = {"rate_mbyte_s": 1, "delay_ms": 1, "regions": ["a", "a", "b"], "between": between}
    profile = parse_profile("x", document, "x.yml")
    links = draw_links(profile, FULL, ClusterSpec(size=3).nodes, 1)
    delays = {(link.src, link.dst): link.delay_ms for link in links}
    assert (delays["node1", "node2"], delays["node2", "node3"]) == (1, 4)


def test_what_the_nodes_keep_is_enough_to_draw_them_again():
    wanted = make_link_spec("aws-regions", "ring", 1, "auto")
    assert LinkSpec.from_origin(json.loads(json.dumps(wanted.origin()))) == wanted


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ([], "between has a and b 0 times"),
        ([{"ends": ["a", "b"], "rtt_ms": 1, "rate_mbyte_s": 1}] * 2, "2 times"),
        ([{"ends": ["a", "c"], "rtt_ms": 1, "rate_mbyte_s": 1}], "unknown region"),
        ([{"ends": ["a", "b"], "rtt_ms": -1, "rate_mbyte_s": 1}], "rtt_ms is -1"),
        ([{"ends": ["a", "a"], "rtt_ms": 1, "rate_mbyte_s": 1}], "ends"),
        ([{"ends": ["a", "b"], "rtt_ms": 1}], r"between\[0\]"),
        ("a-b", "between"),
    ],
)
def test_what_is_wrong_is_named(between, words):
    document = {"rate_mbyte_s": 1, "delay_ms": 1, "regions": ["a", "b"], "between": between}
    with pytest.raises(UsageError, match=words):
        parse_profile("x", document, "x.yml")


def test_there_are_no_more_regions_than_nodes():
    """A node may tell any profile of its links; two million pairs take seconds to check."""
    regions = [f"r{number}" for number in range(200)]
    document = {"rate_mbyte_s": 1, "delay_ms": 1, "regions": regions, "between": []}
    with pytest.raises(UsageError, match="200 regions"):
        parse_profile("x", document, "x.yml")


def test_uplinks_are_drawn_a_node_and_a_topology_may_say_otherwise():
    nodes = ClusterSpec(size=3).nodes
    profile = parse_profile(
        "x", {"rate_mbyte_s": 1, "delay_ms": 1, "uplink_mbyte_s": [2, 4]}, "x.yml"
    )

    def draw(profile, topology):
        drawn = {node.name: draw_access(profile, topology, node, 1) for node in nodes}
        assert all(values.pop("downlink_mbyte_s") is None for values in drawn.values())
        return {n: values["uplink_mbyte_s"] for n, values in drawn.items() if any(values.values())}

    drawn = draw(profile, FULL)
    assert set(drawn) == {"node1", "node2", "node3"}
    assert all(2 <= rate <= 4 for rate in drawn.values())
    assert len(set(drawn.values())) == 3
    mine = parse_topology(
        "mine", {"base": "full", "nodes": {"node2": {"uplink_mbyte_s": 9}}}, "mine.yml"
    )
    assert draw(profile, mine) == drawn | {"node2": 9}
    assert draw(AWS, mine) == {"node2": 9}
    assert parse_topology("mine", mine.document(), "again") == mine
    assert draw(AWS, FULL) == {}
