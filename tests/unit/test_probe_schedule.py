"""The schedule of a measurement: which probe measures each link's rate, what runs concurrently, how long it takes."""

import random
from collections import Counter
from itertools import pairwise
from operator import attrgetter

import pytest

from cluster.base.spec import ClusterSpec
from cluster.contract.floods import (
    BRISK,
    FRAME_BYTES,
    USUAL,
    access_floods,
    at_once,
    flood_orders,
    floods_s,
    link_floods,
    load_mbyte_s,
    queued_bytes,
)
from cluster.contract.probe_concurrency import Probe, path_groups, plan_rounds, plan_starts
from cluster.contract.probe_plan import EFFORTS, ping_pairs
from cluster.contract.probe_schedule import (
    budget_s,
    make_probe_schedule,
    one_of_each,
    stream_rounds,
)
from cluster.links.expected import Expected
from cluster.links.link import draw_links, paths
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology
from node.wire.segmentation import super_packet_bytes
from protocol.link import Link

NORMAL = EFFORTS["normal"]


def links_of(size, profile="mobile", seed=1, topology="full"):
    nodes = ClusterSpec(size=size).nodes
    links = draw_links(load_profile(profile), load_topology(topology), nodes, seed)
    return links, [node.name for node in nodes]


def timetable_of(size, profile, effort="normal", seed=1, topology="full", **uplinks):
    links, names = links_of(size, profile, seed, topology)
    ends = [path.end_to_end() for path in paths(links)]
    most_s = budget_s(size, EFFORTS[effort])
    return make_probe_schedule(
        Expected(links, uplinks=uplinks), ends, names, EFFORTS[effort], seed, most_s
    )


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("budget", [20.0, 60.0, 1e6])
def test_probes_of_one_round_share_no_link_and_no_node_twice(size, budget):
    links, names = links_of(size)
    rounds = plan_rounds(links, names, budget)
    assert sorted(map(str, links)) == sorted(str(link) for r in rounds for link in r)
    for one in rounds:
        assert len({link.src for link in one}) == len({link.dst for link in one}) == len(one)
        pairs = {(link.src, link.dst) for link in one}
        assert not any((dst, src) in pairs for src, dst in pairs)
        assert len(one) == 1 or sum(link.rate_mbyte_s for link in one) <= budget


@pytest.mark.parametrize("size", [3, 4, 9, 16])
def test_where_the_budget_allows_all_nodes_send_in_every_round(size):
    links, names = links_of(size)
    least = size - 1
    assert len(plan_rounds(links, names, 1e6)) <= least + (size % 2 == 0)


def test_a_node_with_a_downlink_takes_part_in_one_tcp_probe_at_a_time():
    """Acknowledgements of the data that it sends use its downlink, too."""
    links, names = links_of(5)
    rounds = stream_rounds(Expected(links, downlinks={"node3": 4}), links, names)
    assert sorted(map(str, links)) == sorted(str(link) for r in rounds for link in r)
    for one in rounds:
        assert sum("node3" in (link.src, link.dst) for link in one) <= 1
    busiest = max(
        Counter(end for link in one for end in (link.src, link.dst))["node1"] for one in rounds
    )
    assert busiest == 2  # without a downlink: sends and receives at once


def test_three_mobile_nodes_take_less_than_fifteen_seconds():
    for seed in range(20):
        timetable = timetable_of(3, "mobile", seed=seed)
        assert timetable.seconds < 14.6, f"seed {seed}"
        assert len(timetable.streamed | timetable.flooded) == 6


def test_where_there_is_time_tcp_is_tried_on_all_links_and_nothing_else():
    for size, profile in ((3, "mobile"), (3, "wan"), (4, "mobile"), (4, "wan")):
        timetable = timetable_of(size, profile)
        assert len(timetable.streamed) == size * (size - 1)
        assert not timetable.flooded
        assert not timetable.note


@pytest.mark.parametrize("seed", range(5))
def test_sixteen_wan_nodes_take_less_than_a_minute_and_no_link_is_left_out(seed):
    timetable = timetable_of(16, "wan", seed=seed)
    assert timetable.seconds < 60
    assert len(timetable.flooded) == 240
    assert sorted(link.src for link in timetable.streamed) == sorted(
        node.name for node in ClusterSpec(size=16).nodes
    )
    assert "16 of 240 links" in timetable.note
    assert f"seed {seed}" in timetable.note


def test_queues_of_one_link_out_of_each_node_are_measured_if_those_of_all_take_too_long():
    assert len(timetable_of(16, "mobile").burst) == 240
    timetable = timetable_of(16, "wan")
    assert sorted(link.src for link in timetable.burst) == sorted(
        node.name for node in ClusterSpec(size=16).nodes
    )
    assert "queues were measured on 16 of 240 links" in timetable.note
    assert len(timetable_of(16, "wan", "full").burst) == 240


def test_quick_is_quick_and_full_tries_tcp_everywhere_whatever_it_takes():
    quick, full = (timetable_of(16, "wan", effort) for effort in ("quick", "full"))
    assert quick.seconds < 5
    assert not quick.streamed | quick.flooded
    assert len(full.streamed) == 240
    assert full.seconds > 120


def test_what_the_machine_may_not_carry_is_flooded_too_so_that_it_can_be_told_from_a_slow_link():
    timetable = timetable_of(3, "local", "normal")
    assert timetable.flooded == timetable.streamed and len(timetable.flooded) == 6


def test_what_tcp_cannot_fill_is_flooded():
    rough = timetable_of(3, "mobile-real")
    assert (len(rough.flooded), len(rough.streamed)) == (6, 0)
    assert len(timetable_of(3, "mobile-real", "full").streamed) == 6
    assert not timetable_of(3, "mobile-real", "quick").flooded


def test_a_link_that_loses_everything_is_not_asked_for_its_speed():
    links, names = links_of(3)
    cut = links[0]._replace(loss_pct=100.0)
    timetable = make_probe_schedule(Expected((cut, *links[1:])), [], names, NORMAL, 1, 60.0)
    ends = {frozenset((link.src, link.dst)) for link in timetable.streamed | timetable.flooded}
    assert frozenset((cut.src, cut.dst)) not in ends
    assert len(ends) == 2


def test_a_sample_is_drawn_by_its_seed_one_link_out_of_each_node():
    links, names = links_of(8)
    first, again, other = (one_of_each(links, names, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [link.src for link in first] == names
    ring, _ = links_of(8, topology="ring")
    assert [link.src for link in one_of_each(ring, names, 3)] == names
    assert len(one_of_each(links[:2], names, 1)) == 1


def test_uplinks_and_paths_are_in_the_plan():
    alone = timetable_of(4, "mobile", topology="ring").seconds
    assert timetable_of(4, "mobile", topology="ring", node1=3.0).seconds > alone + 1
    links, names = links_of(4, topology="ring")
    assert len(path_groups([path.end_to_end() for path in paths(links)], names)) == 1


def test_paths_that_jitter_are_pinged_by_one_node_at_a_time():
    links, names = links_of(5, "mobile-real", topology="star")
    ends = [path.end_to_end() for path in paths(links)]
    groups = path_groups(ends, names)
    assert Counter(path for group in groups for path in group) == Counter(ends)
    assert all(len(ping_pairs(group, names)) == 1 for group in groups)


def test_floods_keep_to_the_budget_and_to_one_at_a_time_for_each_node():
    links, names = links_of(9, "wan")
    floods = link_floods(links, names)
    assert Counter(flood.link for flood in floods) == Counter(links)
    for moment in {flood.at_s for flood in floods}:
        now = [f for f in floods if f.at_s <= moment < f.over_s - 1e-9]
        assert len(now) == 1 or sum(f.link.rate_mbyte_s for f in now) <= USUAL.budget_mbyte_s
        assert len({f.link.src for f in now}) == len({f.link.dst for f in now}) == len(now)
    assert floods_s(floods) > max(flood.over_s for flood in floods)
    for end in ("src", "dst"):
        for name in names:
            own = sorted(
                (f for f in floods if getattr(f.link, end) == name), key=attrgetter("at_s")
            )
            assert all(later.at_s - earlier.at_s > 0.3 for earlier, later in pairwise(own))


def probes_of(links, random):
    return [Probe(link, random.uniform(0.1, 0.5), link.rate_mbyte_s) for link in links]


@pytest.mark.parametrize("budget", [20.0, 60.0, 1e6])
@pytest.mark.parametrize("size", [2, 3, 7, 20])
def test_a_probe_starts_as_soon_as_its_ends_are_free_and_the_budget_has_room(size, budget):
    links, _ = links_of(size)
    probes = probes_of(links, random.Random(size))
    timed = list(zip(probes, plan_starts(probes, budget), strict=True))
    for probe, start in timed:
        beside = [p for p, at in timed if p is not probe and at <= start < at + p.seconds - 1e-9]
        together = sum(p.load_mbyte_s for p in (probe, *beside))
        assert together <= budget or not beside
        ends = [(way, getattr(p.link, way)) for p in (probe, *beside) for way in ("src", "dst")]
        assert len(set(ends)) == len(ends)
        assert probe.link.ends[::-1] not in {p.link.ends for p in beside}
    if budget == 1e6:
        # Nothing waits without a reason: when a probe starts, another one ends, or it is the first.
        ends_s = {0.0, *(at + probe.seconds for probe, at in timed)}
        assert all(start in ends_s for _, start in timed)
        least_s = max(
            sum(p.seconds for p in probes if p.link.src == name) for name in {a.src for a in links}
        )
        assert max(at + probe.seconds for probe, at in timed) <= 2 * least_s


def test_a_long_probe_does_not_hold_up_those_of_other_nodes():
    long = Probe(Link("node1", "node2", 1.0, 0.0, 0.0, 0.0, 10.0), 10.0, 1.0)
    short = [
        Probe(Link("node3", f"node{number}", 1.0, 0.0, 0.0, 0.0, 10.0), 0.5, 1.0)
        for number in (4, 5, 6)
    ]
    assert plan_starts([long, *short], 100.0) == [0.0, 0.0, 0.5, 1.0]
    assert plan_starts([long, *short], 100.0, share=0.5) == [0.0, 10.0, 10.5, 11.0]


@pytest.mark.parametrize("profile", ["mobile", "wan"])
def test_thousands_of_floods_leave_hardly_a_moment_unused(profile):
    """What is sent in all, at what two processors carry, is most of the time that is planned."""
    links, names = links_of(64, profile)
    floods = link_floods(links, names, BRISK)
    busy_s = sum(load_mbyte_s(f.link, BRISK) * (f.over_s - f.at_s) for f in floods)
    assert floods_s(floods) <= 1.25 * busy_s / BRISK.budget_mbyte_s


def test_a_second_look_goes_with_less_beside_it_and_for_longer():
    links, names = links_of(9, "wan")
    first, second = link_floods(links, names), link_floods(links, names, share=0.5)
    once, twice = ({f.link: f.seconds - f.skip_s for f in floods} for floods in (first, second))
    assert twice == pytest.approx({link: 2 * seconds for link, seconds in once.items()})
    assert len({flood.at_s for flood in second}) > len({flood.at_s for flood in first})
    last = link_floods(links, names, share=0.01)
    assert len({flood.at_s for flood in last}) == len(links)  # one at a time
    longest = {f.link: f.seconds - f.skip_s for f in last}
    assert longest == pytest.approx({link: 4 * seconds for link, seconds in once.items()})


def test_a_second_look_at_slow_links_goes_with_less_beside_it_too():
    """All of them together are far below the budget, but even that may be too much for the machine."""
    links, names = links_of(3, "poor")
    rounds = [len({f.at_s for f in link_floods(links, names, share=s)}) for s in (1.0, 0.5, 0.01)]
    assert rounds[0] == 2
    assert rounds[0] < rounds[1] <= rounds[2] == len(links)
    streams = [len(stream_rounds(Expected(links), links, names, share)) for share in (1.0, 0.5)]
    assert streams[0] < streams[1]


def test_all_links_of_an_uplink_are_flooded_together_one_node_after_the_other():
    links, _ = links_of(3)
    asked = Expected(links, uplinks={"node1": 1.0, "node2": 1.0})
    floods = access_floods(asked, asked.accesses())
    assert [f.link.ends for f in floods] == [
        link.ends for node in asked.uplinks for link in links if link.src == node
    ]
    first, second, third, fourth = floods
    assert first.at_s == second.at_s
    # Both have left 20 ms of the uplink in its queue.
    assert third.at_s == fourth.at_s >= first.at_s + first.seconds + 0.04
    assert {flood.link.rate_mbyte_s for flood in floods} == {1.0}


def test_a_flood_behind_a_narrow_uplink_queues_what_that_drains_before_the_next_begins():
    links, names = links_of(8, "wan")
    asked = Expected(links, uplinks={"node3": 1.0})
    own = [asked.as_limited(link) for link in links if link.src == "node3"]
    orders = flood_orders(link_floods(own, names), dict.fromkeys(names, "10.0.0.1"))
    sends = sorted(orders["node3"].sends.values(), key=lambda send: send.at_s)
    for before, after in pairwise(sends):
        drained_s = before.queued_bytes / 1e6
        assert after.at_s >= before.at_s + before.seconds + drained_s


def test_each_node_is_told_whom_to_flood_and_whom_to_count():
    links, names = links_of(3)
    orders = flood_orders(link_floods(links, names), {name: f"at-{name}" for name in names})
    ports = {name: {send.port for send in orders[name].sends.values()} for name in names}
    assert [len(of) for of in ports.values()] == [1, 1, 1]  # a sender is known by its port
    for name in names:
        assert {peer: send.address for peer, send in orders[name].sends.items()} == {
            other: f"at-{other}" for other in names if other != name
        }
        for other, count in orders[name].counts.items():
            assert {count.port} == ports[other]
        assert set(orders[name].counts) == set(names) - {name}


@pytest.mark.parametrize("rate", [0.01, 0.5, 5.0, 50.0, 500.0])
@pytest.mark.parametrize("buffer", [10.0, 50.0, 1000.0])
def test_a_flood_fits_into_its_links_queue(rate, buffer):
    links, _ = links_of(2)
    link = links[0]._replace(rate_mbyte_s=rate, buffer_ms=buffer)
    room = rate * 1e3 * buffer
    assert at_once(link) == 1 or at_once(link) * FRAME_BYTES <= room / 10
    assert queued_bytes(link) <= room / 2


@pytest.mark.parametrize("rate", [1.0, 14.0, 16.0, 68.0, 86.0, 240.0])
def test_datagrams_are_sent_as_one_where_their_link_takes_that_whole(rate):
    links, _ = links_of(2)
    link = links[0]._replace(rate_mbyte_s=rate, buffer_ms=100.0)
    whole = super_packet_bytes(link, FRAME_BYTES)
    if whole > FRAME_BYTES:
        assert at_once(link) * FRAME_BYTES == whole
    assert at_once(link._replace(loss_pct=1.0)) >= at_once(link)  # all are cut there anyway


def test_frames_count_four_times_among_what_is_flooded_side_by_side():
    """A machine carries a limited number of packets per second, whatever their size."""
    links, names = links_of(16, "mobile")
    for pace, cost in ((USUAL, 4), (BRISK, 6)):
        floods = link_floods(links, names, pace)
        for at_s in {flood.at_s for flood in floods}:
            now = [f for f in floods if f.at_s <= at_s < f.over_s - 1e-9]
            assert sum(f.link.rate_mbyte_s for f in now) <= pace.budget_mbyte_s / cost
    fast = [link._replace(rate_mbyte_s=60.0) for link in links]
    most = Counter(flood.at_s for flood in link_floods(fast, names)).most_common(1)[0][1]
    assert most == 3  # of a budget of 200 MB/s


@pytest.mark.parametrize("profile", ["wan", "mobile"])
def test_sixty_four_nodes_are_planned_within_three_minutes(profile):
    """This takes brisker floods, and TCP on fewer links, no two of them out of one node."""
    timetable = timetable_of(64, profile)
    assert len(timetable.flooded) == 64 * 63
    assert timetable.seconds <= 180
    assert timetable.pace == BRISK
    sources = [link.src for link in timetable.streamed]
    assert len(set(sources)) == len(sources) >= 8
    assert f"{len(sources)} of 4032 links" in timetable.note


def test_a_brisk_flood_is_shorter_but_where_chance_decides():
    links, names = links_of(2, "wan")
    lossy = links[0]._replace(loss_pct=1.0)
    for link in (links[0], lossy):
        (usual,), (brisk,) = (link_floods([link], names, pace) for pace in (USUAL, BRISK))
        assert brisk.over_s < usual.over_s
        counted = [round(flood.seconds - flood.skip_s, 3) for flood in (usual, brisk)]
        assert (counted[0] == counted[1]) == link.is_impaired
