"""Ranks that are not essential: restarted if they fail, then the run continues without them. Uses fake nodes."""

import json
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cluster.accounting.summary import account
from cluster.base.console import Console, LinePrinter
from cluster.base.errors import NodeError, RunFailed
from cluster.base.spec import ClusterSpec
from cluster.cli.print_summary import print_summary
from cluster.run import ranks, runner, stall_watcher, verification
from cluster.run.rank_exit import RankExit
from cluster.run.rank_placement import place_ranks, rank_environment
from cluster.run.ranks import RankProcesses
from cluster.run.root_cause import raise_failure
from cluster.run.run_folder import last_events
from cluster.run.runner import Run
from cluster.run.staging import Staging
from cluster.run.stall_watcher import StallWatch
from cluster.shaping.link_state import make_link_state
from protocol.link_report import LinkCounters
from protocol.rank import EXIT_BUSY, LOST, StartOrder

NODES = ["node1", "node2", "node3"]
PLACES = place_ranks(NODES, essential=[0])
KILLED = json.dumps({"exit_code": -9, "time": 0.0, "reported": time.time()})
ENDS_WELL = json.dumps({"exit_code": 0, "time": 0.0, "reported": time.time()})
GIVES_UP = json.dumps(
    {
        "exit_code": 1,
        "time": 0.0,
        "reported": time.time(),
        "error": "Connection closed",
        "bystander": True,
    }
)
BUSY = "busy with run another"


class Life:
    """One start of one rank: its final report, its exit code, and the event that it waits for before it ends."""

    def __init__(self, report=None, exit_code=0, after=None):
        self.report, self.exit_code, self.after = report, exit_code, after
        self.order, self.is_told = None, threading.Event()

    def write(self, line):
        self.order = json.loads(line)

    def close_stdin(self):
        self.is_told.set()

    def lines(self):
        yield f"life {self.order['env']['TORCHELASTIC_RESTART_COUNT']}"
        while self.report is None or (self.after and not self.after.is_set()):
            if self.is_told.wait(0.01):
                self.report = json.dumps(
                    {"exit_code": -15, "time": time.time() + 1, "reported": time.time()}
                )
                return

    def wait(self):
        return self.exit_code, self.report.encode()


class Nodes:
    """A fake fleet whose nodes start these lives in turn; a node with none left is unreachable."""

    def __init__(self, **lives):
        self.lives = {node: list(of_node) for node, of_node in lives.items()}
        self.begun = {node: [] for node in lives}
        self.lost, self.nodes = {}, ()

    def start(self, node, argv):
        if not self.lives[node]:
            raise NodeError("no connection", {node: "SSH is closed"})
        self.begun[node].append(self.lives[node].pop(0))
        return self.begun[node][-1]

    def run(self, argv, *, nodes, **options):
        return {node: SimpleNamespace(stdout=b"{}") for node in nodes}

    def counts(self, node):
        return [life.order["env"]["TORCHELASTIC_RESTART_COUNT"] for life in self.begun[node]]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(ranks, "RESTART_DELAYS_S", (0.01,))
    monkeypatch.setattr(ranks, "LAST_ENDS_S", 0.1)
    monkeypatch.setattr(ranks, "LAST_WORDS_S", 0.2)


@pytest.fixture
def said():
    """The messages to the user."""
    return []


@pytest.fixture
def begin(tmp_path, said):
    """A function that starts the ranks of a run on fake nodes."""

    def begin(nodes, places=PLACES, max_restarts=3):
        orders = {
            place: StartOrder(
                run="run",
                argv=["true"],
                cwd="/root",
                run_dir="/run",
                env=rank_environment(
                    place, places, (), "run", "/run", 60, silence_s=60, max_restarts=max_restarts
                ),
            )
            for place in places
        }
        watch = StallWatch(nodes, "run", said.append)
        printer = LinePrinter([place.name for place in places], sys.stdout)
        return RankProcesses(nodes, orders, tmp_path, printer, watch, said.append, max_restarts)

    return begin


def codes(ended):
    return [end.exit_code for end in ended]


def goes_on_until(condition):
    """A life of the essential rank that ends well once the condition holds."""
    done = threading.Event()

    def look():
        deadline = time.monotonic() + 5
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        done.set()  # past the deadline the test fails instead of hanging

    threading.Thread(target=look, daemon=True).start()
    return Life(ENDS_WELL, after=done)


def test_a_rank_that_fails_is_started_again_and_told_how_often(begin, said, tmp_path):
    nodes = Nodes(node1=[], node2=[Life(ENDS_WELL)], node3=[Life(KILLED, 137), Life(ENDS_WELL)])
    nodes.lives["node1"] = [goes_on_until(lambda: len(nodes.begun["node3"]) == 2)]
    begun = begin(nodes)
    ended = begun.wait()
    assert (codes(ended), [end.restarts for end in ended]) == ([0, 0, 0], [0, 0, 1])
    line = "rank 2 on node3 was killed by SIGKILL; started again (1 of 3)"
    assert said == [line]
    assert (tmp_path / "node3.log").read_text().splitlines() == ["life 0", line, "life 1"]
    first, second = (life.order for life in nodes.begun["node3"])
    assert first["env"]["TORCHELASTIC_MAX_RESTARTS"] == "3"
    assert nodes.begun["node1"][0].order["env"]["TORCHELASTIC_MAX_RESTARTS"] == "0"
    differing = {"env": first["env"] | {"TORCHELASTIC_RESTART_COUNT": "1"}}
    assert second == first | differing
    assert raise_failure(tmp_path, ended, {}, None, (), (), {}) is None


@pytest.mark.parametrize("broken", ["start", "order"])
def test_ranks_are_stopped_if_not_all_can_be_started(begin, broken):
    nodes = Nodes(node1=[Life()], node2=[Life()], node3=[Life()] if broken == "order" else [])
    for node in nodes.lives.values():
        for life in node:
            life.waited = threading.Event()
            life.wait = life.waited.set
    if broken == "order":
        nodes.lives["node3"][0].write = interrupt
    with pytest.raises(KeyboardInterrupt if broken == "order" else NodeError):
        begin(nodes)
    lives = [life for of_node in nodes.begun.values() for life in of_node]
    assert len(lives) >= 2
    assert all(life.is_told.is_set() and life.waited.is_set() for life in lives)


def interrupt(line):
    raise KeyboardInterrupt


def test_after_its_last_restart_the_run_goes_on_without_it(begin, said):
    nodes = Nodes(node1=[], node2=[Life(KILLED, 137) for _ in range(9)], node3=[Life(ENDS_WELL)])
    nodes.lives["node1"] = [goes_on_until(lambda: "without it" in str(said))]
    begun = begin(nodes, max_restarts=2)
    ended = begun.wait()
    assert nodes.counts("node2") == ["0", "1", "2"]
    assert (codes(ended), ended[1].restarts) == ([0, -9, 0], 2)
    how = "rank 1 on node2 was killed by SIGKILL"
    assert said == [
        f"{how}; started again (1 of 2)",
        f"{how}; started again (2 of 2)",
        f"{how}; the run goes on without it",
    ]


def test_an_essential_rank_that_fails_ends_all_and_is_the_root_cause(begin, tmp_path):
    nodes = Nodes(node1=[], node2=[Life(KILLED, 137), Life()], node3=[Life()])
    after = threading.Event()
    nodes.lives["node1"] = [
        Life(json.dumps({"exit_code": 1, "time": 5.0, "reported": time.time()}), 1, after)
    ]
    begun = begin(nodes)
    while len(nodes.begun["node2"]) < 2:
        time.sleep(0.01)
    after.set()
    ended = begun.wait()
    assert codes(ended) == [1, -15, -15]
    assert nodes.counts("node1") == ["0"]
    with pytest.raises(RunFailed, match="rank 0 on node1 ended with exit code 1: the root cause"):
        raise_failure(tmp_path, ended, {}, None, (), (), {})


def test_where_the_essential_ones_are_done_the_others_are_stopped_after_a_while(
    begin, said, tmp_path
):
    nodes = Nodes(node1=[Life(ENDS_WELL)], node2=[Life()], node3=[Life()])
    begun = begin(nodes)
    ended = begun.wait()
    assert codes(ended) == [0, -15, -15]
    assert said[-1].endswith("stopped, as they have not ended in 0 s: node2, node3")
    assert raise_failure(tmp_path, ended, {}, None, (), (), {}) is None


def test_what_fails_as_the_run_is_done_is_neither_told_nor_started_again(begin, said, monkeypatch):
    """Its connection to the essential rank has closed, as expected at the end, which ends the wait at once."""
    monkeypatch.setattr(ranks, "LAST_WORDS_S", 20)
    nodes = Nodes(node1=[], node2=[Life(GIVES_UP, 1), Life()], node3=[Life(ENDS_WELL)])
    nodes.lives["node1"] = [goes_on_until(lambda: nodes.begun["node2"])]
    begun = begin(nodes)
    assert codes(begun.wait()) == [0, 1, 0]
    assert (said, nodes.counts("node2")) == ([], ["0"])


def test_one_whose_connection_closes_while_the_run_goes_on_is_started_again(begin, said):
    nodes = Nodes(node1=[], node2=[Life(GIVES_UP, 1), Life(ENDS_WELL)], node3=[Life(ENDS_WELL)])
    nodes.lives["node1"] = [goes_on_until(lambda: len(nodes.begun["node2"]) == 2)]
    begun = begin(nodes)
    begun.wait()
    assert said == [
        "rank 1 on node2 ended with exit code 1 (Connection closed); started again (1 of 3)"
    ]


@pytest.mark.parametrize("how", ["at once", "before its restart"])
def test_a_lost_rank_is_not_started_again(begin, said, how):
    lives = [Life("", LOST)] if how == "at once" else [Life(KILLED, 137)]
    nodes = Nodes(node1=[], node2=lives, node3=[Life(ENDS_WELL)])
    nodes.lives["node1"] = [goes_on_until(lambda: "without it" in str(said))]
    begun = begin(nodes)
    assert codes(begun.wait()) == [0, LOST, 0]
    assert said[-1] == "rank 1 on node2 was lost (its connection broke); the run goes on without it"
    assert nodes.counts("node2") == ["0"]


def test_a_node_that_another_run_took_meanwhile_is_done_without(begin, said):
    nodes = Nodes(
        node1=[], node2=[Life(KILLED, 137), Life(BUSY, EXIT_BUSY)], node3=[Life(ENDS_WELL)]
    )
    nodes.lives["node1"] = [goes_on_until(lambda: len(said) == 2)]
    begun = begin(nodes)
    assert codes(begun.wait()) == [0, EXIT_BUSY, 0]
    assert said[1] == f"rank 1 on node2 was refused ({BUSY}); the run goes on without it"


def test_a_node_that_another_run_has_refuses_the_whole_run(begin, said):
    nodes = Nodes(node1=[Life()], node2=[Life(BUSY, EXIT_BUSY)], node3=[Life()])
    begun = begin(nodes)
    with pytest.raises(NodeError, match="the cluster is in use") as refused:
        begun.wait()
    assert (refused.value.outcomes, said) == ({"node2": BUSY}, [])
    assert nodes.begun["node1"][0].is_told.is_set()


def test_an_interrupt_while_a_restart_is_due_starts_nothing_any_more(begin, said, monkeypatch):
    monkeypatch.setattr(ranks, "RESTART_DELAYS_S", (30.0,))
    nodes = Nodes(node1=[Life()], node2=[Life(KILLED, 137), Life()], node3=[Life()])
    begun = begin(nodes)

    def interrupt(ended):
        while not said:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(begun, "_wait_essential", interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        begun.wait()
    assert time.monotonic() - started < 5
    assert nodes.counts("node2") == ["0"]
    assert all(nodes.begun[node][0].is_told.is_set() for node in ("node1", "node3"))


def test_a_rank_that_is_started_as_the_run_is_stopped_is_stopped_too(begin):
    """Its process does not exist yet when all are told to stop."""
    nodes = Nodes(node1=[Life()], node2=[Life(KILLED, 137), Life()], node3=[Life()])
    start, is_starting, may_start = nodes.start, threading.Event(), threading.Event()

    def start_slowly(node, argv):
        if nodes.begun[node]:
            is_starting.set()
            may_start.wait(5)
        return start(node, argv)

    nodes.start = start_slowly
    begun = begin(nodes)
    assert is_starting.wait(5)
    begun.stop()
    threading.Timer(0.3, may_start.set).start()
    assert begun.wait()[1].exit_code == -15


def test_without_essential_ranks_named_any_failure_ends_the_run(begin, said):
    nodes = Nodes(node1=[Life()], node2=[Life(KILLED, 137)], node3=[Life()])
    begun = begin(nodes, place_ranks(NODES), max_restarts=0)
    assert codes(begun.wait()) == [-15, -9, -15]
    assert said == []


def test_results_of_a_lost_node_are_lacked_only_where_an_essential_rank_ran():
    lost = Staging(lost={"node1", "node3"}, not_fetched=dict.fromkeys(NODES, "gone"))
    assert lost.missing(PLACES) == ["node1", "node2"]  # node2 is reachable: they could be fetched
    assert lost.missing(place_ranks(NODES)) == NODES


def test_why_results_are_missing_is_said_once_for_all_nodes_with_that_reason():
    full = "no room on this machine's disk"
    staging = Staging(not_fetched={"node1": full, "node2": "some files are missing", "node3": full})
    assert staging.reasons(NODES) == f"node1, node3 ({full}); node2 (some files are missing)"


def test_a_run_is_done_although_a_node_was_lost_that_it_did_not_need(monkeypatch, tmp_path, capsys):
    """Its counters are gone; what the other nodes report about links and host is kept."""
    asked = []

    def read(fleet, spec, nodes):
        asked.extend(nodes)
        return make_link_state({}, {}, {"node1": {"node3": LinkCounters(5 * 10**6, 0, 0, 0, 0)}})

    monkeypatch.setattr(verification, "read_cluster_links", read)
    fleet = SimpleNamespace(nodes=[SimpleNamespace(name=node) for node in NODES], hosts={})
    state = make_link_state({}, {}, {})
    job = SimpleNamespace(spec=ClusterSpec(), link_state=state, places=PLACES, schedule=())
    prover = SimpleNamespace(fleet=fleet)
    ended = [RankExit(place, code, 1.0) for place, code in zip(PLACES, (0, -9, LOST), strict=True)]
    ended[1] = replace(ended[1], restarts=3)
    staging = Staging(ended, lost={"node3"}, not_fetched={"node3": "the connection broke"})
    summary = runner._collect(prover, job, tmp_path, staging, 1.0, None, Console())
    assert (summary["status"], asked) == ("done", ["node1", "node2"])
    assert summary["exit_codes"] == {"node1": 0, "node2": -9, "node3": LOST}
    assert (summary["restarts"], list(summary["not_fetched"])) == ({"node2": 3}, ["node3"])
    assert summary["bytes"]["links"] == {"node1->node3": 5 * 10**6}
    print_summary(Run(tmp_path, summary))
    said = capsys.readouterr().out
    assert "lost" in said and "restarts: node2 3\n" in said
    staging.ended[0] = replace(ended[0], exit_code=1)
    failed = runner._collect(prover, job, tmp_path, staging, 1.0, None, Console())
    assert failed["status"] == "failed"


def test_the_accounts_do_without_the_last_lines_of_ranks_that_were_killed(tmp_path):
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    seconds = {"startup": 1.0, "compute": 2.0, "comm": 0.5, "total": 3.5}
    end = {"event": "end", "rank": 0, "time": 9.0, "seconds": seconds, "collectives": []}
    start = {"event": "start", "rank": 1, "time": 1.0, "link_bytes": {}}
    (metrics / "node1.jsonl").write_text(f"{json.dumps(end)}\n")
    (metrics / "node2.jsonl").write_text(f"{json.dumps(start)}\n{json.dumps(start)[:20]}")
    told = {node: last_events(tmp_path, node) for node in NODES}
    state = make_link_state({}, {}, {})
    accounts = account(tmp_path, told, NODES, [], state, {}, None, changing=False, throttled_s={})
    assert accounts["seconds"] == {
        "node1": {"startup": 1.0, "compute": 2.0, "transfer": 0.5, "waiting": 0.0, "total": 3.5}
    }
    assert accounts["bytes"]["loop"] is None


def test_while_a_restart_is_due_nothing_stalls_and_a_restarted_rank_is_watched_again(monkeypatch):
    monkeypatch.setattr(stall_watcher, "LOOK_INTERVAL_S", 0.01)
    asked, given_up = [], threading.Event()

    class Idle(Nodes):
        def run(self, argv, *, nodes, **options):
            asked.append(nodes)
            state = {"state": "S", "cpu_s": 1.0, "bytes": 0, "unread": {}, "unsent": {}}
            said = json.dumps(dict.fromkeys("012", state | {"collective": ""})).encode()
            return {node: SimpleNamespace(stdout=said) for node in nodes}

    watch = StallWatch(Idle(), "run", lambda text: None, timeout_s=0.1)
    watch.start(PLACES[:2], given_up.set)
    watch.await_restart(PLACES[1])
    assert not given_up.wait(0.4)
    watch.watch_again(PLACES[1])
    assert given_up.wait(5)
    assert {node for nodes in asked[-2:] for node in nodes} == {"node1", "node2"}
    assert watch.stall.place is None
