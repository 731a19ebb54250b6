"""What one better link would have saved: the planted one is listed first, and saves what the formula says."""

from dataclasses import replace

import pytest
from books import part, ring, ring_links

from cluster.accounting.better_link import Change, improve, sentence, what_if
from cluster.accounting.bounds import Network
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.gloo_timing import gloo_end
from cluster.accounting.ring_order import ring_messages
from cluster.accounting.routes import make_network
from cluster.accounting.tcp_timing import SocketState, Window, window_after
from protocol.link import Link

NAMES = ["node1", "node2", "node3"]
BYTE_S = 1e6 * 1448 / 1514  # payload per second, at 1 MB/s on the wire


def network(slow=None, far=None, uplink=None):
    """Return links of 10 MB/s and 10 ms, except for a slow one of 1 MB/s and a far one of 500 ms."""
    links = [
        Link(
            src=a,
            dst=b,
            rate_mbyte_s=1.0 if (a, b) == slow else 10.0,
            delay_ms=500.0 if (a, b) == far else 10.0,
            buffer_ms=100.0,
            jitter_ms=0.0,
            loss_pct=0.0,
        )
        for a in NAMES
        for b in NAMES
        if a != b
    ]
    return make_network(NAMES, links, {"uplink": {uplink: 1.0}} if uplink else {})


def all_reduces(size, count=20):
    starts = [200.0 * n for n in range(count)]
    return [Collective(tuple(ring(3, size, entered=[at] * 3, ended=at + 100))) for at in starts]


def test_the_slow_link_is_named_and_what_twice_its_rate_saves():
    first, *_ = what_if(all_reduces(30_000_000), network(slow=("node2", "node1")))
    assert (first["what"], first["carrier"]) == ("rate", "node2->node1")
    # It carries 40 MB for each of 20 all-reduces, and all ranks wait for it until it is twice as fast.
    assert first["saves_s"] == pytest.approx(20 * 40e6 / BYTE_S / 2, rel=0.02)
    assert (
        sentence([first])
        == f"twice the rate of node2->node1 would save {first['saves_s']:.1f} s of that"
    )


def test_a_link_that_carries_nothing_saves_nothing():
    """A ring all-reduce sends no data over node1 -> node2, only announcements of room to node2."""
    changes = what_if(all_reduces(30_000_000), network(slow=("node1", "node2")))
    assert ("rate", "node1->node2") not in [(one["what"], one["carrier"]) for one in changes]


def test_the_far_link_is_named_whichever_way_it_leads():
    tiny = all_reduces(3)
    for far in (("node2", "node1"), ("node1", "node2")):
        links = network(far=far)
        first, *_ = what_if(tiny, links)
        assert (first["what"], first["carrier"]) == ("delay", "->".join(far))
        better = network(far=far)
        at_half = gloo_end(tiny[0], improve(better, Change("delay", "->".join(far))))
        assert first["saves_s"] == pytest.approx(
            20 * (gloo_end(tiny[0], links) - at_half), abs=1e-3
        )
    assert sentence([first]).startswith("half the delay of node1->node2")


def after_pauses(size, took_s, count=5):
    """Return all-reduces ten seconds apart, so that windows are those of new connections."""
    starts = [10.0 * n for n in range(count)]
    return [Collective(tuple(ring(3, size, entered=[at] * 3, ended=at + took_s))) for at in starts]


def test_what_waits_for_a_window_waits_in_round_trips():
    """So half the delay saves more than with windows that are large enough, as far as the run measured this."""
    links, far = network(far=("node2", "node1")), Change("delay", "node2->node1")
    [one] = after_pauses(3_000_000, 1.0, count=1)
    new = {pair: window_after(10.0, 0.02) for pair in links.routes}
    quick_s, slow_s = (gloo_end(one, links, some) for some in (None, new))
    better = improve(links, far)
    plain_s = quick_s - gloo_end(one, better)
    whole_s = slow_s - gloo_end(one, better, new)
    assert whole_s > 1.1 * plain_s
    for took_s, share in ((quick_s - 1, 0), ((quick_s + slow_s) / 2, 0.5), (slow_s + 1, 1)):
        rows = what_if(after_pauses(3_000_000, took_s), links, slow_start=True)
        saved = {(row["what"], row["carrier"]): row["saves_s"] for row in rows}
        expected = plain_s + share * (whole_s - plain_s)
        assert saved[far.what, far.carrier] == pytest.approx(5 * expected, abs=2e-3), share


def test_what_waits_for_a_window_gains_less_from_a_rate():
    """The first round trips after a pause take as long on a quicker link; what follows is quicker."""
    links, fast = network(slow=("node2", "node1")), Change("rate", "node2->node1")
    [one] = after_pauses(3_000_000, 9.0, count=1)
    new = {pair: window_after(10.0, 0.02) for pair in links.routes}
    whole_s = gloo_end(one, links, new) - gloo_end(one, improve(links, fast), new)
    plain_s = gloo_end(one, links) - gloo_end(one, improve(links, fast))
    assert 0 < whole_s < plain_s
    for slow_start, expected in ((False, plain_s), (True, whole_s)):
        rows = what_if(after_pauses(3_000_000, 9.0), links, slow_start=slow_start)
        saved = {(row["what"], row["carrier"]): row["saves_s"] for row in rows}
        assert saved[fast.what, fast.carrier] == pytest.approx(5 * expected, abs=2e-3)


def with_window(window):
    """All-reduces whose ranks report this window, and were not idle."""
    state = SocketState(window, idle_s=0.0, rto_s=1.0, sent_again=0)
    return [
        Collective(tuple(replace(p, tcp=dict.fromkeys(p.to, state)) for p in one.parts))
        for one in after_pauses(3_000_000, 9.0)
    ]


def test_windows_that_fill_their_link_grow_with_it():
    """Otherwise a run whose windows were just large enough would gain nothing from a quicker link."""
    links = network(slow=("node2", "node1"))
    full_bytes = links.routes[1, 0].byte_s * 0.02
    plain, *_ = what_if(after_pauses(3_000_000, 9.0), links)
    full, *_ = what_if(with_window(Window(full_bytes, full_bytes)), links, slow_start=True)
    assert full == plain
    small, *_ = what_if(with_window(Window(full_bytes / 2, full_bytes / 2)), links, slow_start=True)
    assert small["what"] == "delay"


def test_an_uplink_is_named():
    sends = [part(r, "all_to_all", {p: 500_000 for p in range(3) if p != r}) for r in range(3)]
    first, *_ = what_if([Collective(tuple(sends))], network(uplink="node3"))
    assert (first["what"], first["carrier"]) == ("rate", "node3 uplink")
    assert first["saves_s"] == pytest.approx(0.5 / BYTE_S * 1e6, rel=0.02)


def test_of_exchanges_the_slowest_decides():
    """Rank 0's data take 3 s, rank 1's a tenth of that; rank 1 then waits for rank 0's next ones."""
    came, parts = [0.0, 0.0], [[], []]
    for _ in range(4):
        began, ended = max(came), []
        for rank, took_s in ((0, 0.3), (1, 3.0)):
            done_s = began + took_s - came[rank]
            peer = 1 - rank
            parts[rank].append(
                part(
                    rank,
                    "exchange",
                    {peer: 3_000_000},
                    sources=[peer],
                    at=came[rank],
                    done_s=done_s,
                )
            )
            ended.append(began + took_s)
        came = ended
    first, *_ = what_if(put_together(parts), network(slow=("node1", "node2")))
    assert (first["what"], first["carrier"]) == ("rate", "node1->node2")
    assert first["saves_s"] == pytest.approx(4 * 3e6 / BYTE_S / 2, rel=0.02)


def behind_computing(size, waits, count=10):
    """All-reduces that ranks start, compute behind for 10 s, and wait for as long as `waits` says, rank by rank."""
    found = []
    for n in range(count):
        parts = ring(3, size, entered=[20.0 * n] * 3, ended=20.0 * n + 10 + max(waits))
        found.append(
            Collective(tuple(replace(p, waited_s=s) for p, s in zip(parts, waits, strict=True)))
        )
    return found


def test_no_change_saves_more_than_ranks_waited():
    slow = network(slow=("node2", "node1"))
    for row in what_if(behind_computing(7_500_000, (0.2, 0.2, 0.2)), slow):
        assert row["saves_s"] <= 10 * 0.2 + 1e-6
    assert what_if(behind_computing(7_500_000, (0.0, 0.0, 0.0)), slow) == []


def test_a_change_saves_nothing_while_a_rank_that_does_not_wait_decides():
    """Rank 1 computes until the data is there: were it quicker, the others would wait for rank 1 instead."""
    parts = behind_computing(7_500_000, (5.0, 0.0, 5.0))
    assert what_if(parts, network(slow=("node2", "node1"))) == []


def test_what_unlike_collectives_save_is_limited_one_by_one():
    """Of 20 alike, every second one is waited for; each sample stands for both kinds."""
    both = [
        replaced(one, 10.0 if n % 2 else 0.0)
        for n, one in enumerate(behind_computing(30_000_000, (0.0,) * 3, count=20))
    ]
    first, *_ = what_if(both, network(slow=("node2", "node1")))
    assert first["saves_s"] == pytest.approx(10 * 10.0)


def replaced(one, waited_s):
    return Collective(tuple(replace(part, waited_s=waited_s) for part in one.parts))


def test_in_a_large_cluster_the_worst_links_are_tried_as_far_as_time_allows():
    nodes = 48
    slow = ring_links(nodes, slow="node3->node2")
    sent = ring_messages(nodes, 4_800_000)
    one = Collective(tuple(ring(nodes, 4_800_000, ended=25.0, messages=sent)))
    first, *_ = what_if([one], slow)
    assert (first["what"], first["carrier"]) == ("rate", "node3->node2")


def test_where_nothing_is_known_or_it_would_take_hours_nothing_is_told():
    assert what_if(all_reduces(3), None) is None
    assert what_if([], network()) == []
    assert what_if(all_reduces(3), Network({}, {}, "asked")) == []
    huge = [Collective(tuple(ring(3, 3_000_000 + i, messages=20_000))) for i in range(100)]
    assert what_if(huge, network()) is None
    assert sentence([]) == ""
