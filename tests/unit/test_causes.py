"""Causes of a slow run: the planted one comes first, with the seconds that it cost."""

import math
from dataclasses import replace

import pytest
from books import part, ring, ring_links

from cluster.accounting.better_link import with_rate
from cluster.accounting.bounds import Network
from cluster.accounting.causes import (
    Cause,
    Interval,
    causes_summary,
    find_causes,
    parse_events,
    sentence,
)
from cluster.accounting.collectives import Collective
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.rank_time import RankTime, Stint
from cluster.accounting.ring_order import ring_messages
from cluster.accounting.routes import make_network
from cluster.accounting.tcp_timing import SocketState, Window
from protocol.link import Link

NAMES = ["node1", "node2", "node3"]
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]
SIZE = 6_000_000


def network(slow=None, far=None, uplink=None):
    """Links of 10 MB/s and 10 ms, except a slow one of 1 MB/s and a far one of 500 ms."""
    links = [
        Link(
            src=a,
            dst=b,
            rate_mbyte_s=1.0 if (a, b) == slow else 10.0,
            delay_ms=500.0 if (a, b) == far else 10.0,
            buffer_ms=100.0,
            jitter_ms=0.0,
            loss_pct=0.0,
        )
        for a, b in PAIRS
    ]
    return make_network(NAMES, links, {"uplink": {uplink: 1.0}} if uplink else {})


def all_reduces(network, count=10, entered=None, size=SIZE):
    """All-reduces with gloo's timing on this network, 10 s apart."""
    found = []
    for n in range(count):
        at = [1000 + 10 * n + s for s in (entered or [0.0] * 3)]
        one = Collective(tuple(ring(3, size, entered=at, ended=max(at) + 1)))
        found.append(ended_at(one, gloo_end(one, network)))
    return found


def ended_at(collective, at):
    """The collective with another end, for which its ranks do nothing but wait."""
    parts = collective.parts
    return Collective(tuple(replace(p, ended=at, waited_s=at - p.entered) for p in parts))


def behind_computing(collective, waited_s):
    """The collective with ranks that compute, and wait for it only at its end."""
    return Collective(tuple(replace(part, waited_s=waited_s) for part in collective.parts))


def ranks(*stints, until=1200.0):
    """Rank times from 1000 on; between collectives ranks compute, except in stints: (rank, since, until, what)."""
    return [
        RankTime(
            name,
            1000.0,
            until,
            [Stint(since, till, {what: 1.0}) for r, since, till, what in stints if r == rank],
            {"compute": 1.0},
        )
        for rank, name in enumerate(NAMES)
    ]


def first(*args, **options):
    found = find_causes(*args, **options)
    return (found[0].cause, found[0].of) if found else None


def test_links_that_are_all_alike_have_no_cause():
    plain = network()
    assert find_causes(all_reduces(plain), ranks(), plain) == []


def test_the_slow_link_is_named_with_what_it_cost():
    slow = network(slow=("node2", "node1"))
    found = find_causes(all_reduces(slow), ranks(), slow)
    assert (found[0].cause, found[0].of) == ("slow_link", "node2->node1")
    one = all_reduces(slow, 1)[0]
    saved_s = gloo_end(one, slow) - gloo_end(one, network())
    assert found[0].seconds == pytest.approx(10 * saved_s, rel=0.01)
    assert found[0].words == "node2->node1 takes 10.00 times as long per byte as the median link"


def test_what_is_worse_than_the_median_link_is_never_said_to_be_like_it():
    """By rate and by delay in the same words, as `1.04 times slower` may be 4 % or 104 %."""
    words = [Cause(cause, "a->b", factor=1.0044).words for cause in ("slow_link", "far_link")]
    assert words == [
        "a->b takes 1.004 times as long per byte as the median link",
        "a->b delays packets 1.004 times as long as the median link",
    ]


def test_of_many_nodes_the_slow_link_is_named_too():
    nodes = 24
    slow = ring_links(nodes, slow="node3->node2")
    some = []
    for n in range(9):
        parts = ring(nodes, SIZE, entered=[30.0 * n] * nodes, messages=ring_messages(nodes, SIZE))
        some.append(ended_at(Collective(tuple(parts)), gloo_end(Collective(tuple(parts)), slow)))
    assert first(some, [], slow) == ("slow_link", "node3->node2")


def ring_of_24(rates=(), far=None, uplinks=False):
    """Links both ways between neighbours on a ring, 10 MB/s and 10 ms, except some rates and a far one of 50 ms."""
    names = [f"node{n + 1}" for n in range(24)]
    pairs = [
        pair for n in range(24) for pair in ((names[n], names[n - 1]), (names[n - 1], names[n]))
    ]
    links = [
        Link(*pair, dict(rates).get(pair, 10.0), 50.0 if pair == far else 10.0, 0.0, 0.0, 100.0)
        for pair in pairs
    ]
    return make_network(names, links, {"uplink": dict.fromkeys(names, 100.0)} if uplinks else {})


ODD = ("node3", "node2")
SLOWER = {(f"node{n + 1}", f"node{n}"): 9.0 / n for n in range(1, 20)}


@pytest.mark.parametrize(
    ("there", "cause"),
    [
        (ring_of_24(rates=SLOWER, far=ODD), "far_link"),
        (ring_of_24(rates={ODD: 0.1}, uplinks=True), "slow_link"),
    ],
    ids=["among slow links", "among shared uplinks"],
)
def test_of_each_sort_of_cause_the_worst_is_tried_where_not_all_can_be(monkeypatch, there, cause):
    """There is time for three of some twenty; the planted one costs most."""
    messages = ring_messages(24, 24_000)
    monkeypatch.setattr("cluster.accounting.causes.MOST_STEPS", 8 * 24 * messages)
    parts = Collective(tuple(ring(24, 24_000, messages=messages)))
    assert first([ended_at(parts, gloo_end(parts, there))], [], there) == (cause, "node3->node2")


def test_a_slow_rank_is_named_where_its_own_part_is_hidden():
    """It starts an all-reduce last and computes on; the others wait for it, as in eager-diloco."""
    at = [1000.0, 1000.0, 1005.0]
    parts = ring(3, SIZE, entered=at, ended=1006.0)
    waiting = [replace(part, waited_s=6.0) for part in parts[:2]]
    one = Collective((*waiting, replace(parts[2], ended=1010.0, waited_s=0.0, hidden=True)))
    [found] = find_causes([one], ranks((2, 1000.0, 1005.0, "compute"), until=1010.0), None)
    assert (found.cause, found.of) == ("slow_node", "node3")
    assert found.seconds == pytest.approx(5.0)


def test_no_cause_costs_more_than_ranks_waited():
    """Ten all-reduces behind which ranks compute; they wait 0.2 s for each."""
    slow = network(slow=("node2", "node1"))
    some = [behind_computing(one, 0.2) for one in all_reduces(slow)]
    hit = [ended_at(one, one.parts[0].ended + 1) if n == 4 else one for n, one in enumerate(some)]
    hit[4] = behind_computing(hit[4], 0.5)
    cut = Interval("at: 40s, partition: node1 | node2 node3", 1039.0, 1052.0)
    found = {one.cause: one.seconds for one in find_causes(hit, ranks(), slow, [cut])}
    assert found["slow_link"] == pytest.approx(9 * 0.2 + 0.5)
    assert found["event"] == pytest.approx(0.5)


def test_losses_and_pauses_cost_no_more_than_ranks_waited():
    plain = network()
    lossy = [
        with_sockets(one, window=20_000, idle_s=0.0, sent_again=5) for one in all_reduces(plain)
    ]
    some = [behind_computing(one, 0.3) for one in lossy]
    [found] = find_causes(some, ranks(), plain, slow_start=True)
    assert (found.cause, found.seconds) == ("lossy_link", pytest.approx(10 * 0.3))


def test_a_late_rank_for_which_nobody_waits_costs_nothing():
    """Rank 1 comes 3 s late; the others compute for longer than that, and then wait for the data."""
    plain = network()
    late = all_reduces(plain, entered=[0.0, 3.0, 0.0])
    assert find_causes([behind_computing(one, 0.1) for one in late], ranks(), plain) == []
    half = [behind_computing(one, one.parts[1].waited_s + 1.5) for one in late]
    [found] = find_causes(half, ranks(), plain)
    assert (found.cause, found.of, found.seconds) == ("slow_node", "node2", pytest.approx(15))


def test_the_far_link_is_named():
    far = network(far=("node1", "node3"))
    assert first(all_reduces(far, size=3), ranks(), far) == ("far_link", "node1->node3")


def test_an_uplink_that_links_share_is_named():
    shared = network(uplink="node3")
    sends = [part(r, "all_to_all", {p: 500_000 for p in range(3) if p != r}) for r in range(3)]
    assert first([Collective(tuple(sends))] * 5, ranks(), shared) == (
        "narrow_access",
        "node3 uplink",
    )


def with_sockets(collective, *, window, idle_s, sent_again):
    """Return the collective with TCP state on each rank's connection to its receiver; only rank 1's has losses."""
    parts = []
    for one in collective.parts:
        again = sent_again if one.rank == 1 else 0
        size = window if one.rank == 1 or not sent_again else 10**7
        state = SocketState(Window(size, size), idle_s, 0.3, again)
        parts.append(replace(one, tcp=dict.fromkeys(one.to, state)))
    return ended_at(Collective(tuple(parts)), parts[0].ended + 2.0)


def test_small_windows_after_pauses_are_one_cause_and_lost_packets_another():
    plain = network(far=("node2", "node1"))
    near = replace(plain, delay_s=dict.fromkeys(plain.delay_s, 0.01))
    kept = all_reduces(plain)
    idle = [with_sockets(one, window=10**5, idle_s=9.0, sent_again=0) for one in kept]
    found = find_causes(idle, ranks(), plain, slow_start=True)
    assert "idle_window" in [one.cause for one in found]
    lossy = [with_sockets(one, window=20_000, idle_s=0.0, sent_again=5) for one in kept]
    causes = {one.cause: one for one in find_causes(lossy, ranks(), plain, slow_start=True)}
    assert causes["lossy_link"].of == "node2->node1" and "idle_window" not in causes
    assert causes["lossy_link"].seconds > 10
    assert near.routes == plain.routes


def test_pauses_cost_no_more_than_was_measured_beyond_gloo_s_way():
    far = network(far=("node2", "node1"))
    idle = [with_sockets(one, window=10**5, idle_s=9.0, sent_again=0) for one in all_reduces(far)]
    quick = [
        ended_at(one, plain.parts[0].ended + 0.1)
        for one, plain in zip(idle, all_reduces(far), strict=True)
    ]
    [found] = [
        one
        for one in find_causes(quick, ranks(), far, slow_start=True)
        if one.cause == "idle_window"
    ]
    assert found.seconds == pytest.approx(10 * 0.1)


def test_a_rank_that_computes_longer_is_named_with_what_its_peers_waited():
    plain = network()
    late = all_reduces(plain, entered=[0.0, 3.0, 0.0])
    found = find_causes(late, ranks(), plain)
    assert (found[0].cause, found[0].of) == ("slow_node", "node2")
    assert found[0].seconds == pytest.approx(30, rel=0.01)


def test_a_node_that_came_to_its_cpu_limit_is_named_as_that():
    plain = network()
    late = all_reduces(plain, entered=[0.0, 3.0, 0.0])
    assert first(late, ranks(), plain, (), {"node2": 20.0}) == ("throttled_node", "node2")
    assert first(late, ranks(), plain, (), {"node2": 2.0}) == ("slow_node", "node2")


def test_a_rank_that_tests_is_no_slow_node():
    plain = network()
    late = all_reduces(plain, entered=[3.0, 0.0, 0.0])
    tests = [(0, 1000 + 10 * n, 1003 + 10 * n, "eval") for n in range(10)]
    found = find_causes(late, ranks(*tests), plain)
    assert (found[0].cause, found[0].of) == ("evaluation", "node1")
    assert found[0].words == "node1 tests while its peers wait"


def test_collectives_during_an_event_are_its_cost_also_where_nothing_is_known_of_links():
    plain = network()
    some = all_reduces(plain)
    hit = [ended_at(one, one.parts[0].ended + 8) if n == 4 else one for n, one in enumerate(some)]
    cut = Interval("at: 40s, partition: node1 | node2 node3", 1039.0, 1052.0)
    found = find_causes(hit, ranks(), None, [cut])
    assert [(one.cause, one.of) for one in found] == [("event", cut.what)]
    assert found[0].seconds == pytest.approx(8, abs=0.01)


def test_events_are_read_as_intervals():
    lines = [
        {"time": 5.0, "what": "a"},
        {"time": 6.0, "what": "b"},
        {"time": 7.0, "what": "over: a"},
        {"time": 8.0, "what": "over: c"},
    ]
    assert parse_events(lines) == [Interval("a", 5.0, 7.0), Interval("b", 6.0, math.inf)]


def test_what_is_not_worth_a_word_is_not_told():
    slow = network(slow=("node2", "node1"))
    found = find_causes(all_reduces(slow), ranks(), slow)
    told = causes_summary(found, 100.0)
    assert told[0]["cause"] == "slow_link" and told[0]["factor"] == 10.0
    assert sentence(told).startswith("slowed down by: node2->node1 takes 10.00 times as long per")
    assert causes_summary(found, 1e5) == [] and sentence([]) == ""


def test_nothing_is_told_where_nothing_is_known():
    assert find_causes([], [], None) == []
    assert find_causes([], ranks(), Network({}, {}, "asked")) == []
    plain = network()
    assert find_causes(all_reduces(plain), [], plain) == []


def test_a_rate_changes_every_route_over_it():
    faster = with_rate(network(slow=("node2", "node1")), "node2->node1", 5e6)
    assert faster.routes[1, 0].byte_s == 5e6
