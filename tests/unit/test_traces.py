"""Trace files: what they become, and what is refused with the line at fault."""

import math
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from cluster import Cluster
from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.links.traces import (
    BIN_S,
    FRAME_BYTES,
    Playback,
    bin_deliveries,
    first_order,
    load_trace,
)
from protocol.lines import encode_line
from protocol.link import Link
from protocol.trace import FirstOrder, NodeTrace, parse_first_order


@pytest.fixture
def trace(tmp_path):
    def load(text):
        path = tmp_path / "ride.csv"
        path.write_text(text)
        return load_trace(path)

    return load


def test_a_csv(trace):
    ride = trace("# made up\ntime_s, rate_mbyte_s,delay_ms\n10,4,30\n10.5,0,60\n\n11.5,2,90\n")
    assert ride.fields == ("rate_mbyte_s", "delay_ms")
    assert ride.steps == ((0, 4, 30), (0.5, 0, 60), (1.5, 2, 90))
    assert (ride.seconds, ride.repeats) == (2.5, False)
    assert ride.mean("rate_mbyte_s") == pytest.approx((0.5 * 4 + 1 * 0 + 1 * 2) / 2.5)
    assert len(ride.sha256) == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no time_s"),
        ("rate_mbyte_s\n1\n", "no time_s"),
        ("time_s,rate\n0,1\n", "unknown column in ride.csv: 'rate'"),
        ("time_s\n0\n1\n", "each once"),
        ("time_s,delay_ms,delay_ms\n0,1,1\n", "each once"),
        ("time_s,delay_ms\n0,1\n", "1 rows"),
        ("time_s,delay_ms\n0,1\n1\n", "line 3 has 1 values"),
        ("time_s,delay_ms\n0,1\n1,far\n", "line 3: delay_ms is 'far'"),
        ("time_s,delay_ms\n0,1\n1,\n", "line 3: delay_ms is ''"),
        ("time_s,delay_ms\n0,1\n1,nan\n", "line 3: delay_ms is 'nan'"),
        ("#\ntime_s,loss_pct\n0,1\n1,101\n", "line 4: loss_pct is '101'"),
        ("time_s,rate_mbyte_s\n0,-1\n1,1\n", "or 0 for an outage"),
        ("time_s,delay_ms\n0,1\nsoon,1\n", "line 3: time_s is 'soon'"),
        ("time_s,delay_ms\n0,1\n2,1\n1,1\n", "line 4: time_s is 1 after 2"),
        ("time_s,delay_ms\n0,1\n0.001,1\n", "by 0.01 at least"),
        ("1\n2\nx\n", "line 3 is 'x'"),
        ("1\n\n2\n", "line 2 is ''"),
        ("\n5\n4\n", "line 3: 4 comes after 5"),
        ("5\n4\n", "line 2: 4 comes after 5"),
        ("0\n0\n", "lasts 0 ms"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(trace, text, words):
    with pytest.raises(UsageError) as caught:
        trace(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["time_s,delay_ms\n0,1\n1,2\n", "1\n2\n"])
def test_a_mark_of_byte_order_and_empty_lines_around_change_nothing(trace, text):
    """Excel's "CSV UTF-8" begins with the mark."""
    plain, marked = trace(text), trace(f"\ufeff\n{text}\n \n")
    assert (marked.fields, marked.steps) == (plain.fields, plain.steps)


LINKS = [
    Link("node1", "node2", 5.0, 30.0, 10.0, 0.0, 40.0),
    Link("node2", "node1", 5.0, 30.0, 0.0, 0.0, 40.0),
]


@pytest.mark.parametrize(
    ("text", "worst"),
    [
        ("delay_ms,jitter_ms\n0,10,0\n1,80,60\n2,80,50\n", "1 s after its start: node2 -> node1"),
        ("delay_ms\n0,80\n3,10\n4,80\n", "3 s after its start: node1 -> node2: jitter_ms 10"),
        ("jitter_ms\n0,1\n3,20\n4,1\n", "3 s after its start: node2 -> node1: jitter_ms 20"),
    ],
)
def test_a_trace_leaves_room_for_jitter_on_each_of_its_links(trace, text, worst):
    ride = trace(f"time_s,{text}")
    one = Playback(ride, (worst_pair(worst),), loops=False)
    with pytest.raises(UsageError, match=f"ride.csv, {worst}"):
        one.check(LINKS)
    Playback(ride, (("node3", "node1"),), loops=False).check(LINKS)
    Playback(trace("time_s,delay_ms\n0,20\n1,80\n"), one.pairs, loops=False).check(LINKS)


def worst_pair(words):
    src, _, dst = words.partition("start: ")[2].partition(":")[0].split()
    return src, dst


def test_a_replay_without_room_for_jitter_starts_nothing(trace, monkeypatch):
    link_state = SimpleNamespace(links=LINKS)
    cluster = Cluster("lab")
    monkeypatch.setattr(cluster, "alone", nullcontext())
    monkeypatch.setattr(cluster, "settle", lambda: link_state)
    near = trace("time_s,delay_ms\n0,30\n1,10\n")
    with pytest.raises(UsageError, match="jitter_ms 10 is more than half of delay_ms 10"):
        cluster.replay(Playback(near, (("node1", "node2"),), loops=False))


def test_a_replay_keeps_the_lock_until_its_players_have_begun(trace, monkeypatch):
    """Else a launch that takes it meanwhile sees no trace, and measures the links while it plays."""
    done = []

    @contextmanager
    def noted(*_):
        done.append("begin")
        yield SimpleNamespace(begin=done.append, wait_for_end=done.append)
        done.append("closed")

    @contextmanager
    def alone():
        yield
        done.append("free")

    cluster = Cluster("lab")
    monkeypatch.setattr(Cluster, "fleet", None)
    monkeypatch.setattr(cluster, "alone", alone())
    monkeypatch.setattr(cluster, "settle", lambda: SimpleNamespace(links=LINKS))
    monkeypatch.setattr("cluster.shaping.trace_player.TracePlayer", noted)
    slow = trace("time_s,rate_mbyte_s\n0,3\n1,1\n")
    cluster.replay(Playback(slow, (("node1", "node2"),), loops=False))
    assert done == ["begin", "trace", "free", "trace", "closed"]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"no trace .*none\.up"):
        load_trace(tmp_path / "none.up")


def test_the_shortest_delivery_trace_is_a_packet_a_millisecond(trace):
    steady = trace("1\n")
    assert steady.fields == ("rate_mbyte_s",)
    assert steady.steps == ((0, pytest.approx(1.514)),)
    assert (steady.seconds, steady.repeats) == (0.001, True)


def test_deliveries_become_rates_and_none_is_lost(trace):
    moments = [10] * 5 + [150, 151] + [430] * 3 + [499, 500]
    ride = trace("".join(f"{moment}\n" for moment in moments))
    assert [start for start, _ in ride.steps] == pytest.approx([0, 0.1, 0.2, 0.4])
    packets = [
        5,
        2,
        0,
        5,
    ]  # per 0.1 s; the third and fourth make one step; 500 belongs to the last
    rates = [count * FRAME_BYTES / BIN_S / 1e6 for count in packets]
    assert [rate for _, rate in ride.steps] == pytest.approx(rates)
    assert ride.mean("rate_mbyte_s") * ride.seconds == pytest.approx(12 * FRAME_BYTES / 1e6)


def test_bins_fit_into_the_trace():
    for last in (1, 137, 999, 60_001):
        steps, seconds = bin_deliveries(list(range(last + 1)))
        assert seconds == last / 1000
        assert all(b[0] - a[0] > 0.06 for a, b in zip(steps, steps[1:], strict=False))
        ends = [*(start for start, _ in steps[1:]), seconds]
        sent = sum(rate * (end - s) for (s, rate), end in zip(steps, ends, strict=True))
        assert sent == pytest.approx((last + 1) * FRAME_BYTES / 1e6)


def test_how_long_a_trace_lasts(trace):
    ride = trace("time_s,delay_ms\n0,1\n1,2\n")  # 2 s
    pairs = (("node1", "node2"),)
    lasts = [
        Playback(ride, pairs, loops, for_s).lasts_s
        for loops, for_s in ((False, None), (True, None), (True, 5.0), (False, 5.0), (False, 1.0))
    ]
    assert lasts == [2, math.inf, 5, 2, 1]


def test_each_node_is_told_of_its_own_links(trace):
    ride = trace("time_s,delay_ms\n0,1\n1,2\n")
    both = Playback(ride, (("node1", "node2"), ("node2", "node3")), loops=True)
    orders = {node: first_order({"0": both}, node) for node in ("node1", "node2", "node4")}
    assert orders["node1"].traces["0"] == NodeTrace(
        links=[("node1", "node2")],
        fields=["delay_ms"],
        steps=[[0, 1], [1, 2]],
        seconds=2,
        lasts_s=None,
    )
    assert len(orders["node2"].traces["0"].links) == 2
    assert orders["node4"] == FirstOrder([("node1", "node2"), ("node2", "node3")], {})
    for order in orders.values():
        assert parse_first_order(encode_line(order)) == order


def test_the_example_says_that_it_is_made_up():
    path = PROJECT_DIR / "examples" / "ride.csv"
    assert "ynthetic" in path.read_text().splitlines()[0]
    assert load_trace(path).seconds > 20
