"""If nothing moves, which rank holds the others up, and how it is reported: on states as nodes report them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from cluster.accounting.clocks import HostClock
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.run import stall_watcher
from cluster.run.job import Job
from cluster.run.launch_words import NEVER_S, NONE, parse_stall_timeout_s
from cluster.run.program import Program
from cluster.run.rank_placement import place_ranks
from cluster.run.stall import RankState, find_stall, has_moved, read_state
from cluster.run.stall_watcher import StallWatch
from cluster.shaping.link_state import planned_link_state
from node.accounting.gloo_traffic import Flow
from node.accounting.ledger import Ledger
from node.supervisor.rank_states import find_ranks, read_sockets, state_of
from protocol.reader import document

NODES = ClusterSpec(size=3).nodes
PLACES = place_ranks([node.name for node in NODES])
WAITS = {"state": "S", "cpu_s": 1.0, "bytes": 10**6, "unread": {}, "unsent": {}, "collective": ""}
SS = """\
0 96 10.77.1.11:37433 10.77.1.13:44682 users:(("a",pid=28,fd=15)) bytes_sent:9500 bytes_acked:500 bytes_received:60
7 0 [::ffff:10.77.1.11]:29500 [::ffff:10.77.1.12]:34010 users:(("a",pid=28,fd=8),("b",pid=30,fd=8)) bytes_received:3
5 0 10.77.1.11:22 10.77.1.1:51222 users:(("sshd-session",pid=22,fd=7)) bbr bytes_sent:9
Failed to open cgroup2 by ID
"""


def states(*changes):
    said = [read_state(WAITS | change) for change in changes]
    return dict(zip(PLACES, said, strict=False))


def stall(*changes):
    return find_stall(states(*changes), NODES, 31.0, 1000.0, {})


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({}, False),
        ({"cpu_s": 1.1}, False),  # a look at the clock
        ({"cpu_s": 1.5}, True),
        ({"bytes": 10**6 + 500}, False),  # no more than a greeting
        ({"bytes": 10**6 + 10**5}, True),
        ({"state": "R"}, True),  # it would compute if it got a processor
    ],
)
def test_what_counts_as_movement(change, moved):
    assert has_moved(read_state(WAITS), read_state(WAITS | change), 10.0) == moved


def test_a_stopped_rank_holds_the_others_up_whatever_else_is_seen():
    found = stall({"unread": {"10.0.0.9": 5}}, {}, {"state": "T"})
    assert (found.place, found.why) == (PLACES[2], "it is stopped (T): kill -CONT lets it go on")
    assert "rank 2 on node3 holds the others up" in found.words()
    assert stall({"state": "D"}, {}, {"state": "T"}).place == PLACES[2]
    assert stall({"state": "D"}, {}, {}).place == PLACES[0]


def test_how_long_a_rank_is_in_a_collective_is_told_by_the_clock_of_its_node():
    """30 s ahead, it would have been in it for 0 s; behind, for a minute."""
    began = {
        place: read_state(
            WAITS | {"collective": f"7 1 all_reduce 4800000 train 20 {970 + ahead_s}.0"}
        )
        for place, ahead_s in zip(PLACES, (0, 30, -30), strict=True)
    }
    clocks = {"node2": HostClock(30.0, 0.01), "node3": HostClock(-30.0, 0.01)}
    words = find_stall(began, NODES, 31.0, 1000.0, clocks).words()
    assert words.count("in all_reduce of 4.8 MB (train, step 20) for 30 s") == 3, words


def test_a_rank_that_has_not_come_to_a_collective_holds_the_others_up():
    waiting = {"collective": "7 1 all_reduce 4800000 train 20 970.000"}
    found = stall(waiting, {"collective": "6 0 all_reduce 4800000 train 19 960.000"}, waiting)
    assert found.place == PLACES[1]
    assert found.lines[0] == (
        "rank 0 on node1: it waits (S), in all_reduce of 4.8 MB (train, step 20) for 30 s"
    )
    assert found.lines[1].endswith("between collectives 6 and 7")


def test_a_rank_that_was_started_again_is_not_blamed_for_collectives_that_were_before_it():
    places = place_ranks([node.name for node in NODES], essential=[0, 1])
    waiting = {"collective": "7 1 all_reduce 4800000 train 20 970.000"}
    anew = {"collective": "0 0 - 0 - 0 0"}
    found = dict(zip(places, states(waiting, waiting, anew).values(), strict=True))
    assert find_stall(found, NODES, 31.0, 1000.0, {}).place is None
    found[places[1]] = read_state(WAITS | anew)
    assert find_stall(found, NODES, 31.0, 1000.0, {}).place == places[1]


def test_a_rank_that_does_not_read_holds_the_others_up():
    address = NODES[0].address
    found = stall({"unsent": {NODES[1].address: 5000}}, {"unread": {address: 1234567}}, {})
    assert (found.place, found.why) == (
        PLACES[1],
        "it does not read 1,234,567 bytes of node1",
    )
    assert found.lines[0].endswith("cannot send 5,000 bytes to node2")


def test_a_link_that_carries_nothing_is_named():
    one, other, third = (node.address for node in NODES)
    found = stall({"unsent": {other: 5000}}, {"unsent": {one: 9, third: 9}}, {"unread": {other: 9}})
    assert found.lines[3:] == [
        "node2 does not acknowledge what node1 sends: the link, or the one back, carries nothing",
        "node1 does not acknowledge what node2 sends: the link, or the one back, carries nothing",
    ]


def test_where_all_wait_nobody_is_blamed():
    found = find_stall({**states({}, {}), PLACES[2]: None}, NODES, 31.0, 1000.0, {})
    assert (found.place, found.lines[2]) == (None, "rank 2 on node3: its node reports no state")
    assert "holds the others up" not in found.words()


@pytest.mark.parametrize(
    "said",
    [None, 5, [], {}, WAITS | {"cpu_s": "x"}, WAITS | {"unread": []}, WAITS | {"collective": "1 2"}]
    + [WAITS | {"bytes": float("inf")}, WAITS | {"unread": {"a": None}}],
)
def test_nonsense_is_no_state(said):
    assert read_state(said) is None


def test_connections_are_those_of_the_ranks_own_processes_and_what_is_sent_again_does_not_count():
    mine, both, other = read_sockets(SS)
    assert (mine.peer, mine.unsent, mine.carried) == ("10.77.1.13", 96, 560)
    assert (both.peer, both.unread, both.pids) == ("10.77.1.12", 7, {28, 30})
    assert other.pids == {22}


def test_a_rank_is_found_by_its_environment_with_all_its_processes_and_its_collective():
    """A real rank on this machine, with a child process, stopped in the middle of a collective."""
    code = (
        "import sys, subprocess, time\n"
        "from node.accounting.gloo_traffic import Flow\nfrom node.accounting.ledger import Ledger\n"
        "ledger = Ledger()\nledger.begin(Flow('all_reduce', 8, 1, {1: 8}), 'train')\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    run = f"run-{os.getpid()}"
    environ = os.environ | {"TORCHELASTIC_RUN_ID": run, "RANK": "3"}
    rank = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environ,
        cwd=PROJECT_DIR,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        rank.stdout.readline()
        deadline = time.monotonic() + 10
        while (
            len(processes := find_ranks(run)["3"]) < 2
        ):  # the child has its environment only once its program is loaded
            assert time.monotonic() < deadline
        assert (len(processes), processes[0].pid) == (2, rank.pid)
        os.kill(processes[1].pid, 19)
        while (said := state_of(find_ranks(run)["3"], [])).state != "T":
            assert time.monotonic() < deadline
        state = read_state(json.loads(json.dumps(document(said))))
        assert isinstance(state, RankState)
        assert state.collective.words.startswith("all_reduce of 8e-06 MB (train")
    finally:
        os.killpg(rank.pid, 9)
        rank.communicate()


def test_a_child_without_a_rank_is_one_of_its_parents_processes():
    """The rank starts a child with RANK removed from its environment."""
    child = "import subprocess, sys, os\nenviron = dict(os.environ)\ndel environ['RANK']\n"
    child += "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'], env=environ)"
    run = f"run-{os.getpid()}"
    environ = os.environ | {"TORCHELASTIC_RUN_ID": run, "RANK": "3"}
    rank = subprocess.Popen([sys.executable, "-c", child], env=environ, start_new_session=True)
    lost = {name: value for name, value in environ.items() if name != "RANK"}
    stray = subprocess.Popen(["sleep", "60"], env=lost)  # of the run, but of no rank
    try:
        deadline = time.monotonic() + 10
        while len(found := find_ranks(run)) < 1 or len(found["3"]) < 2:
            assert time.monotonic() < deadline
        assert set(found) == {"3"} and found["3"][0].pid == rank.pid
    finally:
        os.killpg(rank.pid, 9)
        stray.kill()
        rank.wait()
        stray.wait()


class FakeFleet:
    """Nodes that report nothing about their ranks until told to."""

    def __init__(self):
        self.nodes, self.said, self.asked = NODES, b"", 0

    def run(self, argv, **how):
        self.asked += 1
        return {node.name: subprocess.CompletedProcess(argv, 0, self.said) for node in NODES}


def test_where_no_node_can_tell_nobody_is_given_up(monkeypatch):
    monkeypatch.setattr("cluster.run.stall_watcher.LOOK_INTERVAL_S", 0.01)
    fleet, given_up = FakeFleet(), threading.Event()
    watch = StallWatch(fleet, "run", lambda line: None, timeout_s=0.09)
    watch.start(PLACES, given_up.set)
    try:
        deadline = time.monotonic() + 20
        while fleet.asked < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert watch.stall is None and not given_up.is_set()
        fleet.said = json.dumps({str(place.rank): WAITS for place in PLACES}).encode()
        assert given_up.wait(20) and watch.stall is not None
    finally:
        watch.end()


class HangingFleet:
    """Nodes with idle ranks, of which node2 does not answer until it is let go, and then says `late`."""

    def __init__(self, late=WAITS):
        self.nodes, self.let_go, self.asked = NODES, threading.Event(), []
        self._late = late

    def run(self, argv, *, nodes, **how):
        self.asked += nodes
        said = dict.fromkeys(nodes, WAITS)
        if "node2" in nodes:
            assert self.let_go.wait(60)
            said["node2"] = self._late
        ranks = {place.node: str(place.rank) for place in PLACES}
        answers = {node: json.dumps({ranks[node]: state}).encode() for node, state in said.items()}
        return {n: subprocess.CompletedProcess(argv, 0, answer) for n, answer in answers.items()}


@pytest.fixture
def hanging(monkeypatch):
    """A function that makes a fleet whose node2 hangs; it is let go in the end. Watchers look each 10 ms."""
    monkeypatch.setattr(stall_watcher, "LOOK_INTERVAL_S", 0.01)
    made = []

    def make(late=WAITS):
        made.append(HangingFleet(late))
        return made[-1]

    yield make
    for fleet in made:
        fleet.let_go.set()


def test_a_node_that_hangs_delays_no_stall(hanging, monkeypatch):
    """Nodes are waited for in looks, which count as idle time, and one that hangs is not asked again."""
    monkeypatch.setattr(stall_watcher, "FIRST_WORDS_S", 1.0)
    monkeypatch.setattr(stall_watcher, "ASK_PATIENCE_S", 0.8)
    fleet, given_up, said = hanging(), threading.Event(), []
    watch = StallWatch(fleet, "run", said.append, timeout_s=3.0)
    watch.start(PLACES, given_up.set)
    assert given_up.wait(40), "the stall is not found while a node hangs"
    assert said and watch.stall.seconds <= 4.0
    assert watch.stall.lines[1] == "rank 1 on node2: its node reports no state"
    assert "it waits (S)" in watch.stall.lines[0] and "it waits (S)" in watch.stall.lines[2]
    assert fleet.asked.count("node2") == 1 and fleet.asked.count("node1") > 1


def test_an_answer_that_comes_too_late_counts_with_the_next_ones(hanging):
    """Otherwise nobody would see a rank compute on a node that is always slow to answer."""
    fleet, looks = hanging(WAITS | {"state": "R"}), []
    questions = stall_watcher.Questions(fleet, "run")
    first = questions.ask(PLACES, 0.5, lambda: looks.append(1))
    assert [state and state.state for state in first.values()] == ["S", None, "S"]
    assert len(looks) == 50
    fleet.let_go.set()
    deadline = time.monotonic() + 20
    while "node2" not in questions._said:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    fleet.let_go.clear()
    again = questions.ask(PLACES, 0.5, lambda: None)
    assert [state and state.state for state in again.values()] == ["S", "R", "S"]
    assert questions.ask(PLACES, 0.5, lambda: None)[PLACES[1]] is None


def test_who_is_stopped_is_known_though_a_node_hangs(hanging, monkeypatch):
    monkeypatch.setattr(stall_watcher, "ASK_PATIENCE_S", 0.5)
    monkeypatch.setitem(WAITS, "state", "T")
    watch = StallWatch(hanging(), "run", lambda line: None)
    watch._running = set(PLACES)
    assert set(watch.stopped()) == {PLACES[0], PLACES[2]}


def test_a_node_that_says_too_much_is_not_repeated_to_the_user():
    many = {f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}": n for n in range(10**5)}
    found = stall({"unread": many, "unsent": many}, {}, {})
    assert len(found.words()) < 2000
    assert "99,999 bytes of 10.1.134.159" in found.why
    assert found.why.endswith("and of 99,995 more")
    assert stall({"unread": {"10.0.0.9": 5}}, {}, {}).why == "it does not read 5 bytes of 10.0.0.9"


def test_an_answer_that_is_too_long_is_not_read(monkeypatch):
    answer = json.dumps({"0": WAITS}).encode()
    read = stall_watcher._read_states
    assert read(PLACES[:1], {"node1": answer})[PLACES[0]] == read_state(WAITS)
    monkeypatch.setattr(stall_watcher, "MOST_ANSWER_BYTES", len(answer) - 1)
    assert read(PLACES[:1], {"node1": answer})[PLACES[0]] is None


def test_a_collective_that_is_done_is_noted_and_one_among_some_ranks_counts_for_none():
    ledger = Ledger()
    for kind in ("all_reduce", "exchange"):
        entry = ledger.begin(Flow(kind, 8, 1, {1: 8}), "train")
    os.lseek(ledger._note._file, 0, 0)
    assert os.read(ledger._note._file, 200).split()[:3] == [b"1", b"2", b"exchange"]
    ledger.end(entry, 0.0, hidden=False)
    assert os.pread(ledger._note._file, 200, 0).split()[:2] == [b"1", b"1"]


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGSTOP])
def test_where_a_rank_is_python_says_itself_and_ends_and_other_programs_are_left_alone(number):
    code = "import time\ndef wait():\n    print('ready', flush=True)\n    time.sleep(60)\nwait()"
    run = f"run-{os.getpid()}"
    environ = os.environ | {"TORCHELASTIC_RUN_ID": run, "RANK": "0", "PYTHONFAULTHANDLER": "1"}
    rank = subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    other = subprocess.Popen(["sleep", "60"], env=environ | {"RANK": "1"})
    try:
        rank.stdout.readline()
        rank.send_signal(number)
        for action in ("hold", "end"):
            argv = [sys.executable, "-m", "node.supervisor.stacks", action, run]
            subprocess.run(argv, cwd=PROJECT_DIR, check=True)
        said = rank.communicate(timeout=10)[1].decode()
        assert "(most recent call first)" in said
        assert re.search(r"line [34] in wait", said)
        assert (rank.returncode, other.poll()) == (-signal.SIGABRT, None)
    finally:
        for process in (rank, other):
            process.kill()
            process.wait()


def test_a_run_is_ended_after_as_long_as_a_collective_may_take_unless_somebody_says_otherwise():
    program = Program("fedavg", ("python3", "-m", "node.train"), config={"strategy": "fedavg"})
    slow = make_link_spec("mobile", "full", 1, "nfqueue").links(NODES)
    slow = tuple(link._replace(rate_mbyte_s=0.05) for link in slow)
    state = planned_link_state(link_plans(NODES, make_link_spec("mobile", "full", 1, "nfqueue")))
    job = Job(ClusterSpec(size=3), program, PLACES, state, (), True, 1)
    assert job.stalled_after_s == job.silence_s >= 60
    on_slow = replace(job, link_state=replace(state, links=slow))
    assert on_slow.stalled_after_s == on_slow.silence_s > 600
    own = replace(job, program=Program("job", ("python3", "job.py")))
    assert own.stalled_after_s == 600
    for asked, wanted in (("9s", 9), ("none", None)):
        asked_s = parse_stall_timeout_s(asked)
        assert replace(own, stall_timeout_s=asked_s).stalled_after_s == wanted


@pytest.mark.parametrize(
    ("stall_timeout_s", "timeout_s"),
    [(None, 1800), (9.0, 1800), (7200.0, 7200), (NEVER_S, 7 * 86400), (1e9, 7 * 86400)],
)
def test_a_rank_waits_for_others_that_compute_longer_than_a_stall_lasts(stall_timeout_s, timeout_s):
    """Gloo counts from when this rank comes to a collective: others may still have an hour to compute."""
    program = Program("diloco", ("python3", "-m", "node.train"), config={"strategy": "diloco"})
    state = planned_link_state(link_plans(NODES, make_link_spec("local", "full", 1, "nfqueue")))
    job = Job(ClusterSpec(size=3), program, PLACES, state, (), NONE, 1)
    job = replace(job, stall_timeout_s=stall_timeout_s)
    environs = [order.env for order in job.orders("run").values()]
    assert {float(env["GRADWIRE_TIMEOUT_S"]) for env in environs} == {timeout_s}
    assert {float(env["GRADWIRE_SILENCE_S"]) for env in environs} == {60}
