"""The least time of a broadcast of weights, and the summary of broadcasts that took place."""

import random

import pytest

from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.broadcast import (
    SHARD_BYTES,
    arrivals_s,
    broadcast_summary,
    cycles_s,
    receipts_of,
)
from cluster.accounting.experience import predicted_broadcast_age_s
from protocol.metrics import read_line
from protocol.reader import FormatError

SHARDS = 32
BYTE_S, DELAY_S, SIZE = 5e6, 0.02, SHARDS * SHARD_BYTES


def network(ranks, uplink_byte_s=None):
    """Links that are all alike; an uplink limits the total rate at which a rank sends."""
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
    found = arrivals_s(CHAIN, SIZE, network(9))
    for hops in range(1, 9):
        assert found[hops] == pytest.approx(
            SIZE / BYTE_S * (1 + (hops - 1) / SHARDS) + hops * DELAY_S
        )


def test_a_star_takes_a_copy_for_each_through_an_uplink_and_one_without():
    assert arrivals_s(STAR, SIZE, network(9))[8] == pytest.approx(SIZE / BYTE_S + DELAY_S)
    shared = arrivals_s(STAR, SIZE, network(9, BYTE_S))
    assert shared[1] == shared[8] == pytest.approx(8 * SIZE / BYTE_S + DELAY_S)


def test_a_chain_through_uplinks_is_as_one_without():
    assert arrivals_s(CHAIN, SIZE, network(9, BYTE_S)) == arrivals_s(CHAIN, SIZE, network(9))


def test_links_that_differ_shard_by_shard():
    """Compared with each path on its own: a shard leaves once it has arrived and the link has sent the previous one."""
    rng = random.Random(3)
    for _ in range(20):
        parents = {rank: rng.randrange(rank) for rank in range(1, 7)}
        routes = {
            (src, dst): RankRoute(rng.random(), rng.uniform(1e5, 1e7), ())
            for dst, src in parents.items()
        }
        sizes = [SHARD_BYTES] * rng.randrange(9) + [rng.randrange(1, SHARD_BYTES)]
        found = arrivals_s(parents, sum(sizes), Network(routes, {}, "asked"))
        for rank in parents:
            way, at = [], rank
            while at:
                way.insert(0, routes[parents[at], at])
                at = parents[at]
            times = [0.0] * len(sizes)
            for route in way:
                for number, size in enumerate(sizes):
                    before = times[number - 1] - route.delay_s if number else 0.0
                    times[number] = max(times[number], before) + size / route.byte_s
                    times[number] += route.delay_s
            assert found[rank] == pytest.approx(times[-1])


def test_of_a_way_that_is_none_nothing_is_said():
    assert arrivals_s({1: 2, 2: 1}, SIZE, network(3)) == {}
    assert arrivals_s({1: 0, 5: 1}, SIZE, network(3)) == {}


def line(*args, **values):
    return read_line(said(*args, **values))


def said(version, published_at_s, received_at_s, waited=True, source=0, size=SIZE):
    return {
        "event": "weights",
        "rank": 1,
        "time": 1.0,
        "step": version,
        "version": version,
        "source": source,
        "bytes": size,
        "waited": waited,
        "published_at_s": published_at_s,
        "received_at_s": received_at_s,
    }


def test_what_counts_is_when_the_last_of_all_has_it_if_all_were_waiting():
    receipts = receipts_of(
        {
            1: [line(5, 100.0, 101.8), line(10, 110.0, 111.9), line(15, 120.0, 122.0)],
            2: [line(5, 100.0, 102.0, source=1), line(10, 110.0, 115.0, waited=False, source=1)],
        }
    )
    summary = broadcast_summary(receipts, [1, 2], network(3))
    assert (summary["versions"], summary["timed"]) == (3, 1)
    assert summary["seconds"] == 2.0
    bound_s = SIZE / BYTE_S * (1 + 1 / SHARDS) + 2 * DELAY_S
    assert summary["bound_s"] == pytest.approx(bound_s, abs=1e-4)
    assert summary["ratio"] == pytest.approx(2.0 / bound_s, abs=1e-4)
    unknown = broadcast_summary(receipts, [1, 2], None)
    assert (unknown["seconds"], unknown["bound_s"], unknown["ratio"]) == (2.0, None, None)
    assert broadcast_summary(receipts, [1, 2, 3], network(4))["timed"] == 0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("bytes", 0), ("bytes", 10**17), ("source", -1), ("bytes", "many"), ("waited", 1)],
)
def test_what_a_hostile_actor_says_counts_as_not_said(name, wrong):
    whole = said(5, 1.0, 2.0)
    without = {key: value for key, value in whole.items() if key != name}
    for wrong_line in (whole | {name: wrong}, without):
        with pytest.raises(FormatError, match=name):
            read_line(wrong_line)


def simulated_age_s(hops, interval_s, transfer_s, delay_s, versions=3000):
    """Return the mean age of acting weights at the end of a chain whose ranks request a version after a complete one.

    A hop starts on a version when its sender starts to receive it, and ends no earlier than the sender's hop.
    """
    asked = [0.0] * hops  # when each hop's request reaches its sender
    came = {}
    for number in range(versions):
        made_at = number * interval_s
        if made_at < asked[0] and (number + 1) * interval_s <= asked[0]:
            continue  # a newer version exists by the time the first hop asks
        start = end = max(made_at, asked[0])
        for hop in range(hops):
            if asked[hop] > end:  # still busy with an older version
                break
            start = max(start, asked[hop])
            end = max(end, start + transfer_s) + delay_s
            start += delay_s
            asked[hop] = end + delay_s
        else:
            came[end] = made_at
    times = sorted(came)
    ages = [(a, b, came[a]) for a, b in zip(times, times[1:], strict=False)]
    seconds = sum(b - a for a, b, _ in ages)
    return sum(((a + b) / 2 - made) * (b - a) for a, b, made in ages) / seconds


@pytest.mark.parametrize("hops", [1, 3, 8])
@pytest.mark.parametrize(
    ("interval_s", "transfer_s", "delay_s"), [(0.5, 0.2, 0.1), (1.0, 0.9, 0.02), (1.0, 0.1, 0.0)]
)
def test_the_age_of_what_comes_by_itself_is_what_a_simulation_gives(
    hops, interval_s, transfer_s, delay_s
):
    expected_s = simulated_age_s(hops, interval_s, transfer_s, delay_s)
    travel_s, cycle_s = transfer_s + hops * delay_s, transfer_s + 2 * delay_s
    found = predicted_broadcast_age_s(travel_s, cycle_s, interval_s)
    assert found == pytest.approx(expected_s, rel=0.05)


def test_where_a_hop_is_slower_than_versions_are_made_it_decides():
    for transfer_s, delay_s in ((3.37, 0.08), (7.71, 0.5)):
        expected_s = simulated_age_s(1, 1.0, transfer_s, delay_s)
        travel_s = transfer_s + delay_s
        found = predicted_broadcast_age_s(travel_s, travel_s + delay_s, 1.0)
        assert found == pytest.approx(expected_s, rel=0.1)


def test_the_slowest_hop_of_a_way_is_how_soon_the_next_version_follows():
    hop_s = SIZE / BYTE_S + 2 * DELAY_S
    assert cycles_s(CHAIN, SIZE, network(9)) == dict.fromkeys(CHAIN, pytest.approx(hop_s))
    assert cycles_s(STAR, SIZE, network(9)) == dict.fromkeys(STAR, pytest.approx(hop_s))
    shared_s = 8 * SIZE / BYTE_S + 2 * DELAY_S
    assert cycles_s(STAR, SIZE, network(9, BYTE_S)) == dict.fromkeys(STAR, pytest.approx(shared_s))


def test_where_some_got_all_and_others_what_had_changed_the_bound_is_that_of_the_changes():
    receipts = receipts_of({1: [line(5, 0.0, 3.0)], 2: [line(5, 0.0, 3.0, source=1, size=1000)]})
    bound_s = broadcast_summary(receipts, [1, 2], network(3))["bound_s"]
    assert bound_s == pytest.approx(2 * (1000 / BYTE_S + DELAY_S), abs=1e-4)
