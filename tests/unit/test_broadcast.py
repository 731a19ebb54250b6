"""How long a broadcast of weights takes at best, and what is said of those that were."""

import random

import pytest

from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.broadcast import (
    arrivals_s,
    broadcast_summary,
    read_receipts,
)
from cluster.accounting.experience import predicted_broadcast_age_s
from cluster.accounting.metrics import is_event

BYTE_S, DELAY_S, SIZE = 5e6, 0.02, 8_000_000


def network(ranks, uplink_byte_s=None):
    """All links alike; with an uplink, what a rank sends on all of them together is no faster than that."""
    routes, byte_s = {}, {}
    for src in range(ranks):
        for dst in range(ranks):
            carriers = (f"{src}->{dst}", *([f"{src} uplink"] if uplink_byte_s else []))
            routes[src, dst] = RankRoute(DELAY_S, BYTE_S, carriers)
            byte_s[f"{src}->{dst}"] = BYTE_S
        byte_s[f"{src} uplink"] = uplink_byte_s
    return Network(routes, byte_s, "asked")


CHAIN = {rank: rank - 1 for rank in range(1, 9)}
STAR = dict.fromkeys(range(1, 9), 0)


def test_of_links_alike_a_chain_takes_what_the_formula_says():
    found = arrivals_s(CHAIN, SIZE, 32, network(9))
    for hops in range(1, 9):
        assert found[hops] == pytest.approx(SIZE / BYTE_S * (1 + (hops - 1) / 32) + hops * DELAY_S)


def test_a_star_takes_a_copy_for_each_through_an_uplink_and_one_without():
    assert arrivals_s(STAR, SIZE, 32, network(9))[8] == pytest.approx(SIZE / BYTE_S + DELAY_S)
    shared = arrivals_s(STAR, SIZE, 32, network(9, BYTE_S))
    assert shared[1] == shared[8] == pytest.approx(8 * SIZE / BYTE_S + DELAY_S)


def test_a_chain_through_uplinks_is_as_one_without():
    assert arrivals_s(CHAIN, SIZE, 32, network(9, BYTE_S)) == arrivals_s(
        CHAIN, SIZE, 32, network(9)
    )


def test_links_that_differ_shard_by_shard():
    """Against the same along each way: a shard leaves when it is there and the link has taken the last."""
    rng = random.Random(3)
    for _ in range(20):
        parents = {rank: rng.randrange(rank) for rank in range(1, 7)}
        routes = {
            (src, dst): RankRoute(rng.random(), rng.uniform(1e5, 1e7), ())
            for dst, src in parents.items()
        }
        shards = rng.randrange(1, 9)
        found = arrivals_s(parents, SIZE, shards, Network(routes, {}, "asked"))
        for rank in parents:
            way, at = [], rank
            while at:
                way.insert(0, routes[parents[at], at])
                at = parents[at]
            times = [0.0] * shards
            for route in way:
                for number in range(shards):
                    before = times[number - 1] - route.delay_s if number else 0.0
                    times[number] = max(times[number], before) + SIZE / shards / route.byte_s
                    times[number] += route.delay_s
            assert found[rank] == pytest.approx(times[-1])


def test_of_a_way_that_is_none_nothing_is_said():
    assert arrivals_s({1: 2, 2: 1}, SIZE, 4, network(3)) == {}
    assert arrivals_s({1: 0, 5: 1}, SIZE, 4, network(3)) == {}


def line(version, published_at_s, received_at_s, asked_at_s=0.0, source=0):
    return {
        "event": "weights",
        "rank": 1,
        "time": 1.0,
        "step": version,
        "version": version,
        "source": source,
        "shards": 32,
        "bytes": SIZE,
        "asked_at_s": asked_at_s,
        "published_at_s": published_at_s,
        "received_at_s": received_at_s,
    }


def test_what_counts_is_when_the_last_of_all_has_it_if_all_were_waiting():
    receipts = read_receipts(
        {
            1: [line(5, 100.0, 101.8), line(10, 110.0, 111.9), line(15, 120.0, 122.0)],
            2: [line(5, 100.0, 102.0, source=1), line(10, 110.0, 115.0, 112.0, source=1)],
        }
    )
    summary = broadcast_summary(receipts, [1, 2], network(3))
    assert (summary["versions"], summary["timed"]) == (3, 1)
    assert summary["seconds"] == 2.0
    bound_s = SIZE / BYTE_S * (1 + 1 / 32) + 2 * DELAY_S
    assert summary["bound_s"] == pytest.approx(bound_s, abs=1e-4)
    assert summary["ratio"] == pytest.approx(2.0 / bound_s, abs=1e-4)
    unknown = broadcast_summary(receipts, [1, 2], None)
    assert (unknown["seconds"], unknown["bound_s"], unknown["ratio"]) == (2.0, None, None)
    assert broadcast_summary(receipts, [1, 2, 3], network(4))["timed"] == 0


@pytest.mark.parametrize(
    ("name", "wrong"), [("shards", 0), ("shards", 10**6), ("source", -1), ("bytes", "many")]
)
def test_what_a_hostile_actor_says_counts_as_not_said(name, wrong):
    assert is_event(line(5, 1.0, 2.0))
    assert not is_event(line(5, 1.0, 2.0) | {name: wrong})
    without = {key: value for key, value in line(5, 1.0, 2.0).items() if key != name}
    assert not is_event(without)


def simulated_age_s(travel_s, interval_s, versions=5000):
    """The mean age of what acts, version by version: the next is asked for when the last has come."""
    ages, asked, had, came = [], 0.0, 0.0, 0.0
    for _ in range(versions):
        latest = asked // interval_s * interval_s
        made = latest if latest > had else latest + interval_s
        comes = max(asked, made) + travel_s
        if had:
            ages.append(((came + comes) / 2 - had, comes - came))
        had, came, asked = made, comes, comes
    return sum(age * s for age, s in ages) / sum(s for _, s in ages)


@pytest.mark.parametrize(
    ("travel_s", "interval_s"), [(0.3, 1.0), (0.9, 1.0), (3.37, 1.0), (7.71, 1.0)]
)
def test_the_age_of_what_comes_by_itself_is_what_a_simulation_gives(travel_s, interval_s):
    found = predicted_broadcast_age_s(travel_s, interval_s)
    assert found == pytest.approx(simulated_age_s(travel_s, interval_s), rel=0.05)
