"""A run's seconds and bytes, from its ranks' files: waiting separated from transfer, bytes by link."""

import json
from dataclasses import replace

import pytest
from books import end_line, line, mesh, part, ring, start_line

from cluster.accounting.collective_stats import (
    bucket_seconds,
    collective_rows,
    loop_bytes,
    read_collectives,
)
from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.routes import link_paths
from cluster.accounting.tcp_timing import SocketState, Window
from cluster.accounting.wire_bytes import Sent, expected_by_link, payload_by_link, reconcile_links
from protocol.link import Link

NAMES = ["node1", "node2", "node3"]
LINE = [("node1", "node2"), ("node2", "node3")]


def links(pairs):
    both = [pair for a, b in pairs for pair in ((a, b), (b, a))]
    return [Link(*pair, 1.0, 1.0, 0.0, 0.0, 10.0) for pair in both]


FULL = link_paths(NAMES, links([("node1", "node2"), ("node1", "node3"), ("node2", "node3")]))


def test_collectives_are_counted_by_their_lines_where_no_rank_came_to_its_end():
    parts = [[one] for one in ring(3, 300)]
    ends = dict.fromkeys(NAMES)
    [row] = collective_rows(put_together([own * 4 for own in parts]), ends, None)
    assert (row["count"], row["timed"]) == (4, 4)


def test_the_others_wait_for_the_slowest_rank():
    """Rank 1 enters at 3 s, all end at 5 s: two seconds of transfer for all; ranks 0 and 2 wait 3 s and 2 s."""
    [collective] = put_together([[p] for p in ring(3, 300, entered=[0.0, 3.0, 1.0], ended=5.0)])
    assert [collective.waiting_s(p) for p in collective.parts] == [3.0, 0.0, 2.0]


def test_what_overlaps_with_computing_is_no_waiting():
    """Started at 0 s, awaited from 4 s on; the slowest rank entered at 3 s, so none of it was waiting for that rank."""
    early = part(0, "all_reduce", {1: 10}, at=0.0, done_s=5.0, waited_s=1.0)
    slow = part(1, "all_reduce", {0: 10}, at=3.0, done_s=2.0)
    [collective] = put_together([[early], [slow]])
    assert [collective.waiting_s(p) for p in collective.parts] == [0.0, 0.0]


def test_collectives_of_all_ranks_are_matched_by_their_order():
    parts = [
        [part(r, "all_reduce", {1 - r: n}, at=10.0 * n + r, purpose="train") for n in (1, 2)]
        for r in range(2)
    ]
    first, second = put_together(parts)
    assert {p.size for p in first.parts} == {1}
    assert {p.size for p in second.parts} == {2}
    assert second.complete_at == 21.0


def test_exchanges_are_matched_by_pairs():
    """Ranks 0 and 1 exchange twice; in between, rank 2 receives once from rank 0 and waits for nobody else."""
    parts = [
        [
            part(0, "exchange", {1: 5}, at=0.0, sources=[1]),
            part(0, "exchange", {2: 7}, at=1.0, sources=[]),
            part(0, "exchange", {1: 6}, at=2.0, sources=[1]),
        ],
        [
            part(1, "exchange", {0: 5}, at=0.5, sources=[0]),
            part(1, "exchange", {0: 6}, at=9.0, sources=[0]),
        ],
        [part(2, "exchange", {}, at=0.2, sources=[0])],
    ]
    complete = {one.parts[0].entered: one.complete_at for one in put_together(parts)}
    assert complete == {0.0: 0.5, 1.0: 1.0, 2.0: 9.0, 0.5: 0.5, 9.0: 9.0, 0.2: 1.0}


def end(comm_s, more=()):
    seconds = {"compute": 10.0, "comm": comm_s, "total": 10.0 + comm_s}
    sums = [
        {"kind": "all_reduce", "purpose": "train", "bytes": 300, "count": 1, "waited_s": comm_s}
    ]
    return end_line(seconds=seconds, collectives=[*sums, *more])


def test_buckets_still_sum_to_the_total():
    collectives = put_together([[p] for p in ring(3, 300, entered=[0.0, 3.0, 1.0], ended=5.0)])
    buckets = bucket_seconds({"node1": end(5.0), "node2": end(2.0), "node3": end(4.0)}, collectives)
    assert [b["waiting"] for b in buckets.values()] == pytest.approx([3.0, 0.0, 2.0])
    assert [b["transfer"] for b in buckets.values()] == pytest.approx([2.0, 2.0, 2.0])
    for seconds in buckets.values():
        parts = sum(value for name, value in seconds.items() if name != "total")
        assert parts == pytest.approx(seconds["total"])
        assert list(seconds)[-1] == "total" and "comm" not in seconds


def test_what_has_no_line_of_its_own_waits_as_the_others():
    """The total waiting is twice what the lines report."""
    collectives = put_together([[p] for p in ring(3, 300, entered=[0.0, 3.0, 1.0], ended=5.0)])
    buckets = bucket_seconds({"node1": end(10.0), "node2": None, "node3": None}, collectives)
    assert buckets == {"node1": {"compute": 10.0, "transfer": 4.0, "waiting": 6.0, "total": 20.0}}


def test_what_is_waited_for_in_tests_is_none_of_comm():
    """A training all-reduce of one second; then rank 1 waits, in its bucket `eval`, while rank 0 tests."""
    parts = [
        [
            part(r, "all_reduce", {1 - r: 300}, at=0.0, done_s=1.0),
            part(r, "all_reduce", {1 - r: 9}, at=10.0 * (1 - r), done_s=10.0 * r, purpose="eval"),
        ]
        for r in range(2)
    ]
    tests = {"kind": "all_reduce", "purpose": "eval", "bytes": 9, "count": 1, "waited_s": 10.0}
    buckets = bucket_seconds({"node1": end(1.0), "node2": end(1.0, [tests])}, put_together(parts))
    assert buckets["node2"] == {"compute": 10.0, "transfer": 1.0, "waiting": 0.0, "total": 11.0}


def test_what_a_learner_waited_for_experience_is_waiting_and_no_transfer():
    """Its messages have no lines."""
    seconds = {"startup": 5.0, "compute": 10.0, "waiting": 80.0, "comm": 5.0, "total": 100.0}
    buckets = bucket_seconds({"node1": end_line(seconds=seconds), "node2": None}, [])
    split = {"startup": 5.0, "compute": 10.0, "waiting": 80.0, "transfer": 5.0, "total": 100.0}
    assert buckets == {"node1": split}


def test_a_rank_s_own_waiting_adds_to_that_for_collectives():
    collectives = put_together([[p] for p in ring(3, 300, entered=[0.0, 3.0, 1.0], ended=5.0)])
    end_5s = end(5.0)
    for own_s in (0.0, 2.0):
        own = end_5s._replace(seconds=end_5s.seconds | {"waiting": own_s, "total": 15.0 + own_s})
        buckets = bucket_seconds({"node1": own, "node2": None, "node3": None}, collectives)
        split = {"compute": 10.0, "transfer": 2.0, "waiting": 3.0 + own_s, "total": 15.0 + own_s}
        assert buckets == {"node1": split}


def test_rows_compare_with_bounds():
    """Two all-reduces end 2 s after the last rank entered; a hidden one is counted but not timed."""
    both = [ring(3, 300, entered=[t, t + 1.0, t], ended=t + 3.0) for t in (0.0, 10.0)]
    unseen = [
        part(r, "all_reduce", {(r - 1) % 3: 400}, at=50.0, size=300, hidden=True) for r in range(3)
    ]
    parts = [[a, b, c] for a, b, c in zip(*both, unseen, strict=True)]
    ends = {"node1": end_line(collectives=[{"bytes": 300, "count": 3}])}
    [row] = collective_rows(put_together(parts), ends, mesh(3, delay_s=0.4))
    assert (row["kind"], row["purpose"], row["bytes"]) == ("all_reduce", "train", 300)
    assert (row["count"], row["timed"], row["seconds"]) == (3, 2, 2.0)
    assert row["ratio"] == pytest.approx(row["seconds"] / row["gloo_bound_s"], abs=1e-3)
    assert row["gloo_bound_s"] == pytest.approx(4 * 0.4, rel=0.01)
    [row] = collective_rows(put_together(parts), ends, None)
    assert (row["seconds"], row["gloo_bound_s"], row["ratio"]) == (2.0, None, None)


def test_collectives_of_varying_size_are_one_row():
    """Sparta's, of which nearly every one has another size; an all-reduce of everything is none of them."""
    together = [
        *(ring(2, 300 + n, entered=[10.0 * n] * 2, ended=10.0 * n + 1) for n in (0, 1, 5)),
        ring(2, 400, entered=[90.0] * 2, ended=91.0),
    ]
    parts = [
        [replace(one, sizes_vary=one.entered < 90) for one in own]
        for own in zip(*together, strict=True)
    ]
    sums = [{"bytes": 303, "count": 7, "sizes_vary": True}, {"bytes": 400, "count": 1}]
    rows = collective_rows(put_together(parts), {"node1": end_line(collectives=sums)}, None)
    assert [(row["bytes"], row["sizes_vary"], row["count"], row["timed"]) for row in rows] == [
        (302, True, 7, 3),
        (400, False, 1, 1),
    ]


def test_bounds_take_a_limited_number_of_steps(monkeypatch):
    """A rank that names 20,000 messages, or gives each collective another size, does not hold up the host."""
    monkeypatch.setattr("cluster.accounting.collective_stats.MOST_STEPS", 10_000)
    one = ring(3, 300, ended=1.0)
    parts = [[one[rank]] * 50 for rank in range(3)]
    [row] = collective_rows(put_together(parts), {}, mesh(3))
    assert (row["timed"], row["bounded"]) == (50, 50)
    many = replace(one[0], messages=20_000)
    [row] = collective_rows(put_together([[many] * 50, *parts[1:]]), {}, mesh(3))
    assert (row["timed"], row["bounded"], row["gloo_bound_s"], row["ratio"]) == (50, 0, None, None)
    sizes = [[replace(own, size=300 + n) for n in range(500)] for own in one]
    rows = collective_rows(put_together(sizes), {}, mesh(3))
    assert len(rows) == 500 and {row["bounded"] for row in rows} == {0}


def test_of_too_many_evenly_spaced_ones_are_bounded(monkeypatch):
    monkeypatch.setattr("cluster.accounting.collective_stats.MOST_BOUNDS", 10)
    parts = [[p] for p in ring(3, 300, ended=1.0)]
    parts = [
        [replace(p, entered=2.0 * n, ended=2.0 * n + 1) for n in range(95) for p in own]
        for own in parts
    ]
    [row] = collective_rows(put_together(parts), {}, mesh(3, delay_s=0.1))
    assert (row["timed"], row["bounded"]) == (95, 10)


def test_a_replay_has_as_many_messages_of_each_rank_as_the_largest_number_told():
    one = ring(3, 300, messages=4)
    assert Collective(tuple(one)).replay_steps == 12
    assert Collective((replace(one[0], messages=20_000), *one[1:])).replay_steps == 60_000


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    (tmp_path / "metrics").mkdir()
    for rank, node in enumerate(NAMES[:2]):
        whole = json.dumps(line("all_reduce", {1 - rank: 9}))
        text = whole + "\n" + (whole[:50] if rank else "")
        (tmp_path / "metrics" / f"{node}.collectives.jsonl").write_text(text)
    assert len(read_collectives(tmp_path, NAMES[:2])) == 1
    assert read_collectives(tmp_path, ["node7"]) == []


def test_a_line_that_names_ranks_which_do_not_exist_is_left_out(tmp_path):
    (tmp_path / "metrics").mkdir()
    forged = [
        line("all_reduce", dict.fromkeys(range(1, 4), 9)),
        line("exchange", {}, sources=[2]),
    ]
    for rank, node in enumerate(NAMES[:2]):
        lines = [line("all_reduce", {1 - rank: 9}), *(forged if rank else [])]
        text = "".join(f"{json.dumps(one)}\n" for one in lines)
        (tmp_path / "metrics" / f"{node}.collectives.jsonl").write_text(text)
    [only] = read_collectives(tmp_path, NAMES[:2])
    assert [part.to for part in only.parts] == [{1: 9}, {0: 9}]


def test_a_message_on_the_wire_is_what_was_measured():
    """On four nodes, an exchange of 1,000,000 bytes with the next rank put 1,045,768 bytes on each link (LOG.md)."""
    sent = [Sent("node1", "node2", 1_000_000, 1)]
    expected = expected_by_link(sent, FULL)
    assert expected["node1->node2"] == 1_045_768
    assert (
        15_000 < expected["node2->node1"] < 25_000
    )  # measured: 2,886 to 18,594 bytes of acknowledgements


def test_an_all_reduce_on_the_wire_is_what_was_measured():
    """Measured for 2 MB on four nodes: 3,138,366 to 3,139,290 bytes."""
    sent = [Sent("node2", "node1", 3_000_000, 12)]
    assert expected_by_link(sent, FULL)["node2->node1"] == pytest.approx(3_138_900, rel=3e-4)


def test_on_a_line_the_middle_carries_for_both():
    paths = link_paths(NAMES, links(LINE))
    sent = [Sent("node1", "node3", 1_000_000, 1), Sent("node2", "node3", 500_000, 1)]
    payload = payload_by_link(sent, paths)
    assert payload["node1->node2"] == 1_000_000
    assert payload["node2->node3"] == 1_500_000
    expected = expected_by_link(sent, paths)
    assert expected["node3->node2"] > expected["node2->node1"] > 20_000
    isolated = link_paths(NAMES, links(LINE), isolated=True)
    assert expected_by_link(sent, isolated) is None


def test_links_that_carried_something_else_are_named():
    sent = [Sent("node1", "node2", 1_000_000, 1)]
    carried = {"node1->node2": 1_045_768, "node2->node1": 9_000, "node1->node3": 132}
    found = reconcile_links(carried, sent, FULL)
    assert found["off"] == []
    assert found["links"]["node1->node2"]["ratio"] == 1.0
    assert found["ratio"] == pytest.approx(1, abs=0.02)
    more = reconcile_links(carried | {"node1->node2": 1_145_768}, sent, FULL)
    assert more["off"] == ["node1->node2", "total"]
    stray = reconcile_links(carried | {"node1->node3": 60_000}, sent, FULL)
    assert stray["off"] == ["node1->node3"]
    lossy = reconcile_links(carried | {"node1->node2": 1_145_768}, sent, FULL, ["node1->node2"])
    assert lossy["off"] == []


def test_the_loop_is_between_the_ranks_own_readings():
    sums = [{"to": {"1": {"bytes": 1_000_000, "messages": 1}}}]
    starts = {
        "node1": start_line(link_bytes={"node2": 500}),
        "node2": start_line(link_bytes={"node1": 100}),
    }
    ends = {
        "node1": end_line(link_bytes={"node2": 1_046_268}, collectives=sums),
        "node2": end_line(link_bytes={"node1": 20_000}),
    }
    loop = loop_bytes(starts, ends, NAMES[:2], FULL)
    assert loop["links"]["node1->node2"]["carried"] == 1_045_768
    assert loop["payload"] == 1_000_000
    starts["node2"] = start_line()
    assert loop_bytes(starts, ends, NAMES[:2], FULL) is None


def test_ranks_of_one_node_share_its_links_and_send_each_other_nothing_over_them():
    """Two ranks per node on two nodes: 0 sends to 1 on its own node, 1 to 2; both of node1 read the same counter."""

    def sends(to, count):
        return [{"to": {str(to): {"bytes": count, "messages": 1}}}]

    nodes = ["node1", "node1", "node2", "node2"]
    before = [{"node2": 500}, {"node2": 700}, {"node1": 100}, {"node1": 100}]
    after = [{"node2": 900_000}, {"node2": 1_046_268}, {"node1": 20_000}, {"node1": 19_000}]
    sent = [sends(1, 5_000_000), sends(2, 1_000_000), [], []]
    starts = {f"r{rank}": start_line(link_bytes=before[rank]) for rank in range(4)}
    ends = {
        f"r{rank}": end_line(link_bytes=after[rank], collectives=sent[rank]) for rank in range(4)
    }
    loop = loop_bytes(starts, ends, nodes, link_paths(nodes, links([("node1", "node2")])))
    assert loop["links"]["node1->node2"] == {
        "carried": 1_045_768,
        "payload": 1_000_000,
        "expected": 1_045_768,
        "ratio": 1.0,
    }
    assert loop["payload"] == 1_000_000
    assert loop["links"]["node2->node1"]["carried"] == 19_900


TCP = {
    "window_bytes": 14_480,
    "ssthresh_bytes": None,
    "idle_s": 0.1,
    "rto_s": 0.3,
    "sent_again": 2,
}


def with_tcp(folder, tcp):
    """Return the TCP states read for the first of two ranks if its second line reports `tcp`."""
    plain = line("all_reduce", {1: 5})
    other = line("all_reduce", {0: 5})
    lines = {
        "node1": [plain, plain | {"step": 2, "tcp": tcp}],
        "node2": [other, other | {"step": 2}],
    }
    (folder / "metrics").mkdir()
    for name, own in lines.items():
        text = "".join(f"{json.dumps(one)}\n" for one in own)
        (folder / "metrics" / f"{name}.collectives.jsonl").write_text(text)
    found = read_collectives(folder, list(lines), ["10.77.0.11", "10.77.0.12"])
    return [one.parts[0].tcp for one in found]


def test_what_a_rank_tells_of_tcp_is_of_whom_it_sends_to(tmp_path):
    state = SocketState(Window(14_480), 0.1, 0.3, 2)
    assert with_tcp(tmp_path, {"10.77.0.12": TCP, "10.77.0.99": TCP}) == [{}, {1: state}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rto_s": 0},
        {"rto_s": -1.0},
        {"window_bytes": 0},
        {"window_bytes": 0.5},
        {"window_bytes": "many"},
        {"ssthresh_bytes": 0.5},
        {"ssthresh_bytes": float("nan")},
        {"idle_s": None},
        {"sent_again": -1},
    ],
)
def test_a_line_that_says_of_tcp_what_cannot_be_is_not_there(tmp_path, wrong):
    assert with_tcp(tmp_path, {"10.77.0.12": TCP | wrong}) == [{}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": 1e15},
        {"time": -1e15},
        {"done_s": 1e15},
        {"waited_s": 1e15},
        {"bytes": 10**15},
    ],
)
def test_a_line_of_times_or_bytes_that_cannot_be_is_not_there(tmp_path, wrong):
    """From 1e15 s on, a round trip adds nothing to a time; 1e15 bytes are a thousand million messages of a ring."""
    (tmp_path / "metrics").mkdir()
    path = tmp_path / "metrics" / "node1.collectives.jsonl"
    plain = line("all_reduce", {0: 9})
    path.write_text("".join(f"{json.dumps(one)}\n" for one in (plain, plain | wrong)))
    assert len(read_collectives(tmp_path, NAMES[:1])) == 1


# Lines that are missing.


def ten_of_each(kind):
    """Parts of two ranks in ten collectives, one a step, ten seconds apart."""
    sources = [[1], [0]] if kind == "exchange" else [None, None]
    return [
        [part(r, kind, {1 - r: 9}, at=10.0 * n, step=n + 1, sources=sources[r]) for n in range(10)]
        for r in range(2)
    ]


@pytest.mark.parametrize("kind", ["all_reduce", "exchange"])
def test_where_a_line_is_missing_later_collectives_have_their_own_partners(kind):
    own, other = ten_of_each(kind)
    joined = [one for one in put_together([own, other[:2] + other[3:]]) if len(one.all_parts) == 2]
    assert {one.parts[0].step for one in joined} == {1, 2, *range(4, 11)}
    assert all(len({p.step for p in one.all_parts}) == 1 for one in joined)
    assert {one.waiting_s(p) for one in joined for p in one.parts} == {0.0}


def test_of_a_step_in_which_a_line_is_missing_nothing_of_its_kind_is_joined():
    """Which of them is missing is not known."""
    parts = [[part(r, "all_reduce", {1 - r: 9}, at=float(n)) for n in range(3)] for r in range(2)]
    control = [part(r, "all_gather", {1 - r: 9}, at=5.0, purpose="control") for r in range(2)]
    [only] = put_together([[*parts[0], control[0]], [*parts[1][:2], control[1]]])
    assert only.key[:2] == ("all_gather", "control")


@pytest.mark.parametrize("kind", ["all_reduce", "exchange"])
def test_what_a_dead_rank_did_before_is_joined(kind):
    own, other = ten_of_each(kind)
    whole = [one for one in put_together([own, other[:7]]) if len(one.all_parts) == 2]
    assert {one.parts[0].step for one in whole} == set(range(1, 8))


def test_of_one_step_the_first_lines_are_joined_if_the_last_is_missing():
    """A program that counts no steps has one step alone."""
    parts = [[part(r, "all_reduce", {1 - r: 9}, at=float(n)) for n in range(9)] for r in range(2)]
    assert len(put_together([parts[0], parts[1][:8]])) == 8


def test_partners_may_exchange_in_different_steps():
    own, other = ten_of_each("exchange")
    later = [replace(one, step=one.step + 1) for one in other]
    assert all(len(one.all_parts) == 2 for one in put_together([own, later]))
