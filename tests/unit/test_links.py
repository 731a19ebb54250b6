"""Links drawn from profile, topology and seed are the same every time."""

import json
from dataclasses import replace

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link import (
    MIN_TIMEOUT_S,
    collective_timeout_s,
    draw_links,
    paths,
    round_trips_ms,
)
from cluster.links.link_spec import LinkSpec, link_plans, make_link_spec
from cluster.links.profiles import load_profile, parse_profile
from cluster.links.topology import next_hops
from cluster.links.topology_file import load_topology, parse_topology
from protocol.link import Link
from protocol.node_plan import Route

FULL, RING = load_topology("full"), load_topology("ring")
NODES = ClusterSpec(size=4).nodes
MOBILE = load_profile("mobile")


def hops_of(links):
    return next_hops([(link.src, link.dst) for link in links], [node.name for node in NODES])


def test_full_has_one_link_for_every_directed_pair():
    pairs = {(link.src, link.dst) for link in draw_links(MOBILE, FULL, NODES, 1)}
    assert len(pairs) == 4 * 3
    assert all(src != dst for src, dst in pairs)


def test_the_same_seed_draws_the_same_links_and_another_seed_others():
    assert draw_links(MOBILE, FULL, NODES, 1) == draw_links(MOBILE, FULL, NODES, 1)
    assert draw_links(MOBILE, FULL, NODES, 1) != draw_links(MOBILE, FULL, NODES, 2)


def test_links_are_those_of_the_first_release():
    """A changed draw would change every recorded experiment, so this one is pinned."""
    first = draw_links(MOBILE, FULL, NODES, 1)[0]
    assert (first.rate_mbyte_s, first.delay_ms) == (6.832, 85.8514)


def test_another_node_does_not_move_the_links_of_the_others():
    three, four = (set(draw_links(MOBILE, FULL, NODES[:n], 1)) for n in (3, 4))
    assert three < four


def test_every_value_lies_in_its_profiles_range():
    profile = parse_profile(
        "x",
        {"rate_mbyte_s": [1, 2], "delay_ms": [10, 20], "jitter_pct": [10, 20], "loss_pct": [1, 2]},
        "x.yml",
    )
    for link in draw_links(profile, FULL, NODES, 5):
        assert 1 <= link.rate_mbyte_s <= 2
        assert 10 <= link.delay_ms <= 20
        assert 0.1 * link.delay_ms - 0.001 <= link.jitter_ms <= 0.2 * link.delay_ms + 0.001
        assert 1 <= link.loss_pct <= 2


def test_the_queue_holds_one_round_trip_unless_the_profile_says_otherwise():
    links = draw_links(MOBILE, FULL, NODES, 1)
    rtts_ms = round_trips_ms(links)
    for link in links:
        assert link.buffer_ms == pytest.approx(rtts_ms[link.ends], abs=0.001)
    deep = parse_profile("x", {"rate_mbyte_s": 1, "delay_ms": 5, "buffer_ms": 500}, "x.yml")
    assert {link.buffer_ms for link in draw_links(deep, FULL, NODES, 1)} == {500}


def test_a_nodes_plan_holds_its_own_links_and_their_other_ends_only():
    plan = link_plans(NODES, LinkSpec(MOBILE, FULL))["node1"]
    assert len(plan.links) == 6
    assert all("node1" in link.ends for link in plan.links)
    assert set(plan.peers) == {"node2", "node3", "node4"}
    assert plan.routes == {}


def test_in_a_ring_a_node_is_told_by_whom_it_reaches_the_others():
    plan = link_plans(NODES, LinkSpec(MOBILE, RING))["node1"]
    assert set(plan.peers) == {"node2", "node4"}
    assert plan.routes == {"node3": Route(NODES[2].address, "node2")}


def test_a_way_over_several_links_takes_the_time_of_all():
    links = draw_links(MOBILE, RING, NODES, 1)
    delays = {(link.src, link.dst): link.delay_ms for link in links}
    (path,) = (path for path in paths(links) if (path.src, path.dst) == ("node1", "node3"))
    assert [link.dst for link in path.links] == ["node2", "node3"]
    assert path.via == ("node2",)
    assert path.end_to_end().delay_ms == delays["node1", "node2"] + delays["node2", "node3"]
    assert path.end_to_end().rate_mbyte_s == min(link.rate_mbyte_s for link in path.links)
    assert paths(draw_links(MOBILE, FULL, NODES, 1)) == []


def test_a_topologys_own_values_win_over_the_profiles():
    slow = parse_topology(
        "slow",
        {
            "base": "full",
            "nodes": {"node3": {"rate_mbyte_s": 0.5}},
            "links": [{"src": "node1", "dst": "node2", "delay_ms": 300, "buffer_ms": 50}],
        },
        "slow.yml",
    )
    links = {(link.src, link.dst): link for link in draw_links(MOBILE, slow, NODES, 1)}
    drawn = {(link.src, link.dst): link for link in draw_links(MOBILE, FULL, NODES, 1)}
    for pair, link in links.items():
        if "node3" in pair:
            assert link.rate_mbyte_s == 0.5
    changed = links["node1", "node2"]
    assert (changed.delay_ms, changed.buffer_ms) == (300, 50)
    assert links["node2", "node1"].delay_ms == drawn["node2", "node1"].delay_ms
    # The buffer is one round trip, and the other direction has become longer.
    assert links["node2", "node1"].buffer_ms == pytest.approx(300 + changed_back(drawn), abs=1e-3)
    assert links["node2", "node4"] == drawn["node2", "node4"]


def changed_back(drawn):
    return drawn["node2", "node1"].delay_ms


def test_unknown_topologies_and_wires_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'full'"):
        make_link_spec("mobile", "ful", 1, "auto")
    with pytest.raises(UsageError, match="did you mean 'netem'"):
        make_link_spec("mobile", "full", 1, "netm")


def test_what_the_nodes_keep_is_enough_to_draw_the_links_again():
    wanted = make_link_spec("mobile", "full", 7, "nfqueue")
    assert wanted.origin()["topology"] == "full"
    mine = parse_topology(
        "mine",
        {
            "base": "star",
            "nodes": {"node2": {"loss_pct": 1}},
            "links": [
                {"ends": ["node2", "node3"], "delay_ms": 7},
                {"src": "node1", "dst": "node2", "rate_mbyte_s": 1},
            ],
        },
        "mine.yml",
    )
    for one in (wanted, replace(wanted, topology=mine)):
        assert LinkSpec.from_origin(json.loads(json.dumps(one.origin()))) == one


def test_timeouts_grow_with_the_links():
    fast = collective_timeout_s(draw_links(load_profile("local"), FULL, NODES, 1), 4)
    poor = collective_timeout_s(draw_links(load_profile("poor"), FULL, NODES, 1), 4)
    assert collective_timeout_s((), 4) == fast == MIN_TIMEOUT_S < poor
    # 2(N-1) hops of 4 MB over the slowest link, which no rank may mistake for a hang
    assert poor > 6 * 4 / 1.0
    pair = [Link("node1", "node2", 1.0, 100.0, 0.0, 0.0, 200.0)]
    pair.append(pair[0]._replace(src="node2", dst="node1"))
    worst_s = 2 * (0.1 + 0.2 + 8.0)  # two hops of 8 MB
    assert collective_timeout_s(pair, 2) == pytest.approx(10 * worst_s)
