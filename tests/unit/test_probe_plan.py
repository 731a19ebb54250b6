"""The plan of pings: which node pings which, how many pings, and how far apart."""

from dataclasses import replace

import pytest

from cluster.base.spec import ClusterSpec
from cluster.contract.probe_plan import (
    EFFORTS,
    LOSS_PINGS_S,
    PINGS_S,
    delay_pings,
    loss_pings,
    ping_pairs,
    streams_of,
)
from cluster.links.link import draw_links
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology

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
    assert delay_pings(links, {"node2": "x"}, 2, NORMAL).interval_ms == 30
    jittery = [link._replace(jitter_ms=8.0) for link in links]
    assert delay_pings(jittery, {"node2": "x"}, 2, NORMAL).interval_ms == 10
    assert delay_pings(jittery, {"node2": "x"}, 2, NORMAL, apart=5).interval_ms == 40


def test_pings_neither_fill_a_slow_link_nor_take_for_ever():
    links, _ = links_of(2, "poor")
    slow = [link._replace(rate_mbyte_s=0.01, loss_pct=1.0) for link in links]
    order = loss_pings(slow, {"node2": "x"}, 2, NORMAL)
    assert 66 / order.interval_ms * 1000 <= 0.1 * 10_000  # at most 10 % of 10 kB/s
    far = [link._replace(jitter_ms=150.0) for link in links]
    order = delay_pings(far, {"node2": "x"}, 2, NORMAL)
    assert order.pings >= 25
    assert order.pings * order.interval_ms <= 25_000


def test_many_nodes_ping_more_seldom_so_that_no_ping_waits_for_a_processor():
    links, names = links_of(16)
    streams = streams_of(ping_pairs(links, names))
    assert streams == 120 + 16
    order = delay_pings(links, {"node2": "x"}, streams, NORMAL)
    assert streams / order.interval_ms * 1000 <= PINGS_S
    assert order.pings == 30
    slower = delay_pings(links, {"node2": "x"}, streams, replace(NORMAL, pace=0.25))
    assert (slower.interval_ms, slower.pings) == (4 * order.interval_ms, 30)
    lossy = [link._replace(loss_pct=1.0) for link in links]
    order = loss_pings(lossy, {"node2": "x"}, streams, NORMAL)
    assert order.pings == 800
    assert streams / order.interval_ms * 1000 <= LOSS_PINGS_S
    # Late pings are no losses.
    assert loss_pings(lossy, {"node2": "x"}, streams, replace(NORMAL, pace=0.25)) == order


def test_a_slower_pace_sends_no_fewer_pings():
    """Fewer would find less: at a quarter, a jitter 38 % too large held in 102 of 120 contracts, and in 31 before."""
    links, names = links_of(16)
    streams = streams_of(ping_pairs(links, names))
    jittery = [link._replace(jitter_ms=5.0) for link in links]
    usual, slow = (
        delay_pings(jittery, {"node2": "x"}, streams, replace(NORMAL, pace=pace))
        for pace in (1.0, 0.25)
    )
    assert slow.pings == usual.pings == 220
    assert slow.interval_ms == 4 * usual.interval_ms
