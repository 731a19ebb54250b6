"""Bounds of collectives, compared with formulas from the literature and cases computed by hand."""

from dataclasses import replace

import pytest
from books import mesh, part, ring

from cluster.accounting.bounds import Network, RankRoute, bound_s
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.routes import make_network
from cluster.links.expected import payload_share
from protocol.link import Link

DELAY_S, BYTE_S = 0.1, 1e6
SHARE = payload_share(1500)
NAMES = ["node1", "node2", "node3", "node4"]


def link(src, dst, **values):
    values = {"rate_mbyte_s": 1.514, "delay_ms": 100.0, "buffer_ms": 100.0} | values
    return Link(src=src, dst=dst, jitter_ms=0.0, loss_pct=0.0, **values)


def ring_links(**values):
    pairs = [(NAMES[i - 1], NAMES[i]) for i in range(4)]
    return [link(*pair, **values) for a, b in pairs for pair in ((a, b), (b, a))]


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_two_small_messages_a_hop_are_the_formula_of_the_ring(world_size):
    """2(N-1) alpha + 2(N-1)/N S beta (Thakur et al., 2005), but for what the second of each two messages takes."""
    size, hops = 4000, 2 * (world_size - 1)
    formula = hops * DELAY_S + hops / world_size * size / BYTE_S
    twice = Collective(tuple(ring(world_size, size, messages=2 * hops)))
    message_s = size / world_size / 2 / BYTE_S
    assert bound_s(twice, mesh(world_size)) == pytest.approx(formula - (hops - 1) * message_s)
    tiny = Collective(tuple(ring(world_size, world_size, messages=2 * hops)))
    assert bound_s(tiny, mesh(world_size)) == pytest.approx(hops * DELAY_S, rel=1e-4)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_of_one_message_a_hop_two_are_on_their_way_at_once(world_size):
    """So half of the hops' delays count; where bytes take longer than delays, all bytes and one delay."""
    size, hops = 1_000_000 * world_size, 2 * (world_size - 1)
    tiny = Collective(tuple(ring(world_size, world_size, messages=hops)))
    assert bound_s(tiny, mesh(world_size)) == pytest.approx(hops / 2 * DELAY_S, rel=1e-3)
    big = Collective(tuple(ring(world_size, size, messages=hops)))
    sending_s = hops / world_size * size / BYTE_S
    assert bound_s(big, mesh(world_size)) == pytest.approx(sending_s + DELAY_S)


def test_on_long_links_only_the_hops_count():
    """Each hop has two messages, a and b: b follows a immediately, and the four hops follow one another."""
    tiny = Collective(tuple(ring(3, 3)))
    assert bound_s(tiny, mesh(3)) == pytest.approx(4 * DELAY_S, rel=1e-3)


def test_on_slow_links_only_the_bytes_count():
    big = Collective(tuple(ring(3, 30_000_000)))
    assert bound_s(big, mesh(3)) == pytest.approx(4 / 3 * 30 + DELAY_S, rel=1e-6)


def with_slow(src, dst):
    """A mesh with one link at a tenth of the rate."""
    network, name = mesh(3), f"{src}->{dst}"
    slow = RankRoute(DELAY_S, BYTE_S / 10, (name,))
    return Network(
        network.routes | {(src, dst): slow}, network.byte_s | {name: BYTE_S / 10}, "asked"
    )


def test_the_slowest_link_of_the_ring_decides():
    big = Collective(tuple(ring(3, 30_000_000)))
    assert bound_s(big, with_slow(0, 2)) == pytest.approx(4 / 3 * 300 + DELAY_S, rel=0.01)
    assert bound_s(big, with_slow(2, 0)) < 50  # the ring does not use this direction


def test_delays_that_differ_add_up_along_the_ring():
    """Four hops in a ring of three are one round and one more hop, not four times the longest delay."""
    routes = {
        pair: replace(route, delay_s={(0, 2): 0.3, (2, 1): 0.1, (1, 0): 0.2}.get(pair, 9.0))
        for pair, route in mesh(3).routes.items()
    }
    tiny = Collective(tuple(ring(3, 3)))
    assert bound_s(tiny, Network(routes, mesh(3).byte_s, "asked")) == pytest.approx(0.9, rel=1e-3)


def test_what_others_have_sent_before_the_last_came_is_not_counted():
    """Rank 0's link is the slow one, and rank 0 has sent two of its eight messages when rank 1 enters."""
    slow = with_slow(0, 2)
    together = bound_s(Collective(tuple(ring(3, 3_000_000))), slow)
    late = Collective(tuple(ring(3, 3_000_000, entered=[0.0, 50.0, 0.0])))
    assert late.complete_at == 50.0
    assert bound_s(late, slow) == pytest.approx(6 / 8 * together, rel=0.05)


def test_an_all_to_all_is_one_hop():
    parts = [part(r, "all_to_all", {p: 500_000 for p in range(3) if p != r}) for r in range(3)]
    assert bound_s(Collective(tuple(parts)), mesh(3)) == pytest.approx(0.5 + DELAY_S)


def test_an_uplink_is_shared():
    parts = [part(r, "all_to_all", {p: 500_000 for p in range(4) if p != r}) for r in range(4)]
    links = [link(a, b, rate_mbyte_s=15.14) for a in NAMES for b in NAMES if a != b]
    free = make_network(NAMES, links, {})
    shared = make_network(NAMES, links, {"uplink": {"node2": 1.514}})
    assert bound_s(Collective(tuple(parts)), free) == pytest.approx(0.1 + 0.5 / 14.48)
    assert bound_s(Collective(tuple(parts)), shared) == pytest.approx(0.1 + 1.5 / 1.448)


def test_paths_over_several_links_share_them():
    """In a ring of four nodes, the path 1 -> 3 shares link 2 -> 3 with path 2 -> 3, or link 4 -> 3 with path 4 -> 3."""
    network = make_network(NAMES, ring_links(), {})
    assert network.routes[0, 2].delay_s == pytest.approx(0.2)
    parts = [part(r, "all_to_all", {p: 724_000 for p in range(4) if p != r}) for r in range(4)]
    most = max(
        sum(name in route.carriers for route in network.routes.values()) for name in network.byte_s
    )
    assert most >= 2
    alone = 0.724 / 1.448
    assert bound_s(Collective(tuple(parts)), network) >= most * alone + 0.1


def test_an_exchange_is_bounded_by_what_comes_in():
    sender = part(0, "exchange", {1: 500_000}, sources=[])
    hearer, late = (part(1, "exchange", {}, sources=[0], at=at) for at in (0.2, 2.0))
    heard = Collective((hearer,), (sender,))
    assert bound_s(heard, mesh(2)) == pytest.approx(0.5 + DELAY_S - 0.2)
    assert bound_s(Collective((late,), (sender,)), mesh(2)) == 0  # the data has already arrived
    assert bound_s(Collective((sender,), (hearer,)), mesh(2)) is None


def test_two_that_send_to_each_other_share_nothing():
    parts = [[part(r, "exchange", {1 - r: 500_000}, sources=[1 - r])] for r in range(2)]
    bounds = [bound_s(one, mesh(2)) for one in put_together(parts)]
    assert bounds == pytest.approx([0.5 + DELAY_S] * 2)


def test_isolated_nodes_have_no_bound():
    network = make_network(NAMES, ring_links(), {}, isolated=True)
    parts = [part(r, "all_to_all", {p: 10 for p in range(4) if p != r}) for r in range(4)]
    assert bound_s(Collective(tuple(parts)), network) is None
    assert bound_s(Collective(tuple(ring(4, 400))), network) > 0


@pytest.mark.parametrize(
    ("asked", "rate", "goodput", "told"),
    [
        (28.3, 20.5, 26.97, 26.97),  # on netem in a virtual machine of one processor
        (125.0, 101.0, 119.4, 119.4),
        (28.3, 28.2, 26.5, 28.2 * SHARE),
        (28.3, 20.5, None, 20.5 * SHARE),
        (28.3, 20.5, 27.3, 28.3 * SHARE),  # delayed data that arrived within the second
        (28.3, 20.5, 40.0, 20.5 * SHARE),  # so much is no speed
        (28.3, 28.6, 27.3, 28.6 * SHARE),
    ],
)
@pytest.mark.parametrize("jitter_ms", [0.0, 2.0])
def test_a_link_carries_what_tcp_got_through_if_the_sender_of_datagrams_was_slower(
    asked, rate, goodput, told, jitter_ms
):
    """As the contract has judged it: else the least time would be more than TCP needs."""
    links = [link("node1", "node2", rate_mbyte_s=asked)._replace(jitter_ms=jitter_ms)]
    measured = {"goodput_mbyte_s": goodput, "rate_mbyte_s": rate}
    rows = [{"link": {"src": "node1", "dst": "node2"}, "measured": measured}]
    network = make_network(NAMES[:2], links, {}, contract={"links": rows}, isolated=True)
    assert network.routes[0, 1].byte_s == pytest.approx(told * 1e6)


def test_what_was_measured_goes_before_what_was_asked():
    links = [link("node1", "node2"), link("node2", "node1", delay_ms=50.0)]
    rows = [
        {"link": {"src": "node1", "dst": "node2"}, "measured": row}
        for row in [{"rtt_ms": 170.0, "goodput_mbyte_s": 1.2, "rate_mbyte_s": None}]
    ]
    network = make_network(NAMES[:2], links, {}, contract={"links": rows})
    assert network.source == "measured"
    assert network.routes[0, 1].delay_s == pytest.approx(0.110)  # half of the extra 20 ms
    assert network.routes[0, 1].byte_s == 1.2e6
    assert network.routes[1, 0].delay_s == pytest.approx(0.050)  # not measured
    assert network.routes[1, 0].byte_s == pytest.approx(1.448e6)
