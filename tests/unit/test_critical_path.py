"""Critical paths of made-up runs with planted causes, compared with hand-computed ones."""

import math
import random
from dataclasses import replace

import pytest
from books import mesh, part, ring

from cluster.accounting.bounds import Network, RankRoute, bound_s
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.critical_path import find_path, path_summary, sentence
from cluster.accounting.gloo_path import find_chain
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.rank_time import RankTime, Stint, rank_time
from cluster.accounting.tcp_timing import window_after
from protocol.metrics import read_line

SIZE = 3_000_000  # in an all-reduce of three, each rank sends 4 MB in 8 messages


def computing(*ends, since=0.0):
    """Ranks that only compute."""
    return [
        RankTime(
            f"node{rank + 1}", since, end, [Stint(since, end, {"compute": 1.0})], {"other": 1.0}
        )
        for rank, end in enumerate(ends)
    ]


def network(slow=(), far=(), delay_s=0.0):
    """Links that take no time or `delay_s`, except slow ones of 1 MB/s and far ones of 0.25 s."""
    routes = {
        (a, b): RankRoute(
            0.25 if (a, b) in far else delay_s,
            1e6 if (a, b) in slow else math.inf,
            (f"{a}->{b}",),
        )
        for a in range(3)
        for b in range(3)
        if a != b
    }
    rates = {route.carriers[0]: route.byte_s for route in routes.values()}
    delays = {route.carriers[0]: route.delay_s for route in routes.values()}
    return Network(routes, rates, "asked", delays)


def all_reduce(entered, ended, size=SIZE):
    return Collective(tuple(ring(3, size, entered=entered, ended=ended)))


def told(path):
    """Return all nonzero seconds of the path."""
    seconds = {**path.ranks, **path.carriers, "not known": path.not_known_s}
    return {key: value for key, value in seconds.items() if value > 1e-9}


def test_a_slow_link_is_what_all_wait_for():
    """4 MB over 1 MB/s, between 10 s of computing before and 6 s after."""
    one = all_reduce([10.0] * 3, 14.0)
    path = find_path([one], computing(19.0, 20.0, 18.0), network(slow=[(1, 0)]))
    assert path.wall_s == 20.0
    # Rank 0 announced room immediately, so the path leads to rank 1.
    assert told(path) == pytest.approx({(1, "compute"): 6.0 + 10.0, ("1->0", "bytes"): 4.0})


def test_a_straggler_is_on_the_path_and_those_who_wait_for_it_are_not():
    """Rank 2 enters after 15 s, then 4 MB go over the slow link."""
    one = all_reduce([10.0, 11.0, 15.0], 19.0)
    path = find_path([one], computing(20.0, 21.0, 19.5), network(slow=[(2, 1)]))
    assert told(path) == pytest.approx(
        {(1, "compute"): 2.0, ("2->1", "bytes"): 4.0, (2, "compute"): 15.0}
    )


def test_two_ranks_that_take_turns_are_both_on_the_path():
    """Rank 0 is late at 10 s, rank 1 at 17 s, rank 0 again at 26 s; the links take no time."""
    rounds = [
        all_reduce([10.0, 4.0, 4.0], 10.0),
        all_reduce([12.0, 17.0, 13.0], 17.0),
        all_reduce([26.0, 19.0, 20.0], 26.0),
    ]
    path = find_path(rounds, computing(26.5, 27.0, 26.5), network())
    assert told(path) == pytest.approx({(0, "compute"): 10 + 9.0, (1, "compute"): 7 + 1.0})
    assert (path.passed, path.replayed) == (3, 3)


def test_an_uplink_that_all_transfers_share_is_named():
    """Rank 1 sends 1 MB to each of two ranks through an uplink of 1 MB/s; all enter together."""
    sends = [
        part(r, "all_to_all", {p: 1_000_000 for p in range(3) if p != r}, at=5.0, done_s=2.0)
        for r in range(3)
    ]
    free = network()
    routes = {
        pair: replace(r, byte_s=1e6, carriers=("node2 uplink", *r.carriers)) if pair[0] == 1 else r
        for pair, r in free.routes.items()
    }
    shared = replace(free, routes=routes, byte_s={**free.byte_s, "node2 uplink": 1e6})
    path = find_path([Collective(tuple(sends))], computing(8.0, 7.0, 7.0), shared)
    assert told(path) == pytest.approx(
        {(0, "compute"): 1.0, ("node2 uplink", "bytes"): 2.0, (1, "compute"): 5.0}
    )


def test_over_a_far_link_half_of_the_way_is_asking_for_room():
    """8 tiny messages, two of them in flight: four round trips."""
    tiny = all_reduce([1.0] * 3, 3.0, size=12)
    path = find_path([tiny], computing(4.0, 3.5, 3.5), network(far=[(1, 0), (0, 1)]))
    assert path.carriers == pytest.approx({("1->0", "delay"): 1.0, ("0->1", "delay"): 1.0})
    assert path.not_known_s == pytest.approx(0.0)


def test_what_the_model_does_not_have_is_not_known_and_what_was_quicker_counts_for_less():
    for took_s, carried_s, rest_s in ((5.5, 4.0, 1.5), (3.0, 3.0, 0.0)):
        one = all_reduce([10.0] * 3, 10.0 + took_s)
        path = find_path([one], computing(20.0, 19.0, 19.0), network(slow=[(1, 0)]))
        assert path.carriers == pytest.approx({("1->0", "bytes"): carried_s})
        assert path.not_known_s == pytest.approx(rest_s)
        assert sum(told(path).values()) == pytest.approx(20.0)


def test_after_a_pause_tcp_s_window_is_told_apart_and_is_the_first_to_count_for_less():
    """100 kB over 10 MB/s and 0.1 s, with room: 14,480 and 28,960 bytes for 0.2 s each, then 56,560 bytes and 0.1 s."""

    def exchange(took_s):
        hearer = part(1, "exchange", {}, at=4.9, sources=[0], done_s=0.1 + took_s)
        sender = part(0, "exchange", {1: 100_000}, at=5.0, sources=[], done_s=took_s)
        return put_together([[sender], [hearer]])

    far, ranks = mesh(2, delay_s=0.1, byte_s=1e7), computing(6.0, 7.0)
    window_s = 2 * 0.2 + 56_560e-7 - 0.01
    for took_s, counts_s in ((0.11 + window_s, window_s), (0.16, 0.05), (0.11, 0.0)):
        path = find_path(exchange(took_s), ranks, far, slow_start=True)
        found = {key: s for key, s in path.carriers.items() if s > 1e-9}
        window = {("0->1", "window"): counts_s} if counts_s else {}
        assert found == pytest.approx({("0->1", "bytes"): 0.01, ("0->1", "delay"): 0.1} | window)
        assert path.not_known_s == pytest.approx(0.0, abs=1e-9)
    at_once = find_path(exchange(0.11 + window_s), ranks, far)
    assert at_once.not_known_s == pytest.approx(window_s)


def test_what_was_done_before_a_rank_waited_for_it_held_nobody_up():
    hidden = Collective(tuple(replace(p, hidden=True) for p in all_reduce([5.0] * 3, 9.0).parts))
    path = find_path([hidden], computing(20.0, 19.0, 19.0), network(slow=[(1, 0)]))
    assert told(path) == pytest.approx({(0, "compute"): 20.0})
    assert path.passed == 0


def test_where_one_rank_alone_waited_the_way_leads_through_its_end():
    """Rank 0 computes during a collective and delays nobody; rank 2 waits for the collective from 5 s to 9 s."""
    parts = all_reduce([5.0] * 3, 9.0).parts
    mixed = Collective((replace(parts[0], hidden=True), *parts[1:]))
    path = find_path([mixed], computing(11.0, 10.0, 12.0), network(slow=[(1, 0)]))
    assert told(path)["1->0", "bytes"] == pytest.approx(4.0)
    assert path.ranks[2, "compute"] == pytest.approx(3.0)


def test_in_gossip_the_way_leads_to_whom_a_rank_hears_from():
    """Rank 0 receives from rank 1, which entered at 8 s; rank 1 receives from nobody, so its end is not explained."""
    parts = [
        [part(0, "exchange", {}, at=2.0, done_s=7.0, sources=[1])],
        [part(1, "exchange", {0: 1_000_000}, at=8.0, done_s=0.5, sources=[])],
    ]
    two = mesh(2, delay_s=0.0)
    path = find_path(put_together(parts), computing(10.0, 8.6), two)
    assert told(path) == pytest.approx(
        {(0, "compute"): 1.0, ("1->0", "bytes"): 1.0, (1, "compute"): 8.0}
    )
    sender_last = find_path(put_together(parts), computing(9.1, 12.0), two)
    assert sender_last is None  # the only collective on the path has no model


def test_a_rank_is_held_up_by_its_own_sends_over_a_slow_link():
    """Rank 0 sends 6 MB, of which the kernel holds 4 MiB; 0.2 MB of these have left and are not acknowledged yet."""
    sender = part(0, "exchange", {1: 6_000_000}, sources=[1], done_s=3.0)
    hearer = part(1, "exchange", {0: 3}, sources=[0], done_s=6.2)
    chain = find_chain(Collective((sender,), (hearer,)), 0, mesh(2, delay_s=0.1, byte_s=1e6))
    assert chain.origin == 1  # which says when it has room
    taken_s = (6_000_000 - (4 << 20) + 200_000) / 1e6
    assert chain.seconds == pytest.approx({("1->0", "delay"): 0.1, ("0->1", "bytes"): taken_s})


def test_a_delay_is_of_every_link_on_the_way():
    """Ranks 0 and 1 by way of node3, delays 0.1 and 0.3 s; the slower of the two links accounts for the bytes."""
    there = RankRoute(0.4, 1e6, ("node1->node3", "node3->node2"))
    back = RankRoute(0.0, math.inf, ("node2->node3", "node3->node1"))
    rates = {"node1->node3": 2e6, "node3->node2": 1e6, "node2->node3": 1e9, "node3->node1": 1e9}
    delays = {"node1->node3": 0.1, "node3->node2": 0.3, "node2->node3": 0.0, "node3->node1": 0.0}
    routed = Network({(0, 1): there, (1, 0): back}, rates, "asked", delays)
    parts = [
        [part(0, "exchange", {1: 1_000_000}, at=1.0, sources=[])],
        [part(1, "exchange", {}, at=1.0, done_s=1.4, sources=[0])],
    ]
    hearer = put_together(parts)[1]
    seconds = {key: s for key, s in find_chain(hearer, 1, routed).seconds.items() if s > 1e-9}
    assert seconds == pytest.approx(
        {
            ("node1->node3", "delay"): 0.1,
            ("node3->node2", "delay"): 0.3,
            ("node3->node2", "bytes"): 1.0,
        }
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_adds_up_to_the_model_s_end(seed):
    rng = random.Random(seed)
    size = rng.randrange(2, 7)
    routes = {
        pair: replace(route, delay_s=rng.uniform(0, 0.3), byte_s=rng.uniform(1e5, 1e7))
        for pair, route in mesh(size).routes.items()
    }
    rates = {route.carriers[0]: route.byte_s for route in routes.values()}
    links = Network(routes, rates, "asked")
    entered = [rng.uniform(0, 3) for _ in range(size)]
    pause_s, messages = rng.choice([0.0, 5.0]), rng.choice([1, 2, 3, None])
    size_bytes = rng.randrange(10, 10_000_000)
    parts = ring(size, size_bytes, entered=entered, ended=60.0, messages=messages)
    one = Collective(tuple(parts))
    windows = dict.fromkeys(routes, window_after(pause_s, 0.1))
    chains = [find_chain(one, rank, links, windows) for rank in range(size)]
    ends = [chain.came + sum(chain.seconds.values()) for chain in chains]
    assert max(ends) == pytest.approx(gloo_end(one, links, windows))
    assert all(chain.came == entered[chain.origin] for chain in chains)
    assert all(s >= -1e-9 for chain in chains for s in chain.seconds.values())
    assert max(ends) >= one.complete_at + bound_s(one, links, sharing=False) - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_all_of_a_run_is_passed_once_also_where_clocks_and_files_lie(seed):
    rng = random.Random(seed)
    collectives = [
        all_reduce([rng.uniform(0, 50) for _ in range(3)], rng.uniform(0, 60))
        for _ in range(rng.randrange(1, 40))
    ]
    path = find_path(collectives, computing(50.0, 52.0, 51.0), network(slow=[(1, 0)]))
    assert sum(told(path).values()) == pytest.approx(52.0)
    assert min(*path.ranks.values(), *path.carriers.values(), path.not_known_s) >= -1e-9


def test_what_is_too_much_to_replay_counts_as_the_rest_of_its_kind(monkeypatch):
    monkeypatch.setattr("cluster.accounting.critical_path.MOST_STEPS", 3 * 24 * 2)
    many = [all_reduce([5.0 * n] * 3, 5.0 * n + 4.0) for n in range(1, 11)]
    path = find_path(many, computing(60.0, 58.0, 58.0), network(slow=[(1, 0)]))
    assert (path.passed, path.replayed) == (10, 2)
    assert path.carriers[("1->0", "bytes")] == pytest.approx(40.0)
    assert sum(told(path).values()) == pytest.approx(60.0)
    huge = Collective(tuple(ring(3, SIZE, messages=20_000)))
    assert find_path([huge] * 2, computing(60.0, 58.0, 58.0), network()) is None


def test_nothing_is_told_of_a_run_whose_ranks_or_routes_are_not_known():
    one = all_reduce([1.0] * 3, 2.0)
    assert find_path([one], [], network()) is None
    assert find_path([one], computing(9.0, 9.0, 0.0), network()) is None
    assert find_path([one], computing(9.0, 9.0, 9.0), Network({}, {}, "asked")) is None
    assert path_summary(None, []) is None


def test_a_rank_s_lines_tell_what_it_did_when():
    """Ten seconds (5 computing, 1 packing, 2 waiting), a test of 3 s, and the rest that no line breaks down."""
    lines = [
        {"event": "start", "time": 100.0},
        {
            "event": "step",
            "time": 110.0,
            "step": 1,
            "sent_bytes": 0,
            "compute_s": 5.0,
            "strategy_s": 1.0,
            "comm_s": 2.0,
        },
        {"event": "eval", "time": 114.0, "step": 1, "eval_s": 3.0},
        {"event": "end", "time": 115.0, "seconds": {"data": 1.0, "other": 3.0, "compute": 9.0}},
    ]
    lines = [read_line({"rank": 0, **line}) for line in lines]
    time = rank_time("node1", lines)
    assert time.between(98.0, 100.0) == {"startup": 2.0}
    assert time.between(100.0, 104.0) == pytest.approx(
        {"compute": 2.5, "strategy": 0.5, "data": 0.25, "other": 0.75}
    )
    assert time.between(110.0, 115.0) == pytest.approx({"eval": 3.0, "data": 0.5, "other": 1.5})
    assert rank_time("node1", lines[:-1]) is None
    assert rank_time("node1", [lines[0], *lines]) is None


class Counted(list):
    """Stints that count how often one is looked at."""

    looks = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found


def test_what_a_rank_did_in_a_long_period_is_known_as_quickly_as_in_a_short_one():
    """As ranks may write 200,000 short steps, and 20,000 collectives that each look back over all of them."""
    draw = random.Random(1)
    ends = sorted(draw.uniform(0, 1000) for _ in range(4000))
    stints = [
        Stint(a, b - 1e-4, {draw.choice(["compute", "eval"]): draw.random()})
        for a, b in zip(ends, ends[1:], strict=False)
        if b - a > 2e-4
    ]
    looked_at = Counted(stints)
    time = RankTime("node1", 0.0, 1000.0, looked_at, {})
    time.between(0.0, 1.0)
    looked_at.looks = 0
    for _ in range(50):
        since, until = sorted(draw.uniform(-1, 1001) for _ in range(2))
        found = time.between(since, until)
        for what in ("compute", "eval"):
            within = (
                one.shares.get(what, 0.0)
                * max(0.0, min(until, one.until) - max(since, one.since, 0.0))
                for one in stints
            )
            assert found.get(what, 0.0) == pytest.approx(sum(within), abs=1e-9)
    assert looked_at.looks < 50 * 40


def test_a_reader_is_told_in_one_sentence():
    one = all_reduce([10.0] * 3, 14.0)
    ranks = computing(20.0, 19.0, 18.0)
    summary = path_summary(find_path([one], ranks, network(slow=[(1, 0)])), ranks)
    assert list(summary["links"]) == ["1->0"]
    assert summary["links"]["1->0"]["seconds"] == 4.0
    assert sum(sum(own.values()) for own in summary["ranks"].values()) == pytest.approx(16.0)
    changes = [
        {"what": "delay", "carrier": "1->0", "saves_s": 0.5},
        {"what": "rate", "carrier": "1->0", "saves_s": 2.0},
    ]
    said = sentence(summary, changes)
    assert "1->0 carried 4.0 s of 20.0 (twice as fast would save 2.0 s)" in said
    assert "s by itself" in said
    assert "would save" not in sentence(summary, [])
