"""A run on other links: collectives take as long as formulas say there, and computing hides what it can."""

import itertools
from dataclasses import replace

import pytest
from books import mesh, part, ring

from cluster.accounting.alternatives import Recorded
from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.other_links import OtherLinks, RunModel
from cluster.accounting.routes import make_network
from cluster.accounting.tcp_timing import SocketState, Window
from cluster.accounting.tcp_windows import windows_of_run, windows_of_run_on
from protocol.link import Link

SIZE = 3
BYTES = 3_000_000  # of each all-reduce: every rank sends 4 MB
WAS = mesh(SIZE, delay_s=0.01, byte_s=4e6)


def recorded(collectives):
    names = [f"node{rank + 1}" for rank in range(SIZE)]
    return Recorded(collectives, WAS, (), names, 1, slow_start=False, training={})


def all_reduces(count, *, took_s=1.1, every_s=10.0, size_bytes=BYTES):
    """All-reduces of consecutive steps; ranks compute between them."""
    return [
        Collective(
            tuple(
                replace(p, step=n + 1)
                for p in ring(
                    SIZE,
                    size_bytes,
                    entered=[n * every_s] * SIZE,
                    ended=n * every_s + took_s,
                )
            )
        )
        for n in range(count)
    ]


def on(network, slow_start=False):
    return OtherLinks(network, slow_start)


def longer_s_on(run, others):
    model = RunModel(run)
    assert model.obstacle_on(others) == ""
    return model.on(others).longer_s


def obstacle(run, network=WAS):
    return RunModel(run).obstacle_on(on(network))


def test_on_its_own_links_a_run_takes_as_long_as_it_did():
    assert longer_s_on(recorded(all_reduces(5)), on(WAS)) == pytest.approx(0, abs=1e-9)


def test_on_slower_links_it_takes_longer_by_what_its_bytes_take():
    """4 MB take a second at 4 MB/s, and four at 1."""
    found = longer_s_on(recorded(all_reduces(5)), on(mesh(SIZE, delay_s=0.01, byte_s=1e6)))
    assert found == pytest.approx(5 * 3.0, rel=0.01)


def test_on_quicker_links_it_is_shorter():
    run = recorded(all_reduces(5, took_s=1.04))  # as the model has it
    found = longer_s_on(run, on(mesh(SIZE, delay_s=0.01, byte_s=8e6)))
    assert found == pytest.approx(-5 * 0.5, rel=0.01)


@pytest.mark.parametrize("measured", [0.9, 0.95, 1.0, 1.1])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_on_much_quicker_links_it_is_as_much_off_the_model_as_it_was(measured, is_hidden):
    """13.2 s by the model, 0.55 s there: what is off by a tenth here is off by a tenth there, not by a second."""
    slow, quick = (mesh(SIZE, delay_s=s, byte_s=b) for s, b in ((0.1, 0.5e6), (0.005, 12e6)))
    here_s, there_s = (gloo_end(Collective(tuple(ring(SIZE, 4_800_000))), n) for n in (slow, quick))
    took_s = measured * here_s
    some = [
        Collective(tuple(replace(p, hidden=is_hidden) for p in one.parts))
        for one in all_reduces(4, took_s=took_s, every_s=30.0, size_bytes=4_800_000)
    ]
    found = longer_s_on(replace(recorded(some), network=slow), on(quick))
    factor = (
        min(1.0, measured) if is_hidden else measured
    )  # how long a hidden one took is not known
    assert took_s + found / 4 == pytest.approx(factor * there_s)


@pytest.mark.parametrize("measured", [0.9, 1.1])
def test_on_slower_links_it_takes_what_it_took_and_what_the_model_adds(measured):
    """The other way round it is off by as many seconds as it was."""
    slow = mesh(SIZE, delay_s=0.01, byte_s=1e6)
    here_s, there_s = (gloo_end(Collective(tuple(ring(SIZE, BYTES))), n) for n in (WAS, slow))
    found = longer_s_on(recorded(all_reduces(3, took_s=measured * here_s)), on(slow))
    assert found / 3 == pytest.approx(there_s - here_s)


def test_what_tests_send_takes_longer_too():
    tests = [
        Collective(tuple(replace(p, purpose="eval") for p in one.parts)) for one in all_reduces(2)
    ]
    found = longer_s_on(recorded(tests), on(mesh(SIZE, delay_s=0.01, byte_s=1e6)))
    assert found == pytest.approx(2 * 3.0, rel=0.01)


def test_rank_0_is_late_by_what_has_ended_so_far():
    """A collective that it has begun and not awaited yet does not count: all-reduces begin every ten seconds."""
    there = RunModel(recorded(all_reduces(5))).on(on(mesh(SIZE, delay_s=0.01, byte_s=1e6)))
    for since, until, count in ((0, 45, 5), (0, 5, 1), (5, 15, 1), (0, 20.5, 2), (2, 9, 0)):
        found = there.longer_between_s(since, until)
        assert found == pytest.approx(count * 3.0, rel=0.01, abs=1e-9), (since, until)


def test_what_computing_hid_may_not_be_hidden_there():
    """All-reduces of a second behind five seconds of computing: at a tenth of the rate five more are waited for."""
    hidden = [
        Collective(tuple(replace(p, hidden=True, waited_s=0.0) for p in one.parts))
        for one in all_reduces(4, took_s=5.0)
    ]
    half, tenth = (on(mesh(SIZE, delay_s=0.01, byte_s=4e6 / n)) for n in (2, 10))
    assert longer_s_on(recorded(hidden), half) == pytest.approx(0, abs=1e-9)
    assert longer_s_on(recorded(hidden), tenth) == pytest.approx(4 * 5.0, rel=0.05)


def test_an_exchange_that_was_hidden_waits_for_each_peer():
    parts = [
        [part(a, "exchange", {b: 4_000_000}, at=0.0, done_s=5.0, waited_s=0.0, sources=[b])]
        for a, b in ((0, 1), (1, 0))
    ]
    hidden = [
        replace(one, parts=tuple(replace(p, hidden=True) for p in one.parts))
        for one in put_together(parts)
    ]
    found = longer_s_on(recorded(hidden), on(mesh(SIZE, delay_s=0.01, byte_s=4e5)))
    assert found == pytest.approx(5.0, rel=0.05)


def test_where_round_trips_are_longer_pauses_leave_more_of_a_window():
    """A pause of two seconds is five timeouts of 0.4 s here, and less than two on links that are half a second long."""
    state = SocketState(Window(5e5), idle_s=2.0, rto_s=0.4, sent_again=0)
    (one,) = all_reduces(1)
    paused = Collective(tuple(replace(p, tcp=dict.fromkeys(p.to, state)) for p in one.parts))
    near, far = (mesh(SIZE, delay_s=delay_s, byte_s=4e6) for delay_s in (0.1, 0.5))
    here = windows_of_run([paused], near, slow_start=True)(paused)
    there = windows_of_run_on([paused], near, far, slow_start=True)(paused)
    assert {window.size_bytes for window in here.values()} == {5e5 / 2**4}
    assert {window.size_bytes for window in there.values()} == {5e5 / 2}


def test_nothing_is_said_where_a_rank_cannot_reach_another():
    cut = {pair: route for pair, route in WAS.routes.items() if pair != (1, 0)}
    there = Network(cut, WAS.byte_s, "asked")
    assert obstacle(recorded(all_reduces(2)), there) == "a rank cannot reach another there"


def test_nothing_is_said_of_a_run_that_is_too_large():
    many = [replace(p, messages=3_000_000) for p in ring(SIZE, BYTES, ended=1.1)]
    assert "too large" in obstacle(recorded([Collective(tuple(many))]))


def test_nothing_is_said_of_a_run_over_lossy_links_as_what_losses_cost_is_not_known():
    lossy = Link("node1", "node2", 4.0, 10.0, 0.0, loss_pct=2.0, buffer_ms=100.0)
    assert "losses" in obstacle(replace(recorded(all_reduces(2)), links=(lossy,)))


def test_nothing_is_said_of_several_collectives_at_a_time_which_would_share_links():
    assert "at a time" in obstacle(recorded(all_reduces(3, took_s=1.1, every_s=0.5)))


def test_nothing_is_said_of_a_run_whose_last_collectives_left_no_line(monkeypatch):
    monkeypatch.setattr("cluster.accounting.other_links.MOST_COLLECTIVES", 3)
    assert obstacle(recorded(all_reduces(2))) == ""
    assert "first 3 collectives" in obstacle(recorded(all_reduces(3)))


def exchanged(peers):
    """Exchanges of a second between ranks: who sends 4 MB to whom, by rank."""
    sources = {rank: [a for a, to in peers.items() if rank in to] for rank in peers}
    parts = [
        [part(rank, "exchange", dict.fromkeys(to, 4_000_000), sources=sources[rank])]
        for rank, to in peers.items()
    ]
    return recorded(put_together(parts))


def links_of(nodes, pairs, limits=None):
    return make_network(
        nodes, [Link(*pair, 4.0, 10.0, 0.0, 0.0, 100.0) for pair in pairs], limits or {}
    )


ALL_TO_ALL = {rank: [peer for peer in range(4) if peer != rank] for rank in range(4)}
RING = {rank: [(rank + 1) % 4, (rank - 1) % 4] for rank in range(4)}
NODES = ["node1", "node2", "node3", "node4"]
PAIRS = list(itertools.permutations(NODES, 2))
AROUND = [(NODES[a], NODES[b]) for a, to in RING.items() for b in to]
SHARING = {
    "uplinks": (ALL_TO_ALL, NODES, PAIRS, {"uplink": dict.fromkeys(NODES, 1.0)}),
    "paths over several links": (ALL_TO_ALL, NODES, AROUND, {}),
    "ranks of one node": (
        ALL_TO_ALL,
        ["node1"] * 2 + ["node2"] * 2,
        [("node1", "node2"), ("node2", "node1")],
        {},
    ),
}
ALONE = {
    "a link for each pair": (ALL_TO_ALL, NODES, PAIRS, {}),
    "neighbours on a ring": (RING, NODES, AROUND, {}),
    "downlinks, of which each leads to one rank": (
        RING,
        NODES,
        AROUND,
        {"downlink": dict.fromkeys(NODES, 1.0)},
    ),
}


@pytest.mark.parametrize("case", SHARING)
def test_nothing_is_said_of_exchanges_to_several_ranks_that_share_a_carrier(case):
    """On the links that they had, and on the others: the model has each exchange by itself."""
    peers, *there = SHARING[case]
    plain, shared = mesh(4), links_of(*there)
    run = exchanged(peers)
    assert "share a link" in obstacle(replace(run, network=plain), shared)
    assert "share a link" in obstacle(replace(run, network=shared), plain)
    assert obstacle(recorded(all_reduces(2)), shared) == ""


@pytest.mark.parametrize("case", ALONE)
def test_exchanges_that_share_nothing_are_predicted(case):
    peers, *there = ALONE[case]
    assert obstacle(replace(exchanged(peers), network=mesh(4)), links_of(*there)) == ""
