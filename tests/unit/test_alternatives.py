"""What-ifs: each planted change comes first and saves what a formula says."""

import itertools
from dataclasses import replace

import pytest
from books import part, ring

from cluster.accounting import gloo_timing
from cluster.accounting.alternatives import Recorded, collectives_s, predict, reorder
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.ring_order import order_seconds
from cluster.accounting.routes import make_network
from protocol.link import Link

NAMES = ["node1", "node2", "node3", "node4"]
BYTE_S = 1e6 * 1448 / 1514  # bytes/s of payload at 1 MB/s on the wire


def links(slow=(), size=3, **values):
    """Links of 10 MB/s and 10 ms, except slow ones of 1 MB/s."""
    return [
        Link(
            a,
            b,
            1.0 if (a, b) in slow else 10.0,
            10.0,
            0.0,
            **{"loss_pct": 0.0, "buffer_ms": 100.0} | (values if (a, b) in slow else {}),
        )
        for a, b in itertools.permutations(NAMES[:size], 2)
    ]


def recorded(collectives, some_links, size=3, limits=None, *, slow_start=False, training=None):
    network = make_network(NAMES[:size], some_links, limits or {})
    nodes = NAMES[:size]
    return Recorded(collectives, network, some_links, nodes, 1, slow_start, training or {})


def all_reduces(size_bytes, count=10, size=3, took_s=50.0):
    return [
        Collective(
            tuple(ring(size, size_bytes, entered=[100.0 * n] * size, ended=100.0 * n + took_s))
        )
        for n in range(count)
    ]


def told(found):
    return {(one.what, one.of): one.saves_s for one in found}


def test_the_slow_link_comes_first():
    found = predict(recorded(all_reduces(30_000_000), links(slow=[("node2", "node1")])))
    rank_order, rate, *_ = found
    # The reversed ring does not use this link; at twice the rate, 40 MB take half the time.
    assert (rank_order.what, rank_order.of) == ("rank_order", "node1,node3,node2")
    assert rank_order.saves_s == pytest.approx(10 * 40e6 / BYTE_S * 0.9, rel=0.03)
    assert (rate.what, rate.of) == ("rate", "node2->node1")
    assert rate.saves_s == pytest.approx(10 * 40e6 / BYTE_S / 2, rel=0.02)
    assert rate.words == "node2->node1 twice as fast"
    saved = [one.saves_s for one in found if one.saves_s is not None]
    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0


def test_an_order_saves_what_its_replay_says():
    """Four nodes with two slow links in the usual ring: 2 -> 1 and 4 -> 3."""
    slow = links(slow=[("node2", "node1"), ("node4", "node3")], size=4)
    run = recorded(all_reduces(12_000_000, size=4), slow, size=4)
    best = next(one for one in predict(run) if one.what == "rank_order")
    order = [NAMES.index(name) for name in best.of.split(",")]
    usual, then = (order_seconds(run.network, o, 12_000_000) for o in (range(4), order))
    assert best.saves_s == pytest.approx(10 * (usual - then), rel=1e-6)
    quickest = min(
        order_seconds(run.network, (0, *rest), 12_000_000)
        for rest in itertools.permutations(range(1, 4))
    )
    assert then == pytest.approx(quickest)


def test_in_another_order_ranks_find_the_routes_of_their_new_nodes():
    some = make_network(
        [name for name in NAMES[:3] for _ in range(2)], links(slow=[("node2", "node1")]), {}
    )
    other = reorder(some, [0, 2, 1], 2)
    assert other.routes[4, 0] == some.routes[2, 0]  # node2 then has ranks 4 and 5
    assert other.routes[2, 3].carriers == ()  # both on node3
    assert other.routes.keys() == some.routes.keys()


def test_loss_is_told_and_not_predicted_and_only_of_links_in_use():
    lossy = links(slow=[("node2", "node1")], loss_pct=2.0)
    found = predict(recorded(all_reduces(3_000_000), lossy))
    assert (found[-1].what, found[-1].of, found[-1].saves_s) == ("loss", "node2->node1", None)
    assert "not predicted" in found[-1].note
    assert found[-1].can_be_tried
    assert [one for one in predict(recorded(all_reduces(3), links())) if one.what == "loss"] == []


def test_of_the_window_no_more_is_promised_than_was_measured_beyond_gloo_s_way():
    """Ten all-reduces of 125 kB messages that start with 10 packets, over 10 MB/s and 100 ms one way."""
    far = [link._replace(delay_ms=100.0) for link in links()]
    run = recorded(all_reduces(750_000, took_s=60.0), far, slow_start=True)
    long = told(predict(run))["window", "all links"]
    assert long == pytest.approx(10 * 3 * 0.2, abs=10 * 0.21)
    quick_s = order_seconds(run.network, range(3), 750_000) + 0.1
    quick = predict(recorded(all_reduces(750_000, took_s=quick_s), far, slow_start=True))
    [window] = [one for one in quick if one.what == "window"]
    assert window.saves_s == pytest.approx(10 * 0.1, rel=0.01)
    assert not window.can_be_tried
    assert ("window", "all links") not in told(predict(recorded(all_reduces(750_000), far)))


def test_halves_are_for_strategies_that_can_send_them():
    options = {"strategy": "diloco", "strategy_options": {"codec": "none"}}
    run = recorded(all_reduces(30_000_000), links(), training=options)
    saved = told(predict(run))["codec", "bf16"]
    usual, half = (order_seconds(run.network, range(3), size) for size in (30_000_000, 15_000_000))
    assert saved == pytest.approx(10 * (usual - half), rel=0.01)
    for other in (
        {"strategy": "diloco", "strategy_options": {"codec": "bf16"}},
        {"strategy": "fedavg", "strategy_options": {"H": 20}},
        {"strategy": "diloco", "strategy_options": "none"},
        {},
    ):
        found = predict(recorded(all_reduces(30_000_000), links(), training=other))
        assert not [one for one in found if one.what == "codec"]


def test_half_a_tensor_takes_no_more_messages_than_the_rank_said_of_the_whole(monkeypatch):
    """20 GB in one message, says a forged line; gloo would send 13,334 of half of it."""
    monkeypatch.setattr("cluster.accounting.alternatives._rank_order", lambda *_: {})
    begun, ready = [], gloo_timing._ready
    monkeypatch.setattr(gloo_timing, "_ready", lambda *of: begun.append(1) or ready(*of))
    forged = [Collective(tuple(ring(3, 20 * 10**9, messages=1)))]
    options = {"strategy": "diloco", "strategy_options": {"codec": "none"}}
    predict(recorded(forged, links(), training=options))
    assert 0 < len(begun) < 100


def test_nothing_saves_more_than_ranks_waited():
    """Ten all-reduces behind which ranks compute; they wait 0.2 s for each."""
    far = [link._replace(delay_ms=100.0) for link in links(slow=[("node2", "node1")])]
    options = {"strategy": "diloco", "strategy_options": {"codec": "none"}}
    some = [
        Collective(tuple(replace(part, waited_s=0.2) for part in one.parts))
        for one in all_reduces(30_000_000)
    ]
    run = recorded(some, far, slow_start=True, training=options)
    saved = told(predict(run))
    assert {what for what, _ in saved} == {"rate", "delay", "rank_order", "window", "codec"}
    assert max(saved.values()) == pytest.approx(10 * 0.2)
    assert collectives_s(some) == pytest.approx(10 * 0.2)


def test_what_would_take_hours_is_not_predicted():
    huge = [Collective(tuple(ring(3, 3_000_000 + i, messages=20_000))) for i in range(100)]
    assert predict(recorded(huge, links())) is None


def test_seconds_of_collectives_are_without_waiting_and_of_exchanges_those_of_the_slowest():
    waits = Collective(tuple(ring(3, 300, entered=[0.0, 3.0, 1.0], ended=5.0)))
    exchanges = put_together(
        [
            [part(r, "exchange", {1 - r: 10}, sources=[1 - r], at=5.0, done_s=0.5 + r)]
            for r in range(2)
        ]
    )
    assert collectives_s([waits, *exchanges]) == pytest.approx(2.0 + 1.5)
