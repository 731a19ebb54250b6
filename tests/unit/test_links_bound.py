"""The links' bound, the least time of any algorithm: cases computed by hand, and algorithms that are no faster."""

import random
from itertools import permutations

import pytest
from books import end_line, part, ring

from cluster.accounting.bounds import bound_s
from cluster.accounting.collective_stats import collective_rows
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.links_bound import links_bound_s, reach_of
from cluster.accounting.routes import make_network
from protocol.link import Link

MTU_SHARE = 1448 / 1514  # share of payload in a link's rate
SEGMENT_BYTES = 1 << 20  # of gloo's all-reduce


def names(count):
    return [f"node{i + 1}" for i in range(count)]


def link(src, dst, mbyte_s=1.0, delay_s=0.1):
    """A link that carries `mbyte_s` of payload."""
    rate = mbyte_s / MTU_SHARE
    return Link(
        src=src,
        dst=dst,
        rate_mbyte_s=rate,
        delay_ms=delay_s * 1000,
        jitter_ms=0,
        loss_pct=0,
        buffer_ms=1,
    )


def mesh(count, *, nodes=None, limits=None, **values):
    """Links between all nodes, alike except for `values` by pair."""
    links = [
        link(*pair, **values.get("_".join(pair), {})) for pair in permutations(names(count), 2)
    ]
    return make_network(nodes or names(count), links, limits or {})


def least_s(collective, network):
    return links_bound_s(collective, reach_of(network))


def all_reduce(count, size, entered=None, messages=None):
    return Collective(tuple(ring(count, size, entered=entered, messages=messages)))


def all_gather(count, size, entered=None):
    """An all-gather of `size` from each rank; gloo sends two halves round the ring."""
    told = {"size": size, "messages": 2 * (count - 1)}
    at = entered or [0.0] * count
    return Collective(
        tuple(
            part(r, "all_gather", {(r + 1) % count: (count - 1) * size}, at=at[r], **told)
            for r in range(count)
        )
    )


def all_to_all(count, size, entered=None):
    """An all-to-all of `size` from each rank to each other."""
    at = entered or [0.0] * count
    to = [{p: size for p in range(count) if p != r} for r in range(count)]
    return Collective(tuple(part(r, "all_to_all", to[r], at=at[r]) for r in range(count)))


def test_between_two_nodes_there_is_nothing_but_the_link():
    one = all_reduce(2, 4_000_000)
    assert least_s(one, mesh(2)) == pytest.approx(4 + 0.1)
    assert least_s(one, mesh(2)) == pytest.approx(bound_s(one, mesh(2)), rel=1e-6)


@pytest.mark.parametrize("count", [3, 4, 8])
def test_alike_links_all_carry_their_part(count):
    """2(N-1)/N S from each node, over its N-1 links."""
    formula = 2 * (count - 1) / count * 8 / (count - 1) + 0.1
    assert least_s(all_reduce(count, 8_000_000), mesh(count)) == pytest.approx(formula)


def test_an_uplink_bounds_what_a_node_gives_and_a_downlink_what_it_hears():
    """The node must send its own 8 MB and receive 8 MB; it does not help if others do more of the rest."""
    one = all_reduce(4, 8_000_000)
    for kind in ("uplink", "downlink"):
        network = mesh(4, limits={kind: {"node2": 0.5 / MTU_SHARE}})
        assert least_s(one, network) == pytest.approx(8 / 0.5 + 0.1)


def test_a_slow_link_is_gone_round():
    one = all_reduce(3, 8_000_000)
    slow = mesh(3, node1_node3={"mbyte_s": 0.01})
    assert bound_s(one, slow) > 1000 > 100 * least_s(one, slow)
    # node1 sends over its other link and this one at once.
    assert least_s(one, slow) == pytest.approx(8 / 1.01 + 0.1)


def test_what_is_known_takes_the_shortest_way():
    """0.2 s through node2, not 5 s directly; a few bytes add nothing."""
    far = mesh(3, node1_node3={"delay_s": 5.0}, node3_node1={"delay_s": 5.0})
    assert least_s(all_reduce(3, 12), far) == pytest.approx(0.2, rel=1e-3)


def test_of_a_late_rank_all_counts_and_of_others_what_is_left():
    """Rank 1 enters after 50 s and sends 8 MB over two links; the others' parts have left by then."""
    late = all_reduce(3, 8_000_000, entered=[0.0, 50.0, 0.0])
    assert least_s(late, mesh(3)) == pytest.approx(8 / 2 + 0.1)
    soon = all_reduce(3, 8_000_000, entered=[0.0, 1.0, 0.0])
    assert least_s(soon, mesh(3)) == pytest.approx(max(8 / 2 + 0.1, 2 * 2 * 8 / 6 + 0.1 - 1))


def test_a_gathering_rank_hears_all_others():
    assert least_s(all_gather(4, 3_000_000), mesh(4)) == pytest.approx(3 * 3 / 3 + 0.1)
    narrow = mesh(4, limits={"downlink": {"node4": 0.5 / MTU_SHARE}})
    assert least_s(all_gather(4, 3_000_000), narrow) == pytest.approx(9 / 0.5 + 0.1)
    # Its own part leaves it once: others can forward it.
    giving = mesh(4, limits={"uplink": {"node4": 0.5 / MTU_SHARE}})
    assert least_s(all_gather(4, 3_000_000), giving) == pytest.approx(3 / 0.5 + 0.1)


def test_in_an_all_to_all_each_part_leaves_and_enters_by_all_links():
    assert least_s(all_to_all(4, 3_000_000), mesh(4)) == pytest.approx(3 + 0.1)
    giving = mesh(4, limits={"uplink": {"node4": 0.5 / MTU_SHARE}})
    assert least_s(all_to_all(4, 3_000_000), giving) == pytest.approx(9 / 0.5 + 0.1)
    assert least_s(all_to_all(4, 3_000_000), mesh(4, node1_node2={"mbyte_s": 0.1})) < 10


def test_of_an_exchange_what_comes_in_counts():
    senders = [part(r, "exchange", {0: 2_000_000}, sources=[]) for r in (1, 2)]
    hearer, late = (part(0, "exchange", {}, sources=[1, 2], at=at) for at in (0.5, 9.0))
    narrow = mesh(3, limits={"downlink": {"node1": 1 / MTU_SHARE}})
    assert least_s(Collective((hearer,), tuple(senders)), narrow) == pytest.approx(4 + 0.1 - 0.5)
    assert least_s(Collective((late,), tuple(senders)), narrow) == 0
    assert least_s(Collective((senders[0],), (hearer,)), narrow) is None


def test_ranks_of_one_node_need_no_link():
    at_home = mesh(2, nodes=["node1", "node1", "node2", "node2"])
    assert least_s(all_reduce(4, 4_000_000), at_home) == pytest.approx(4 + 0.1)
    assert least_s(all_gather(4, 1_000_000), at_home) == pytest.approx(2 + 0.1)
    assert least_s(all_reduce(2, 4_000_000), at_home) == 0


def test_where_no_way_leads_and_where_nothing_is_known_there_is_no_bound():
    one_way = make_network(names(2), [link("node1", "node2")], {}, isolated=True)
    assert least_s(all_to_all(2, 9), one_way) is None
    assert reach_of(make_network(names(2), [], {})) is None


@pytest.mark.parametrize(
    ("count", "mbyte", "mbyte_s", "delay_s", "gloo_s", "direct_s"),
    [
        (4, 44, 50, 0.030, 1.66, 0.50),
        (8, 500, 60, 0.080, 40.9, 2.2),
        (4, 44, 50, 0.300, 10.6, 1.0),
        (4, 500, 50, 0.300, 115.5, 5.6),
    ],
)
def test_on_fast_long_links_gloo_is_far_from_it(count, mbyte, mbyte_s, delay_s, gloo_s, direct_s):
    """Both were computed by others; `direct_s` is a reduce-scatter and an all-gather over all links at once."""
    pairs = ("_".join(pair) for pair in permutations(names(count), 2))
    network = mesh(count, **{pair: {"mbyte_s": mbyte_s, "delay_s": delay_s} for pair in pairs})
    size = mbyte * 10**6
    segments = max(-(-size // SEGMENT_BYTES), 2 * count)
    messages = 2 * (count - 1) * -(-segments // count)
    one = all_reduce(count, size, messages=messages)
    assert bound_s(one, network) == pytest.approx(gloo_s, rel=0.06)
    assert 0.5 * direct_s < least_s(one, network) <= direct_s


def drawn(seed):
    """Draw links and limits of all kinds, and a collective whose ranks enter at different times."""
    rng = random.Random(seed)
    count = rng.randrange(2, 7)
    values = {
        "_".join(pair): {"mbyte_s": 10 ** rng.uniform(-1, 2), "delay_s": rng.uniform(0, 0.3)}
        for pair in permutations(names(count), 2)
    }
    limits = {
        kind: {node: 10 ** rng.uniform(-1, 2) for node in names(count) if rng.random() < 0.3}
        for kind in ("uplink", "downlink")
    }
    entered = [rng.choice([0.0, rng.uniform(0, 20)]) for _ in range(count)]
    return rng, count, values, limits, entered


@pytest.mark.parametrize("seed", range(150))
def test_gloo_is_never_quicker(seed):
    rng, count, values, limits, entered = drawn(seed)
    size = 4 * count * rng.randrange(100, 2_000_000)
    rings = [
        all_reduce(count, size, entered, 2 * (count - 1) * rng.randrange(2, 20)),
        all_gather(count, size, entered),
    ]
    shared, free = mesh(count, limits=limits, **values), mesh(count, **values)
    straight = all_to_all(count, size, entered)
    for one, network in [(rings[0], shared), (rings[1], shared), (straight, free)]:
        assert 0 <= least_s(one, network) <= bound_s(one, network) + 1e-6


@pytest.mark.parametrize("seed", range(150))
def test_no_all_to_all_is_quicker_in_which_each_sends_and_hears_one_thing_at_a_time(seed):
    """One possible schedule: the transfer in progress has all of a node's uplink or downlink."""
    rng, count, values, limits, entered = drawn(seed)
    one = all_to_all(count, 1_000_000, entered)
    nodes, free, heard = names(count), dict(zip(names(count), entered, strict=True)), {}
    rate = {k: {n: v * MTU_SHARE for n, v in limit.items()} for k, limit in limits.items()}
    ends = []
    for src, dst in rng.sample(list(permutations(nodes, 2)), count * (count - 1)):
        way = values[f"{src}_{dst}"]
        up, down = rate["uplink"].get(src, 1e9), rate["downlink"].get(dst, 1e9)
        done = max(free[src], heard.get(dst, 0.0)) + 1 / min(way["mbyte_s"], up, down)
        free[src] = heard[dst] = done
        ends.append(done + way["delay_s"])
    least = least_s(one, mesh(count, limits=limits, **values))
    assert one.complete_at + least <= max(ends) + 1e-6


@pytest.mark.parametrize("seed", range(150))
def test_no_all_reduce_through_one_node_or_straight_between_all_is_quicker(seed):
    rng, count, values, _, entered = drawn(seed)
    mbyte = rng.uniform(0.01, 100)
    byte_s = {key: value["mbyte_s"] for key, value in values.items()}
    delay_s = {key: value["delay_s"] for key, value in values.items()}
    one = all_reduce(count, round(mbyte * 1e6), entered)
    bound = one.complete_at + least_s(one, mesh(count, **values))
    nodes = names(count)
    came = dict(zip(nodes, entered, strict=True))
    for hub in nodes:
        others = [node for node in nodes if node != hub]
        first = max(came[hub], *(came[n] + delay_s[f"{n}_{hub}"] for n in others))
        slowest = min(byte_s[f"{n}_{hub}"] for n in others)
        ends = [  # each number is forwarded as soon as it is summed
            first + mbyte / min(slowest, byte_s[f"{hub}_{n}"]) + delay_s[f"{hub}_{n}"]
            for n in others
        ]
        assert bound <= max(ends) + 1e-5
    assert bound <= straight(nodes, came, byte_s, delay_s, mbyte, rng) + 1e-5


def straight(nodes, came, byte_s, delay_s, mbyte, rng):
    """Return the end of a reduce-scatter and an all-gather over all links, each node with its own share."""
    weights = {node: rng.random() for node in nodes}
    share = {node: mbyte * w / sum(weights.values()) for node, w in weights.items()}
    links = [f"{a}_{b}" for a, b in permutations(nodes, 2)]
    free = {one: came[one.split("_")[0]] + share[one.split("_")[1]] / byte_s[one] for one in links}
    whole = {
        node: max(
            came[node], *(free[f"{n}_{node}"] + delay_s[f"{n}_{node}"] for n in nodes if n != node)
        )
        for node in nodes
    }
    ends = []
    for one in links:
        src, _ = one.split("_")
        ends.append(max(free[one], whole[src]) + share[src] / byte_s[one] + delay_s[one])
    return max(ends)


def test_rows_have_both_and_the_links_is_never_above_gloo_s():
    """For a single number gloo's recurrence has only one hop; a distant rank receives it later."""
    far = mesh(3, node1_node2={"delay_s": 2.0}, node3_node2={"delay_s": 2.0})
    parts = [[one] for one in ring(3, 4, ended=9.0, messages=1)]
    assert bound_s(put_together(parts)[0], far) < 2.01
    ends = {"node1": end_line(collectives=[{"bytes": 4, "count": 1}])}
    [row] = collective_rows(put_together(parts), ends, far)
    assert row["links_bound_s"] == pytest.approx(2.0, abs=0.01)
    assert row["links_bound_s"] <= row["gloo_bound_s"] <= row["seconds"]
    assert row["ratio"] == pytest.approx(row["seconds"] / row["gloo_bound_s"], abs=1e-3)
