"""Tests of trace replays on a node's real kernel: the links in force meanwhile, and that all is restored afterwards."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from test_wire import (
    DEVICE,
    STATE,
    apply,
    device,
    kernel_state,
    name,
    output,
    plan,
    run,
    show,
    wire,
)
from test_wire import pytestmark as pytestmark

__all__ = ["device", "name"]  # fixtures

REPLAY = [sys.executable, "-m", "node.wire", "replay"]
THERE, BACK = ["node1", "node2"], ["node2", "node1"]


class Replay:
    """`python -m node.wire replay` after its first order."""

    def __init__(self, **traces):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(REPLAY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        pairs = [pair for trace in traces.values() for pair in trace["links"]]
        self.send(links=pairs, traces=traces)

    def send(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        """Return its last lines, and its standard error."""
        said, words = self.process.communicate(timeout=60)
        return [json.loads(line) for line in said.splitlines()], words


@pytest.fixture
def replay():
    started = []

    def start(**traces):
        started.append(Replay(**traces))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def trace(links, fields, steps, seconds, lasts_s=None):
    return {
        "links": links,
        "fields": fields,
        "steps": steps,
        "seconds": seconds,
        "lasts_s": lasts_s,
    }


def rate_bit(slot=1):
    """Return the rate of the link to a peer, as the kernel reports it."""
    classes = json.loads(output("tc", "-json", "class", "show", "dev", DEVICE))
    return next(row["rate"] * 8 for row in classes if row["handle"] == f"6777:1{slot}")


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_trace_changes_links_and_leaves_them_as_they_were(name, replay):
    document = plan(name)
    apply(document)
    before = kernel_state()
    steps = [[0, 1.0, 20], [0.4, 2.0, 30], [0.8, 4.0, 40]]
    played = replay(a=trace([THERE, BACK], ["rate_mbyte_s", "delay_ms"], steps, 1.2, 1.2))
    assert played.answer() == {"ready": True}
    assert kernel_state() == before  # nothing starts by itself
    played.send(do="begin", trace="a")
    for rate_mbyte_s in (1, 2, 4):
        wait_for(lambda rate=rate_mbyte_s: rate_bit() == rate * 8e6)
        assert rate_bit(slot=2) == 5 * 8e6
    shown = show()
    assert (shown["plan"], shown["replayed"]) == (document, [THERE, BACK])
    ended = played.answer()
    assert (ended["ended"], ended["changes"]) == ("a", 3)
    assert kernel_state() == before
    assert played.process.poll() is None  # it waits for another trace
    played.send(do="begin", trace="a")
    said, words = played.end()
    assert (said[0]["changes"], words, played.process.returncode) == (1, "", 0)
    assert kernel_state() == before
    assert (show()["plan"], show()["replayed"]) == (document, [])


def test_twenty_changes_a_second_and_what_waits_is_not_lost(name, replay):
    """A queue of 0.25 MB drains at rates that rise and fall; there is an outage, too."""
    apply(plan(name, rate_mbyte_s=0.1, buffer_ms=5_000.0))
    rates = [0.2, 0.02, 0.1, 0.05, 0.0, 0.0, 0.3, 0.02]
    steps = [[n * 0.05, rate] for n, rate in enumerate(rates)]
    played = replay(a=trace([THERE], ["rate_mbyte_s"], steps, 0.4))
    played.answer()
    played.send(do="begin", trace="a")
    send = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)\n"
        "for _ in range(170): s.sendto(bytes(1400), ('10.253.7.2', 9))"
    )
    output(sys.executable, "-c", send)
    time.sleep(2.4)
    said, _ = played.end()
    counted = show()["counters"]["node2"]
    assert counted["dropped_packets"] == 0
    assert counted["sent_bytes"] + counted["backlog_bytes"] >= 170 * 1442
    # The rates' mean is 86 kB/s; later rates do not make up for the outages.
    assert 0.6 < counted["sent_bytes"] / (2.4 * 0.086e6) < 1.2
    assert said[0]["changes"] >= 40


def test_in_an_outage_one_packet_a_second_passes_however_fast_the_plan_is(name, replay):
    """A link of 250 MB/s has packets of 33 frames, and at the trace's rate single frames."""
    apply(plan(name, rate_mbyte_s=250.0))
    rates = [[0, 1.0], [0.5, 0.0], [100.0, 1.0]]
    played = replay(a=trace([THERE], ["rate_mbyte_s"], rates, 101))
    played.answer()
    played.send(do="begin", trace="a")
    wait_for(lambda: 0 < rate_bit() < 8e5)
    send = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for _ in range(60): s.sendto(bytes(1400), ('10.253.7.2', 9))"
    )
    output(sys.executable, "-c", send)
    began, before = time.monotonic(), show()["counters"]["node2"]
    time.sleep(2)
    after, passed_s = show()["counters"]["node2"], time.monotonic() - began
    assert after["backlog_packets"] > 30
    assert 1 <= after["sent_packets"] - before["sent_packets"] <= passed_s + 1


def test_a_plan_beneath_a_trace_leaves_the_downlink_its_queue(replay):
    """While a link is slow or in an outage, its own queue lasts for seconds to minutes."""

    def does():
        return json.loads(output(*REPLAY[:-1], "inspect"))["marks"]["wire"]

    document = plan("nfqueue") | {"downlink_mbyte_s": 8.0}
    apply(document)
    before = does()
    played = replay(a=trace([BACK], ["rate_mbyte_s"], [[0, 5.0], [0.1, 0.0]], 60))
    played.answer()
    played.send(do="begin", trace="a")
    time.sleep(0.5)
    played.send(do="apply", plan=document)
    assert played.answer() == {"applied": True}
    played.end()
    assert does() == before


def test_netem_is_told_nothing_of_a_rate(name, replay):
    """A line would end a burst of losses. nfqueue is told of changes by its socket."""
    apply(plan(name, loss_pct=2.0, loss_burst=10.0) | {"downlink_mbyte_s": 8.0})
    before, shares = kernel_state(), run("tc", "class", "show", "dev", "gradwire-ifb").stdout
    rates = [[0.1 * n, 1.0 + n % 7] for n in range(30)]
    played = replay(a=trace([THERE, BACK], ["rate_mbyte_s"], rates, 3))
    played.answer()
    played.send(do="begin", trace="a")
    wait_for(lambda: rate_bit() != 40e6)
    seen = {re.sub(r".*(tbf|htb|pfifo).*", "", output("tc", "qdisc", "show")) for _ in range(20)}
    assert len(seen) == 1
    assert played.process.poll() is None
    played.end()
    assert kernel_state() == before
    assert run("tc", "class", "show", "dev", "gradwire-ifb").stdout == shares


def test_nobody_else_changes_the_links_meanwhile(name, replay):
    document = plan(name)
    apply(document)
    played = replay(a=trace([THERE], ["delay_ms"], [[0, 20], [1, 30]], 2))
    played.answer()
    for verb in ("apply", "clear"):
        done = wire(verb, json.dumps(document))
        assert done.returncode == 1
        assert "traces are replayed on node1 -> node2: end that" in done.stderr
    second, words = replay().end()
    assert second == [] and "traces are replayed" in words
    played.process.send_signal(signal.SIGTERM)
    assert played.end() == ([], "")
    apply(document)


def test_who_began_it_may_change_the_plan_underneath(name, replay):
    apply(plan(name))
    played = replay(a=trace([THERE], ["rate_mbyte_s"], [[0, 1.0]], 1))
    played.answer()
    played.send(do="begin", trace="a")
    other = plan(name, rate_mbyte_s=3.0, delay_ms=7.0)
    played.send(do="apply", plan=other)
    assert played.answer() == {"applied": True}
    assert (rate_bit(1), rate_bit(2)) == (8e6, 24e6)
    assert show()["plan"] == other
    assert [link["delay_ms"] for link in show()["report"]["links"]] == [7.0] * 4
    played.send(do="end", trace="a")
    assert played.answer()["ended"] == "a"
    assert rate_bit(1) == 24e6
    played.send(do="apply", plan=plan(name, peers=(3,)))
    said, words = played.end()
    assert "node1 has no link from node1 to node2" in words
    assert show()["plan"] == other and show()["replayed"] == []


def test_one_that_is_killed_is_told_and_mended(name, replay):
    apply(plan(name))
    played = replay(a=trace([THERE], ["rate_mbyte_s"], [[0, 1.0]], 1))
    played.answer()
    played.send(do="begin", trace="a")
    wait_for(lambda: rate_bit() == 8e6)
    os.kill(played.process.pid, signal.SIGKILL)
    played.end()
    assert show()["plan"] is None and "a trace was cut off here" in show()["notes"][0]
    apply(plan(name))
    assert rate_bit() == 40e6
    assert show()["plan"] == plan(name)


def test_a_change_that_fails_puts_all_back(name, replay):
    apply(plan(name))
    before = kernel_state()
    played = replay(a=trace([THERE], ["rate_mbyte_s"], [[0, 1.0], [0.3, 2.0]], 1))
    played.answer()
    played.send(do="begin", trace="a")
    wait_for(lambda: rate_bit() == 8e6)
    output("pkill", "-KILL", "--exact", "tc")
    played.process.wait(10)
    _, words = played.end()
    # Killed is the tc that makes changes, or one that only looks at what is in force, if it runs in that moment.
    assert words.startswith(("node.wire: tc: ", "node.wire: tc -json")) and words.count("\n") == 1
    assert played.process.returncode == 1
    assert kernel_state() == before and show()["plan"] == plan(name)


def test_without_a_plan_there_is_nothing_to_change(replay):
    assert not STATE.exists()
    said, words = replay(a=trace([THERE], ["delay_ms"], [[0, 1]], 1)).end()
    assert said == [] and "no plan is in force here" in words
