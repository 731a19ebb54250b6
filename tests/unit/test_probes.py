"""The plan of a measurement: nothing that is measured side by side disturbs one another."""

from dataclasses import replace

import pytest

from cluster.links import draw_links
from cluster.probes import (
    EFFORTS,
    ROUND_BUDGET_MBYTE_S,
    delay_pings,
    flooded,
    loss_pings,
    ping_pairs,
    plan_rounds,
    planned_s,
    streamed,
)
from cluster.profiles import load_profile
from cluster.spec import ClusterSpec
from cluster.topology import load_topology

FULL = load_topology("full")
NORMAL = EFFORTS["normal"]


def links_of(size, profile="mobile", seed=1):
    nodes = ClusterSpec(size=size).nodes
    return draw_links(load_profile(profile), FULL, nodes, seed), [node.name for node in nodes]


@pytest.mark.parametrize("size", [2, 3, 4, 16])
def test_one_stream_of_pings_measures_both_directions_of_a_pair(size):
    links, names = links_of(size)
    pairs = ping_pairs(links, names)
    streams = [(src, dst) for src, peers in pairs.items() for dst in peers]
    both = streams + [(dst, src) for src, dst in streams]
    assert sorted(both) == sorted((link.src, link.dst) for link in links)
    assert max(map(len, pairs.values())) <= size // 2 + 1  # the work is shared


def test_pings_are_so_far_apart_that_none_waits_for_the_one_before_it():
    links, _ = links_of(2)
    assert delay_pings(links, {"node2": "x"}, NORMAL)["interval_ms"] == 30
    jittery = [replace(link, jitter_ms=8.0) for link in links]
    assert delay_pings(jittery, {"node2": "x"}, NORMAL)["interval_ms"] == 10
    assert delay_pings(jittery, {"node2": "x"}, NORMAL, apart=5)["interval_ms"] == 40


def test_pings_neither_fill_a_slow_link_nor_take_for_ever():
    links, _ = links_of(2, "poor")
    slow = [replace(link, rate_mbyte_s=0.01, loss_pct=1.0) for link in links]
    order = loss_pings(slow, {"node2": "x"})
    assert 66 / order["interval_ms"] * 1000 <= 0.1 * 10_000  # of 10 kB/s
    far = [replace(link, jitter_ms=150.0) for link in links]
    order = delay_pings(far, {"node2": "x"}, NORMAL)
    assert order["count"] >= 25
    assert order["count"] * order["interval_ms"] <= 25_000


def test_probes_of_one_round_share_no_link_and_no_node_twice():
    for size in (2, 3, 4, 7):
        nodes = ClusterSpec(size=size).nodes
        links = draw_links(load_profile("mobile"), FULL, nodes, 1)
        rounds = plan_rounds(links, [node.name for node in nodes])
        assert sorted(map(str, links)) == sorted(str(link) for r in rounds for link in r)
        for one in rounds:
            assert len({link.src for link in one}) == len({link.dst for link in one}) == len(one)
            pairs = {(link.src, link.dst) for link in one}
            assert not any((dst, src) in pairs for src, dst in pairs)
            assert len(one) == 1 or sum(link.rate_mbyte_s for link in one) <= ROUND_BUDGET_MBYTE_S


def test_three_mobile_nodes_take_less_than_fifteen_seconds():
    nodes = ClusterSpec().nodes
    for seed in range(20):
        links = draw_links(load_profile("mobile"), FULL, nodes, seed)
        seconds = planned_s(links, [node.name for node in nodes], NORMAL)
        assert seconds < 14.5, f"seed {seed}"


def test_sixteen_wan_nodes_take_less_than_a_minute_and_quick_a_few_seconds():
    nodes = ClusterSpec(size=16).nodes
    links = draw_links(load_profile("wan"), FULL, nodes, 1)
    names = [node.name for node in nodes]
    seconds = {effort: planned_s(links, names, EFFORTS[effort]) for effort in EFFORTS}
    print(seconds)
    assert seconds["quick"] < 5


def test_what_tcp_cannot_fill_is_flooded():
    links, _ = links_of(3, "mobile-real")
    assert flooded(links, NORMAL) == list(links)
    assert streamed(links, NORMAL) == []
    assert streamed(links, EFFORTS["full"]) == list(links)
    assert flooded(links, EFFORTS["quick"]) == streamed(links, EFFORTS["quick"]) == []
    clean, _ = links_of(3, "mobile")
    assert (flooded(clean, NORMAL), streamed(clean, NORMAL)) == ([], list(clean))
