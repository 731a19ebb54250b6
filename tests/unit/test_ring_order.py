"""The best order of nodes in a ring: the same as by trying all orders, and proved optimal if it says so."""

import itertools
import random
import time

import pytest
from books import mesh, ring

from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.collectives import Collective
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.ring_order import best_order, order_seconds, phase_s, ring_messages
from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run.rank_order import check_rank_order, resolve_rank_order
from cluster.run.rank_placement import place_ranks, rank_environment
from cluster.shaping.link_state import planned_link_state

NODES = ["node1", "node2", "node3", "node4"]


def drawn(size, seed, *, delays_s=(0.01, 0.2), rates=(1e6, 1e7)):
    rng = random.Random(seed)
    routes = {
        (a, b): RankRoute(rng.uniform(*delays_s), rng.uniform(*rates), (f"{a}->{b}",))
        for a, b in itertools.permutations(range(size), 2)
    }
    return Network(routes, {r.carriers[0]: r.byte_s for r in routes.values()}, "asked")


def quickest(network, size, size_bytes, ranks_a_node=1):
    orders = ((0, *rest) for rest in itertools.permutations(range(1, size)))
    return min(order_seconds(network, order, size_bytes, ranks_a_node) for order in orders)


@pytest.mark.parametrize("size_bytes", [48, 4_799_528, 40_000_000])
@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_no_other_order_is_quicker(size, size_bytes):
    for seed in range(3):
        network = drawn(size, seed)
        found = best_order(network, size, size_bytes)
        assert found.is_proved
        assert found.order[0] == 0
        assert sorted(found.order) == list(range(size))
        assert found.seconds == pytest.approx(quickest(network, size, size_bytes))
        assert found.seconds == order_seconds(network, found.order, size_bytes) <= found.before_s


def test_also_with_several_ranks_a_node_and_where_delays_alone_or_rates_alone_differ():
    for seed in range(3):
        several = drawn(4, seed)
        assert best_order(several, 4, 4_800_000, 2).seconds == pytest.approx(
            quickest(several, 4, 4_800_000, 2)
        )
        for network in (drawn(5, seed, delays_s=(0, 0)), drawn(5, seed, rates=(1e7, 1e7))):
            found = best_order(network, 5, 1_000_000)
            assert found.seconds == pytest.approx(quickest(network, 5, 1_000_000))


def test_both_directions_count():
    """Data go 0 -> 2 -> 1 -> 0; announcements of room go the opposite way, on which 2 -> 0 has a long delay."""
    network = mesh(3, delay_s=0.01)
    far = {**network.routes, (2, 0): RankRoute(0.5, 1e6, ("2->0",))}
    one_way = Network(far, network.byte_s, "asked")
    usual, other = (order_seconds(one_way, order, 48) for order in ((0, 1, 2), (0, 2, 1)))
    assert usual == pytest.approx(
        other, rel=0.01
    )  # with three nodes, each pair is adjacent in one direction or the other
    slow = {**network.routes, (2, 0): RankRoute(0.01, 1e5, ("2->0",))}
    directed = Network(slow, {**network.byte_s, "2->0": 1e5}, "asked")
    found = best_order(directed, 3, 3_000_000)
    assert found.order == (0, 1, 2)  # in this order, no data go from 2 to 0
    assert found.seconds < 0.2 * order_seconds(directed, (0, 2, 1), 3_000_000)


def test_a_time_is_that_of_gloo_s_own_replay():
    assert ring_messages(3, 4_799_528) == 8  # as in every ledger of such a run
    assert ring_messages(4, 4_799_528) == 12
    one = Collective(tuple(ring(3, 4_799_528)))
    network = drawn(3, 1)
    assert order_seconds(network, (0, 1, 2), 4_799_528) == pytest.approx(
        gloo_end(one, network), rel=1e-6
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_link_by_itself_takes_what_a_ring_of_free_links_around_it_takes(seed):
    rng = random.Random(seed)
    size, size_bytes = rng.randrange(2, 7), rng.choice([1, 48, 4_799_528, 9_000_000])
    there_s, back_s, byte_s = rng.uniform(0, 0.3), rng.uniform(0, 0.3), rng.uniform(1e5, 1e8)
    routes = {
        pair: RankRoute(0.0, float("inf"), ()) for pair in itertools.permutations(range(size), 2)
    }
    routes[1, 0] = RankRoute(there_s, byte_s, ("1->0",))
    routes[0, 1] = RankRoute(back_s, float("inf") if size > 2 else 1e12, ("0->1",))
    network = Network(routes, {"1->0": byte_s, "0->1": float("inf")}, "asked")
    messages = ring_messages(size, size_bytes)
    sending_s = 2 * (size - 1) * size_bytes // size / messages / byte_s
    shares = (messages // 2 + messages % 2, messages // 2)
    alone_s = sum(phase_s(share, sending_s, there_s, back_s) for share in shares)
    if size > 2:  # with two nodes each precedes the other: the second link takes time, too
        assert order_seconds(network, range(size), size_bytes) == pytest.approx(alone_s)
    else:
        assert order_seconds(network, range(size), size_bytes) >= alone_s * (1 - 1e-9)


def test_sixty_four_nodes_do_not_take_minutes():
    began = time.process_time()
    found = best_order(drawn(64, 1), 64, 4_799_528)
    assert time.process_time() - began < 20
    assert found.seconds < 0.7 * found.before_s


def test_of_twelve_nodes_the_best_is_proved():
    found = best_order(drawn(12, 5), 12, 4_799_528)
    assert found.is_proved
    assert found.seconds < 0.8 * found.before_s


def test_of_more_than_twelve_it_is_a_better_one_and_says_so():
    found = best_order(drawn(16, 5), 16, 48)
    assert found.seconds < found.before_s
    alike = best_order(mesh(14), 14, 48)
    assert alike.order == tuple(range(14))


def test_what_cannot_be_afforded_is_not_called_proved(monkeypatch):
    monkeypatch.setattr("cluster.accounting.ring_order.MOST_STEPS", 300)
    monkeypatch.setattr("cluster.accounting.ring_order._Search.rest_s", lambda *_: 0.0)
    found = best_order(drawn(8, 2), 8, 48)
    assert not found.is_proved
    assert found.seconds <= found.before_s


def test_an_all_reduce_too_large_to_be_replayed_at_all_is_not_replayed(monkeypatch):
    """20 GB on three nodes are 80,000 messages, 1 TB are four millions."""
    replayed = []
    monkeypatch.setattr(
        "cluster.accounting.ring_order._all_reduce_s",
        lambda *_: replayed.append(1) or len(replayed) * 1.0,
    )
    assert best_order(drawn(3, 2), 3, 20 * 10**9).is_proved and len(replayed) == 2
    huge = best_order(drawn(3, 2), 3, 10**12)
    assert (huge.order, huge.seconds, huge.is_proved) == ((0, 1, 2), float("inf"), False)
    assert len(replayed) == 2


def test_only_links_that_exist_are_taken():
    """Isolated, with links 0 - 2 - 1 - 3 - 0: only two orders form a ring, one in each direction."""
    full = drawn(4, 3)
    round_ = [(0, 2), (2, 1), (1, 3), (3, 0)]
    both = {pair for a, b in round_ for pair in ((a, b), (b, a))}
    routes = {pair: route for pair, route in full.routes.items() if pair in both}
    found = best_order(Network(routes, full.byte_s, "asked"), 4, 48)
    assert found.order in ((0, 2, 1, 3), (0, 3, 1, 2))
    assert found.before_s == float("inf")


def state(topology="full", profile="mobile", *, isolated=False):
    nodes = ClusterSpec(size=4).nodes
    spec = make_link_spec(profile, topology, 1, "auto", isolated=isolated)
    return planned_link_state(link_plans(nodes, spec))


def test_an_order_by_name_decides_which_node_has_which_rank():
    order = resolve_rank_order("node1,node3,node2,node4", NODES, state(), 2)
    places = place_ranks(order.nodes, 2)
    assert [(p.rank, p.name) for p in places[:4]] == [
        (0, "node1-0"),
        (1, "node1-1"),
        (2, "node3-0"),
        (3, "node3-1"),
    ]
    assert resolve_rank_order(None, NODES, state()).nodes == tuple(NODES)
    environ = rank_environment(
        places[2], places, state("ring").links, "run", "/run", 60, silence_s=60
    )
    assert (environ["RANK"], environ["GROUP_RANK"], environ["MASTER_ADDR"]) == ("2", "1", "node1")
    assert environ["GRADWIRE_NEIGHBOURS"] == "3,4,5,6,7"  # of node3: its own, node2's and node4's


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("node2,node1,node3,node4", "rank 0 stays on node1"),
        ("node1,node2,node3", "does not name each of 4 nodes once"),
        ("node1,node2,node2,node4", "does not name each of 4 nodes once"),
        ("node1,node2,node3,node9", "does not name each of 4 nodes once"),
        ("bset", "does not name each of 4 nodes once"),
    ],
)
def test_an_order_that_cannot_be_is_refused_in_one_line(words, complaint):
    with pytest.raises(UsageError, match=complaint) as refused:
        check_rank_order(words, NODES)
    assert "\n" not in refused.value.message
    with pytest.raises(UsageError, match=complaint):
        resolve_rank_order(words, NODES, state())


def test_the_best_order_is_by_the_links_and_says_by_which_size():
    found = resolve_rank_order("best", NODES, state())
    assert found.nodes[0] == "node1"
    assert "an all-reduce of 4.8 MB takes" in found.words
    assert "s by the links as asked" in found.words
    unshaped = planned_link_state({})
    with pytest.raises(UsageError, match="no links are shaped"):
        resolve_rank_order("best", NODES, unshaped)
    check_rank_order("best", NODES)
    star = resolve_rank_order("best", NODES, state("star", isolated=True))
    assert (star.nodes, "no ring goes round" in star.words) == (tuple(NODES), True)
