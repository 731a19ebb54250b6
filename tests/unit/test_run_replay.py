"""How much shorter a run with quicker parts would have been: by hand, and against a simulation of the whole program."""

import random
import tracemalloc
from dataclasses import replace

import pytest
from books import part, ring

from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.run_replay import Quicker, RunReplay


def all_reduce(at, took_s, waits, entered=None):
    """An all-reduce of which each rank waited for the last `waits` seconds."""
    came = entered or [at] * len(waits)
    parts = ring(len(waits), 300, entered=came, ended=max(came) + took_s)
    return Collective(tuple(replace(p, waited_s=s) for p, s in zip(parts, waits, strict=True)))


def saved_s(collectives, *quicker_s):
    transfers = {(id(one), None): s for one, s in zip(collectives, quicker_s, strict=True)}
    return RunReplay(collectives).saved_s(Quicker(transfers))


def test_where_ranks_do_nothing_but_wait_all_that_is_quicker_is_saved():
    some = [all_reduce(10.0 * n, 4.0, [4.0, 4.0]) for n in range(3)]
    assert saved_s(some, 1.0, 0.5, 0.0) == pytest.approx(1.5)
    assert saved_s(some, -1.0, 0.5, 0.0) == pytest.approx(-0.5)
    assert saved_s(some, 9.0, 9.0, 9.0) == pytest.approx(12.0)  # there are no more than 4 s of each
    assert saved_s(some, 0.0, 0.0, 0.0) == 0.0


def test_waiting_for_a_late_rank_is_none_of_the_transfer():
    one = all_reduce(0.0, 4.0, [6.0, 4.0], entered=[0.0, 2.0])
    assert saved_s([one], 9.0) == pytest.approx(4.0)
    sooner = Quicker(computing={id(one.parts[1]): 1.5})
    assert RunReplay([one]).saved_s(sooner) == pytest.approx(1.5)
    sooner = Quicker(computing={id(one.parts[1]): 3.5})  # then the other one is last
    assert RunReplay([one]).saved_s(sooner) == pytest.approx(2.0)


def test_behind_computing_only_what_was_waited_for_is_saved():
    assert saved_s([all_reduce(0.0, 10.2, [0.2, 0.2])], 5.0) == pytest.approx(0.2)


def test_a_rank_that_does_not_wait_decides():
    """Rank 1 computes until the first is done, and comes to the second 1.5 s before rank 0."""
    first = all_reduce(0.0, 10.0, [4.0, 0.0])
    second = all_reduce(0.0, 1.0, [1.0, 2.5], entered=[13.5, 12.0])
    assert saved_s([first, second], 4.0, 0.0) == pytest.approx(1.5)
    assert saved_s([first, second], 4.0, 1.0) == pytest.approx(2.5)


def test_what_was_done_before_its_rank_looked_holds_up_nobody():
    """Between entering a hidden all-reduce and looking at it, a rank waits for another one."""
    some = []
    for n in range(10):
        hidden, shown = (
            all_reduce(4.0 * n, 3.5, [0.0, 0.0]),
            all_reduce(4.0 * n + 1, 2.0, [2.0, 2.0]),
        )
        some += [Collective(tuple(replace(p, hidden=True) for p in hidden.parts)), shown]
    assert saved_s(some, *[0.0, 1.0] * 10) == pytest.approx(10.0)


def test_a_replay_needs_memory_in_proportion_to_its_ranks():
    def used_bytes(ranks):
        some = [all_reduce(2.0 * n, 1.0, [1.0] * ranks) for n in range(20)]
        tracemalloc.start()
        kept = RunReplay(some)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept.steps == 20 * 2 * ranks
        return used

    assert used_bytes(64) < 6 * used_bytes(16)


def simulated(computes, rounds, quicker_s, sooner_s):
    """Return the parts of a program in which ranks compute, meet in groups, and wait for the data; and its end.

    Args:
        computes: seconds before each round, by rank.
        rounds: of each, the groups, and the seconds that each rank's data take.
        quicker_s: by round and rank.
        sooner_s: by round and rank.
    """
    times = [0.0] * len(computes)
    parts = [[] for _ in computes]
    for number, (groups, took_s) in enumerate(rounds):
        entered = [
            t + computes[r][number] - sooner_s.get((number, r), 0.0) for r, t in enumerate(times)
        ]
        for group in groups:
            complete_at = max(entered[rank] for rank in group)
            for rank in group:
                left_s = max(0.0, took_s[rank] - quicker_s.get((number, rank), 0.0))
                times[rank] = complete_at + left_s
                peers = [peer for peer in group if peer != rank]
                done_s = times[rank] - entered[rank]
                own = part(
                    rank,
                    "exchange",
                    dict.fromkeys(peers, 9),
                    sources=peers,
                    at=entered[rank],
                    done_s=done_s,
                )
                parts[rank].append(own)
    return parts, max(times)


@pytest.mark.parametrize("seed", range(30))
def test_exchanges_save_what_a_simulation_of_the_program_says(seed):
    """Ranks meet others each round; so one that is late, or whose data are slow, is waited for later by all."""
    draw = random.Random(seed)
    size, count = draw.randint(2, 6), draw.randint(1, 12)
    computes = [[max(0.0, draw.uniform(-1, 2)) for _ in range(count)] for _ in range(size)]
    rounds = []
    for _ in range(count):
        order = draw.sample(range(size), size)
        cut = draw.randint(1, size)
        rounds.append(
            (
                [g for g in (order[:cut], order[cut:]) if g],
                [max(0.0, draw.uniform(-1, 3)) for _ in order],
            )
        )
    some = [(n, r) for n in range(count) for r in range(size)]
    quicker_s = {key: draw.uniform(-1, 2) for key in some if draw.random() < 0.4}
    sooner_s = {(n, r): draw.uniform(0, computes[r][n]) for n, r in some if draw.random() < 0.2}
    parts, end = simulated(computes, rounds, {}, {})
    _, then = simulated(computes, rounds, quicker_s, sooner_s)
    collectives = put_together(parts)
    number = {id(p): (n, r) for r, own in enumerate(parts) for n, p in enumerate(own)}
    quicker = Quicker(
        {(id(one), None): quicker_s.get(number[id(one.parts[0])], 0.0) for one in collectives},
        {key: sooner_s.get(pair, 0.0) for key, pair in number.items()},
    )
    assert RunReplay(collectives).saved_s(quicker) == pytest.approx(end - then, abs=1e-9)


def exchanging(computes, peers, takes_s):
    """Return the parts of a program in which each rank waits for the data of each of its peers; and its end.

    Args:
        computes: seconds before each round, by rank.
        peers: of each rank, by round.
        takes_s: seconds of the data from a peer once both are there, by (round, rank, peer).
    """
    times = [0.0] * len(computes)
    parts = [[] for _ in computes]
    for number, of_rank in enumerate(peers):
        entered = [t + own[number] for t, own in zip(times, computes, strict=True)]
        for rank, own in enumerate(of_rank):
            at = [max(entered[rank], entered[p]) + takes_s[number, rank, p] for p in own]
            times[rank] = max(at, default=entered[rank])
            done_s = times[rank] - entered[rank]
            sent = dict.fromkeys(own, 9)
            parts[rank].append(
                part(rank, "exchange", sent, sources=own, at=entered[rank], done_s=done_s)
            )
    return parts, max(times)


@pytest.mark.parametrize("seed", range(30))
def test_of_an_exchange_each_peer_s_data_count_by_themselves(seed):
    """One that is quicker saves no more than the next slowest allows; a model that is a little off is corrected."""
    draw = random.Random(seed)
    size, count = draw.randint(2, 5), draw.randint(1, 8)
    computes = [[draw.uniform(0, 2) for _ in range(count)] for _ in range(size)]
    ring = [sorted({(r - 1) % size, (r + 1) % size} - {r}) for r in range(size)]
    takes_s = {
        (n, r, p): draw.uniform(1, 4) for n in range(count) for r in range(size) for p in ring[r]
    }
    fewer_s = {key: draw.uniform(0, 1) for key in takes_s if draw.random() < 0.5}
    parts, end = exchanging(computes, [ring] * count, takes_s)
    then_s = {key: s - fewer_s.get(key, 0.0) for key, s in takes_s.items()}
    _, then = exchanging(computes, [ring] * count, then_s)
    collectives = put_together(parts)
    number = {id(p): (n, r) for r, own in enumerate(parts) for n, p in enumerate(own)}

    def told(seconds, more_s=0.0):
        return {
            (id(one), p): seconds.get((*number[id(one.parts[0])], p), 0.0) + more_s
            for one in collectives
            for p in ring[one.parts[0].rank]
        }

    for off_s in (0.0, 0.7):
        replay = RunReplay(collectives, told(takes_s, off_s))
        assert replay.saved_s(Quicker()) == pytest.approx(0.0, abs=1e-9)
        assert replay.saved_s(Quicker(told(fewer_s))) == pytest.approx(end - then, abs=1e-9)


def test_the_largest_are_found_without_a_replay_of_all(monkeypatch):
    some = [all_reduce(10.0 * n, 4.0, [4.0, 4.0]) for n in range(5)]
    options = {n: Quicker({(id(one), None): 1.0 + n for one in some[: n + 1]}) for n in range(5)}
    replay, replayed = RunReplay(some), []
    whole = replay.saved_s
    monkeypatch.setattr(replay, "saved_s", lambda one: replayed.append(one) or whole(one))
    assert replay.largest(options, 2) == [(4, pytest.approx(20.0)), (3, pytest.approx(16.0))]
    assert len(replayed) == 2
    assert replay.largest({"slower": Quicker({(id(some[0]), None): -1.0})}, 2) == []
    monkeypatch.setattr("cluster.accounting.run_replay.MOST_STEPS", 1)
    assert [name for name, _ in replay.largest(options, 5)] == [4]


def test_records_in_which_ranks_wait_for_each_other_in_a_circle_are_replayed_all_the_same():
    """Rank 0 was done with one before it entered the other, rank 1 the other way round: clocks or files are wrong."""
    first, second = all_reduce(0.0, 1.0, [1.0, 1.0]), all_reduce(2.0, 1.0, [1.0, 1.0])
    early = replace(second.parts[1], entered=-2.0, ended=-1.0)
    some = [first, Collective((second.parts[0], early))]
    assert saved_s(some, 0.0, 0.0) == pytest.approx(0.0)
    assert saved_s(some, 0.5, 0.5) <= 1.0
