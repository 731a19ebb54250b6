"""Attribution of collective time: the parts add up, and each planted cause shows in its own part."""

import random
from dataclasses import replace

import pytest
from books import exchanges, mesh, part, ring

from cluster.accounting.attribution import PARTS, attribute, attribute_run
from cluster.accounting.bounds import Network, bound_s
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.tcp_timing import (
    UNLIMITED,
    SocketState,
    Window,
    window_after,
)

DELAY_S, BYTE_S = 0.1, 1e6


def all_reduce(world_size, size, took_s=100.0, entered=None):
    """An all-reduce that ends `took_s` seconds after the last rank entered."""
    ended = max(entered or [0.0]) + took_s
    return Collective(tuple(ring(world_size, size, entered=entered, ended=ended)))


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_of_tiny_messages_gloo_takes_a_round_trip_where_a_delay_would_do(world_size):
    """Two messages per round trip, 2(N - 1) in each half: twice the bound; measured: 2.05 times (docs/LOG.md)."""
    tiny = all_reduce(world_size, world_size)
    bound = bound_s(tiny, mesh(world_size))
    assert bound == pytest.approx(2 * (world_size - 1) * DELAY_S, rel=1e-3)
    assert gloo_end(tiny, mesh(world_size)) == pytest.approx(2 * bound, rel=1e-3)


def test_of_large_messages_what_gloo_adds_is_next_to_nothing():
    """Half of the messages are in flight at any time, so links are idle only where the halves meet."""
    large = all_reduce(4, 400_000_000)
    bound = bound_s(large, mesh(4))
    assert bound < gloo_end(large, mesh(4)) < 1.01 * bound + 8 * DELAY_S


@pytest.mark.parametrize("seed", range(20))
def test_gloo_is_never_quicker_than_the_bound_and_parts_add_up(seed):
    rng = random.Random(seed)
    world_size = rng.randrange(2, 7)
    routes = {
        pair: replace(route, delay_s=rng.uniform(0, 0.3), byte_s=rng.uniform(1e5, 1e7))
        for pair, route in mesh(world_size).routes.items()
    }
    rates = {route.carriers[0]: route.byte_s for route in routes.values()}
    network = Network(routes, rates, "asked")
    entered = [rng.random() for _ in range(world_size)]
    one = all_reduce(world_size, rng.randrange(10, 10_000_000), rng.uniform(0.1, 50), entered)
    assert gloo_end(one, network) >= one.complete_at + bound_s(one, network) - 1e-9
    found = attribute(one, network)
    measured_s = max(p.ended for p in one.parts) - min(entered)
    assert tuple(found) == PARTS
    assert sum(found.values()) == pytest.approx(measured_s)
    assert min(value for name, value in found.items() if name != "unexplained") >= 0


def shares(network, one):
    found = attribute(one, network)
    return max(found, key=found.get)


def test_each_cause_that_is_planted_is_the_largest_part():
    """A late rank, long links, slow links, an uplink, and something that no model covers."""
    near = mesh(3, delay_s=0.001, byte_s=1e8)
    tiny, large = all_reduce(3, 3, 0.5), all_reduce(3, 3_000_000, 4.1)
    assert shares(near, all_reduce(3, 3, 0.01, [0.0, 0.0, 9.0])) == "skew"
    # Of a round trip, one delay is distance and the other is gloo's algorithm.
    far = attribute(all_reduce(3, 3, 0.8), mesh(3))
    assert far["distance"] == pytest.approx(0.4, rel=1e-3)
    assert far["algorithm"] == pytest.approx(0.4, rel=1e-3)
    assert shares(mesh(3, delay_s=0.001), large) == "bytes"
    assert shares(near, tiny) == "unexplained"


def test_what_is_shared_is_a_part_of_its_own():
    sends = [
        part(r, "all_to_all", {p: 500_000 for p in range(3) if p != r}, done_s=2.0)
        for r in range(3)
    ]
    one = Collective(tuple(sends))
    free = mesh(3, delay_s=0.0)
    shared = Network(
        {
            pair: replace(r, carriers=(*r.carriers, f"{pair[0]} uplink"))
            for pair, r in free.routes.items()
        },
        {**free.byte_s, **{f"{rank} uplink": BYTE_S for rank in range(3)}},
        "asked",
    )
    found = attribute(one, shared)
    assert found["bytes"] == pytest.approx(0.5)
    assert found["sharing"] == pytest.approx(0.5)
    assert attribute(one, free)["sharing"] == 0


def test_an_exchange_waits_for_room_of_its_receiver():
    sender = part(0, "exchange", {1: 100_000}, sources=[])
    hearer = part(1, "exchange", {}, sources=[0], done_s=0.5)
    found = attribute(Collective((hearer,), (sender,)), mesh(2))
    assert found["distance"] == pytest.approx(DELAY_S)
    assert found["bytes"] == pytest.approx(0.1)
    assert found["algorithm"] == pytest.approx(DELAY_S)
    assert found["unexplained"] == pytest.approx(0.5 - 0.3)


def test_a_rank_of_an_exchange_also_waits_until_the_kernel_has_taken_what_it_sends():
    """Rank 0 sends 6 MB at 1 MB/s to rank 1, which sends it 3 bytes."""
    sender = part(0, "exchange", {1: 6_000_000}, sources=[1], done_s=5.9)
    hearer = part(1, "exchange", {0: 3}, sources=[0], done_s=6.2)
    own, links = Collective((sender,), (hearer,)), mesh(2)
    # What the kernel holds: of a window of 300 kB two, of which 200 kB have left and are not acknowledged yet.
    small = dict.fromkeys(links.routes, Window(300_000, 300_000))
    assert gloo_end(own, links, small) == pytest.approx(DELAY_S + 6.0 - 0.4)
    assert attribute(own, links, small)["unexplained"] == pytest.approx(5.9 - DELAY_S - 5.6)
    # At most 4 MiB, whatever the window.
    assert gloo_end(own, links) == pytest.approx(DELAY_S + 6.0 - ((4 << 20) / 1e6 - 2 * DELAY_S))
    assert gloo_end(Collective((hearer,), (sender,)), links) == pytest.approx(6.0 + 2 * DELAY_S)
    little = replace(sender, to={1: 500_000})
    assert gloo_end(Collective((little,), (hearer,)), links, small) == pytest.approx(
        2 * DELAY_S, abs=1e-5
    )


def test_after_a_pause_the_window_is_a_part():
    """Messages of 125 kB over links of 10 MB/s with a round trip of 0.2 s; the window starts at 14,480 bytes."""
    far = mesh(3, delay_s=0.1, byte_s=1e7)
    one = all_reduce(3, 750_000, 5.0)
    small = dict.fromkeys(far.routes, window_after(3.0, 0.2))
    at_once, paused = attribute(one, far), attribute(one, far, small)
    assert at_once["window"] == 0
    # The first message goes in 14,480, 28,960 and 57,920 bytes, a round trip apart; the others go at once.
    assert paused["window"] == pytest.approx(3 * 0.2, abs=0.2)
    assert {**paused, "window": 0, "unexplained": 0} == {**at_once, "unexplained": 0}
    sender = part(0, "exchange", {1: 100_000}, sources=[])
    hearer = part(1, "exchange", {}, sources=[0], done_s=2.0)
    found = attribute(Collective((hearer,), (sender,)), far, small)
    # 14,480 and 28,960 bytes, then the other 56,560.
    assert found["window"] == pytest.approx(2 * 0.2 + 56_560e-7 - 0.01)


def test_only_what_comes_after_a_pause_begins_slowly():
    def at(entered):
        return Collective(tuple(ring(3, 750_000, entered=[entered] * 3, ended=entered + 2)))

    far = mesh(3, delay_s=0.1, byte_s=1e7)
    close = attribute_run([at(0.0), at(2.1), at(4.2)], far, slow_start=True)
    apart = attribute_run([at(0.0), at(9.0), at(18.0)], far, slow_start=True)
    assert close["seconds"]["window"] == pytest.approx(
        apart["seconds"]["window"] / 3, abs=1e-3
    )  # only the first
    assert attribute_run([at(0.0), at(9.0)], far)["seconds"]["window"] == 0


def test_what_is_hidden_or_leads_nowhere_is_not_attributed():
    hidden = Collective(tuple(replace(p, hidden=True) for p in ring(3, 3)))
    assert attribute(hidden, mesh(3)) is None
    assert attribute(all_reduce(4, 4), mesh(3)) is None
    assert attribute_run([hidden, all_reduce(4, 4)], mesh(3)) is None
    assert attribute_run([all_reduce(3, 3)], None) is None


def test_of_a_run_all_seconds_are_told_also_of_what_was_not_replayed(monkeypatch):
    many = [all_reduce(3, 3, 0.8) for _ in range(50)]
    exchanges = put_together(
        [[part(r, "exchange", {1 - r: 100_000}, sources=[1 - r], done_s=0.5)] for r in range(2)]
    )
    monkeypatch.setattr("cluster.accounting.attribution.MOST_STEPS", 2 * 24 * 5 * 10)
    found = attribute_run([*many, *exchanges], mesh(3))
    first, second = found["collectives"]
    assert (first["kind"], first["count"], first["replayed"]) == ("all_reduce", 50, 10)
    assert sum(first["seconds"].values()) == pytest.approx(50 * 0.8, abs=1e-3)
    assert (second["kind"], second["count"], second["replayed"]) == ("exchange", 2, 2)
    assert sum(second["seconds"].values()) == pytest.approx(0.5, abs=1e-3)
    assert sum(found["seconds"].values()) == pytest.approx(40.5, abs=1e-3)
    assert sum(found["share"].values()) == pytest.approx(1, abs=1e-3)
    assert "skew" not in found["share"]


@pytest.mark.parametrize(
    "neighbours",
    [
        [[1, 2], [0, 2], [0, 1]],
        [[1], [0, 2], [1]],
        [[1, 2, 3], [0, 2], [0, 1], [0]],
    ],
    ids=["all send equally much", "a path", "degrees 3, 2, 2, 1"],
)
def test_of_exchanges_the_mean_over_ranks_is_told_also_if_ranks_send_unequally_much(neighbours):
    """Every rank spends 50 s in exchanges, whatever it sends."""
    found = attribute_run(exchanges(neighbours), mesh(len(neighbours)))
    rows = found["collectives"]
    assert len({row["bytes"] for row in rows}) == len(rows) == len({*map(len, neighbours)})
    assert sum(found["seconds"].values()) == pytest.approx(50, abs=1e-2)
    assert sum(sum(row["seconds"].values()) for row in rows) == pytest.approx(50, abs=1e-2)
    assert sum(row["count"] for row in rows) == 100 * len(neighbours)


def test_ranks_of_whose_exchanges_nothing_is_known_do_not_lower_the_mean():
    """Rank 0 only sends: what it waits for is not modelled. Rank 1 takes 0.5 s."""
    sender = part(0, "exchange", {1: 100_000}, sources=[])
    hearer = part(1, "exchange", {}, sources=[0], done_s=0.5)
    found = attribute_run(put_together([[sender], [hearer]]), mesh(2))
    (row,) = found["collectives"]
    assert (row["bytes"], row["count"], row["replayed"]) == (0, 1, 1)
    assert sum(found["seconds"].values()) == pytest.approx(0.5, abs=1e-3)


def test_what_would_take_hours_is_left_out():
    huge = Collective(tuple(ring(3, 3_000_000, messages=20_000)))
    few = attribute_run([huge] * 3 + [all_reduce(3, 3, 0.8)] + [all_reduce(3, 6, 0.8)] * 9, mesh(3))
    assert {row["bytes"]: row["replayed"] for row in few["collectives"]} == {
        6: 9,
        3_000_000: 1,
        3: 1,
    }
    many = [Collective(tuple(ring(3, 3_000_000 + i, messages=20_000))) for i in range(100)]
    assert attribute_run(many, mesh(3)) is None


def with_tcp(one, state):
    """Return the collective with the same TCP state reported by each rank."""
    parts = [replace(p, tcp=dict.fromkeys(p.to, state)) for p in one.parts]
    return Collective(tuple(parts), one.others)


def test_the_window_that_ranks_tell_counts_and_not_what_a_pause_may_have_made_of_it():
    far = mesh(3, delay_s=0.1, byte_s=1e7)
    one = all_reduce(3, 750_000, 5.0)
    guessed = attribute_run([one], far, slow_start=True)["seconds"]["window"]
    large = SocketState(Window(1e9), idle_s=9.0, rto_s=5.0, sent_again=0)
    assert attribute_run([with_tcp(one, large)], far, slow_start=True)["seconds"]["window"] == 0
    idle = SocketState(Window(1e9), idle_s=9.0, rto_s=0.3, sent_again=0)
    found = attribute_run([with_tcp(one, idle)], far, slow_start=True)["seconds"]["window"]
    assert found == guessed > 0.4
    assert attribute_run([with_tcp(one, idle)], far)["seconds"]["window"] == 0


def test_what_was_sent_again_explains_a_timeout_each_and_no_more_than_there_is():
    links = mesh(3)
    plain = attribute(all_reduce(3, 3, 5.0), links)

    def losing(segments):
        state = SocketState(UNLIMITED, idle_s=0.0, rto_s=0.5, sent_again=segments)
        return attribute(with_tcp(all_reduce(3, 3, 5.0), state), links)

    assert losing(0) == plain
    assert losing(2)["loss"] == pytest.approx(1.0)
    assert losing(2)["unexplained"] == pytest.approx(plain["unexplained"] - 1.0)
    assert losing(1000)["unexplained"] == 0
    assert sum(losing(1000).values()) == pytest.approx(sum(plain.values()))
