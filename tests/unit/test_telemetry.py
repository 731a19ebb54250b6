"""What a node reports about its ranks and links each second, on growing files and on real processes."""

import json
import os
import struct
import subprocess
import sys
import time

import pytest

from cluster.base.paths import PROJECT_DIR
from cluster.live.sample import parse_sample
from node.telemetry import link_looks, tc_dump
from node.telemetry.__main__ import Looks, next_due
from node.telemetry.metrics_tail import MetricsTail
from node.telemetry.rank_looks import RankLooks
from protocol.reader import parse
from protocol.telemetry import (
    MOST_SAID_BYTES,
    LinkLook,
    Look,
    Order,
    RankLook,
    look_text,
    order_text,
    parse_look,
)

STEP = {"event": "step", "rank": 0, "compute_s": 0.5, "comm_s": 0.25, "sent_bytes": 10}


def step(number, **values):
    return (
        json.dumps(STEP | {"step": number, "time": 1000.0 + number, "loss": 1 / number} | values)
        + "\n"
    )


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_metrics_that_grow_are_read_once(metrics, monkeypatch):
    tail, read = MetricsTail(metrics), []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *words: read.append(pread(*words)) or read[-1])
    assert tail.look() == RankLook()
    with metrics.open("a") as file:
        for number in range(1, 101):
            file.write(step(number))
            file.flush()
            seen = tail.look()
    assert (seen.step, seen.loss, seen.began, seen.time) == (100, 0.01, 1001.0, 1100.0)
    assert (seen.compute_s, seen.comm_s, seen.sent_bytes) == (50.0, 25.0, 1000.0)
    assert b"".join(read) == metrics.read_bytes()


def test_a_line_that_comes_in_two_pieces_counts_once(metrics):
    tail, text = MetricsTail(metrics), step(1)
    metrics.write_text(text[:20])
    assert tail.look() == RankLook()
    metrics.write_text(text + step(2)[:-1])
    assert tail.look().step == 1
    metrics.write_text(text + step(2))
    assert (tail.look().step, tail.look().compute_s) == (2, 1.0)


def test_of_very_much_at_once_the_end_is_read_and_sums_are_scaled(metrics):
    tail = MetricsTail(metrics)
    metrics.write_text("".join(step(number) for number in range(1, 10_001)))
    seen = tail.look()
    assert seen.step == 10_000
    assert seen.compute_s == pytest.approx(5000, rel=0.02)


def test_a_rank_that_was_started_again_writes_its_metrics_anew(metrics):
    tail = MetricsTail(metrics)
    metrics.write_text(step(8) + step(9))
    tail.look()
    metrics.write_text(step(1))
    assert (tail.look().step, tail.look().compute_s) == (1, 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "[]\n",
        "null\n",
        "x\n",
        "[" * 9000 + "\n",
        '{"step": "a"}\n',
        '{"step": true}\n',
        '{"step": NaN}\n',
    ]
    + ['{"event": "step", "step": 1e300}\n', '{"loss": []}\n', "x" * 100_000 + "\n", "\xff\n"],
)
def test_lines_that_are_none_count_as_not_there(metrics, text):
    tail = MetricsTail(metrics)
    metrics.write_text(text, encoding="latin-1")
    assert tail.look().step is None
    with metrics.open("a") as file:
        file.write(step(3))
    assert tail.look().step == 3


def test_a_loss_that_is_no_number_is_none(metrics):
    metrics.write_text(step(1) + step(2, loss=float("nan")))
    assert MetricsTail(metrics).look().loss is None


def test_the_last_score_stays(metrics):
    evaluation = {"event": "eval", "rank": 0, "step": 5, "time": 1.0, "test_accuracy": 0.8}
    metrics.write_text(step(6) + json.dumps(evaluation) + "\n" + step(7))
    seen = MetricsTail(metrics).look()
    assert (seen.step, seen.score) == (7, ("test_accuracy", 0.8))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_keeps_nobody_waiting(metrics, make):
    make(metrics)
    started = time.monotonic()
    assert MetricsTail(metrics).look() == RankLook()
    assert time.monotonic() - started < 5


RANK = """\
import os, sys, time
sys.path.insert(0, {folder!r})
from node.accounting.gloo_traffic import Flow
from node.accounting.ledger import Ledger
ledger = Ledger()
ledger.step = 7
ledger.begin(Flow("all_reduce", 8, 1, {{1: 8}}), "train")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def rank():
    """A process that claims to be rank 0 of this test's own run."""
    run = f"t-{os.getpid()}-{time.monotonic_ns()}"
    environ = os.environ | {"TORCHELASTIC_RUN_ID": run, "RANK": "0"}
    program = RANK.format(folder=str(PROJECT_DIR))
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield run, process
        finally:
            process.kill()


def test_a_rank_is_seen_from_outside_and_its_note_read(rank):
    run, process = rank
    looks = RankLooks(run, ["0", "1"])
    seen = looks.look()
    assert set(seen) == {"0"}
    assert seen["0"].state in "SR"
    assert seen["0"].collective.startswith("1 1 all_reduce 8 train 7 ")
    assert 0 < seen["0"].main_s <= seen["0"].cpu_s
    process.kill()
    process.wait()
    assert looks.look() == {}


def test_between_two_searches_only_the_ranks_own_files_are_read(rank, monkeypatch):
    run, _ = rank
    looks = RankLooks(run, ["0"])
    looks.look()
    monkeypatch.setattr("node.telemetry.rank_looks.find_ranks", lambda run: pytest.fail("searched"))
    assert looks.look()["0"].collective


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(kind, handle, device=3, sent=0, dropped=0, backlog=0):
    stats = struct.pack("=QIIIIIII", sent, 1, dropped, 0, 0, 0, 2, backlog) + bytes(4)
    body = struct.pack("=BxxxiIII", 0, device, handle, 0, 0)
    body += attribute(1, b"htb\0") + attribute(3, stats)
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


class Kernel:
    """A socket whose other end gives these answers."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def send(self, data):
        self.asked.append(data)

    def recv(self, size):
        return self.answers.pop(0)


def test_counters_are_read_from_what_the_kernel_sends():
    first = message(40, 0x67770011, sent=5 * 10**9, dropped=7, backlog=300)
    kernel = Kernel(first + message(40, 0x67770012, device=4), message(40, 0x67770013) + DONE)
    found = tc_dump.dump(kernel, tc_dump.CLASS, 3)
    assert found == {0x67770011: (5 * 10**9, 7, 300), 0x67770013: (0, 0, 0)}
    assert struct.unpack_from("=IHH", kernel.asked[0]) == (len(kernel.asked[0]), 42, 0x301)


def test_a_kernel_that_refuses_is_an_error():
    refusal = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -19)
    with pytest.raises(OSError, match="tc counters"):
        tc_dump.dump(Kernel(refusal), tc_dump.CLASS, 3)


def test_a_truncated_message_ends_the_look():
    odd = message(40, 0x67770011)[:-20]
    with pytest.raises((struct.error, OSError, IndexError)):
        tc_dump.dump(Kernel(odd), tc_dump.CLASS, 3)


def test_this_kernel_answers_for_its_loopback():
    """The loopback has no class, and may have no queue; all that matters is that the kernel answers."""
    netlink = tc_dump.open_socket()
    with netlink:
        assert tc_dump.dump(netlink, tc_dump.CLASS, 1) == {}
        assert isinstance(tc_dump.dump(netlink, tc_dump.QDISC, 1), dict)


def test_a_node_without_a_plan_has_no_links(monkeypatch, tmp_path):
    monkeypatch.setattr(link_looks.state, "FILE", tmp_path / "wire.json")
    assert link_looks.LinkLooks().look() == {}


@pytest.fixture
def telemetry(tmp_path):
    """The process, started as a launcher starts it."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-m", "node.telemetry"],
        cwd=PROJECT_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:  # closes its pipes
        yield process
        process.kill()


def test_a_look_that_was_late_is_not_followed_at_once():
    assert next_due(10.0, 1.0, 10.2) == 11.0
    assert next_due(10.0, 1.0, 10.9) == 11.4
    assert next_due(10.0, 1.0, 17.3) == 17.8


def test_it_tells_once_an_interval_and_ends_with_its_standard_input(telemetry, metrics):
    order = {"run": "none", "ranks": {"4": str(metrics)}, "interval_s": 0.1}
    telemetry.stdin.write(json.dumps(order).encode() + b"\n")
    telemetry.stdin.flush()
    first = parse_sample(telemetry.stdout.readline(), [4], [])
    metrics.write_text(step(5))
    samples = [parse_sample(telemetry.stdout.readline(), [4], []) for _ in range(3)]
    assert first.ranks[4].step is None
    assert samples[-1].ranks[4].step == 5
    assert samples[-1].time > samples[0].time > first.time
    telemetry.stdin.close()
    assert telemetry.wait(timeout=30) == 0
    assert telemetry.stderr.read() == b""


def test_it_ends_when_nobody_reads_any_more(telemetry, metrics):
    order = {"run": "none", "ranks": {"4": str(metrics)}, "interval_s": 0.1}
    telemetry.stdin.write(json.dumps(order).encode() + b"\n")
    telemetry.stdin.flush()
    telemetry.stdout.readline()
    telemetry.stdout.close()
    assert telemetry.wait(timeout=30) == 0


def test_a_line_is_read_as_it_was_written_and_what_is_wrong_of_one_rank_or_link_is_left_out():
    one = RankLook("R", 1.5, 1.0, "", step=3, loss=2, score=("test_accuracy", 1))
    look = Look(5, 0.5, {0: one, 1: RankLook()}, {"node2": LinkLook(1, 2, 3, 4.5)})
    assert parse_look(look_text(look), [0, 1], ["node2", "node3"]) == look
    said = json.loads(look_text(look))
    said["ranks"]["1"] = {"state": "RR", "cpu_s": "much", "step": 7, "own": 1}
    said["links"]["node3"] = [1, 2, 3, "fast"]
    found = parse_look(json.dumps(said), [0, 1], ["node2", "node3"])
    assert found == look._replace(ranks={0: one, 1: RankLook(step=7)})


def test_an_order_is_read_as_it_was_written():
    order = Order("run", {3: "/run/x/metrics.jsonl"}, 0.5)
    assert parse(Order, order_text(order)) == order


def test_a_line_is_never_longer_than_a_launcher_takes(monkeypatch, tmp_path):
    paths = {rank: str(tmp_path / f"{rank}.jsonl") for rank in range(64)}
    looks = Looks(Order("none", paths, 1.0))
    link = LinkLook(1, 2, 3, 4)
    monkeypatch.setattr(looks._links, "look", lambda: {"x" * MOST_SAID_BYTES: link})
    assert len(looks.line()) < 100
