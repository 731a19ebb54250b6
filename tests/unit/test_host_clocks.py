"""Nodes on several hosts whose clocks differ: what is measured of that, and that reports are right nevertheless."""

import json
import subprocess
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from books import line
from run_folders import make_run

from cluster.accounting.clocks import HostClock, read_clocks
from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.metrics import last_lines, read_events
from cluster.accounting.summary import _receipts
from cluster.base.errors import NodeError
from cluster.base.spec import ClusterSpec
from cluster.reporting.read_run import read_run
from cluster.run import runner
from cluster.run.host_clocks import ROUNDS, measure_clocks
from cluster.run.rank_exit import RankExit
from cluster.run.rank_placement import place_ranks
from cluster.run.run_folder import write_clocks
from protocol.rank import LOST

BEGAN = 1_700_000_000.0
APART = [0.0, 0.5, 30.0, -30.0, 1e9]


def write_lines(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))


def two_equal_ranks(folder, ahead_s):
    """Write what two ranks on two hosts leave of one collective of 5 s; node2's clock is ahead by so much."""
    for rank, off_s in enumerate((0.0, ahead_s)):
        metrics = folder / "metrics" / f"node{rank + 1}.jsonl"
        one = line("all_reduce", {1 - rank: 1000}, at=BEGAN + off_s, done_s=5.0)
        write_lines(metrics.with_suffix(".collectives.jsonl"), [one])
        start = {"event": "start", "rank": rank, "time": BEGAN + off_s}
        write_lines(metrics, [start, start | {"event": "end", "time": BEGAN + off_s + 6}])


def write_two_clocks(folder, ahead_s, error_s=0.004):
    write_clocks(folder, {"node1": HostClock(0.001, 0.002), "node2": HostClock(ahead_s, error_s)})


@pytest.mark.parametrize("ahead_s", APART)
def test_equal_ranks_transfer_equally_long_whatever_their_hosts_clocks(tmp_path, ahead_s):
    two_equal_ranks(tmp_path, ahead_s)
    write_two_clocks(tmp_path, ahead_s)
    [one] = read_collectives(tmp_path, ["node1", "node2"])
    assert [one.transfer_s(part) for part in one.parts] == pytest.approx([5.0, 5.0], abs=0.01)
    assert [one.waiting_s(part) for part in one.parts] == pytest.approx([0.0, 0.0], abs=0.01)


@pytest.mark.parametrize("ahead_s", APART)
def test_ranks_lines_are_on_one_clock(tmp_path, ahead_s):
    two_equal_ranks(tmp_path, ahead_s)
    write_two_clocks(tmp_path, ahead_s)
    (tmp_path / "metrics" / "node2.jsonl").rename(tmp_path / "metrics" / "node2-1.jsonl")
    times = [one.time for one in read_events(tmp_path / "metrics" / "node2-1.jsonl")]
    assert times == pytest.approx([BEGAN, BEGAN + 6], abs=0.01)
    assert last_lines(tmp_path / "metrics" / "node2-1.jsonl").end.time == pytest.approx(BEGAN + 6)


def test_weights_arrive_later_than_the_learner_on_another_host_published_them(tmp_path):
    """The time of publication in an actor's line is by the learner's clock, that of the arrival by its own."""
    write_clocks(tmp_path, {"node1": HostClock(20.0, 0.01), "node2": HostClock(-10.0, 0.01)})
    arrival = {"event": "weights", "rank": 1, "step": 1, "version": 1, "source": 0, "bytes": 9}
    arrival |= {"waited": True, "published_at_s": BEGAN + 20, "received_at_s": BEGAN - 10 + 2}
    write_lines(tmp_path / "metrics" / "node2.jsonl", [arrival | {"time": BEGAN - 8}])
    ends = {"node1": SimpleNamespace(experience=SimpleNamespace(pull_every=0)), "node2": None}
    receipt = _receipts(tmp_path, ["node1", "node2"], ends)[1][1]
    assert (receipt.published_at_s, receipt.received_at_s) == (BEGAN, BEGAN + 2)


def test_clocks_that_agree_as_far_as_one_can_tell_are_left_alone(tmp_path):
    two_equal_ranks(tmp_path, 0.0)
    write_two_clocks(tmp_path, 0.05, error_s=0.06)
    assert [one.time for one in read_events(tmp_path / "metrics" / "node2.jsonl")][0] == BEGAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"node1": 3}',
        '{"node1": {"ahead_s": NaN, "error_s": 1}}',
        '{"node1": {"ahead_s": 1e30, "error_s": 1}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_of_clocks_corrects_nothing(tmp_path, text):
    two_equal_ranks(tmp_path, 0.0)
    (tmp_path / "clocks.json").write_text(text)
    assert read_clocks(tmp_path) == {}
    assert [one.time for one in read_events(tmp_path / "metrics" / "node2.jsonl")][0] == BEGAN


def test_a_run_without_measured_clocks_is_read_as_it_is(tmp_path):
    two_equal_ranks(tmp_path, 30.0)
    assert not (tmp_path / "clocks.json").exists()
    write_clocks(tmp_path, {})
    assert not (tmp_path / "clocks.json").exists()
    assert [one.time for one in read_events(tmp_path / "metrics" / "node2.jsonl")][0] == BEGAN + 30


def several_machines(folder):
    make_run(folder)
    with (folder / "run.yml").open("a") as config:
        config.write("node_hosts: {node1: west, node2: east, node3: west}\n")
    return folder


def notes_on_clocks(folder):
    return [note for note in read_run(folder).notes if "several machines" in note]


def test_a_report_says_how_far_clocks_were_apart_and_how_exact_it_is(tmp_path):
    west, folder = HostClock(-10.0, 0.001), several_machines(tmp_path / "run")
    write_clocks(folder, {"node1": west, "node2": HostClock(20.0, 0.002), "node3": west})
    [note] = notes_on_clocks(folder)
    assert "differed by up to 30 s" in note and "corrected to within 0.003 s" in note


def test_a_report_says_how_well_clocks_agreed(tmp_path):
    west, folder = HostClock(-0.001, 0.002), several_machines(tmp_path / "run")
    write_clocks(folder, {"node1": west, "node2": HostClock(0.0, 0.003), "node3": west})
    [note] = notes_on_clocks(folder)
    assert "agreed to within 0.006 s" in note and "corrected" not in note


def test_if_one_hosts_clock_is_unknown_the_report_does_not_claim_to_be_exact(tmp_path):
    folder = several_machines(tmp_path / "run")
    write_clocks(folder, {"node1": HostClock(1.0, 0.1), "node3": HostClock(1.0, 0.1)})
    [note] = notes_on_clocks(folder)
    assert note.endswith("only as exact as the clocks of these")


def test_what_links_carried_is_shown_when_it_was_carried(tmp_path):
    """links.csv has each node's times by its own clock, too."""
    plain = read_run(make_run(tmp_path / "plain")).stretches
    folder = make_run(tmp_path / "apart")
    path = folder / "links.csv"
    rows = [row.partition(",") for row in path.read_text().splitlines()]
    moved = [
        f"{float(at) + 30:.3f},{rest}" if rest.startswith("node2->") else f"{at},{rest}"
        for at, _, rest in rows
    ]
    path.write_text("\n".join(moved) + "\n")
    for name in ("node2.jsonl", "node2.collectives.jsonl"):
        metrics = folder / "metrics" / name
        lines = [json.loads(text) for text in metrics.read_text().splitlines()]
        write_lines(metrics, [one | {"time": one["time"] + 30} for one in lines])
    write_clocks(folder, {"node2": HostClock(30.0, 0.001)})
    found = read_run(folder).stretches
    assert found.keys() == plain.keys() and "node2->node3" in found
    starts = [[one.start_s for one in some["node2->node3"]] for some in (found, plain)]
    assert starts[0] == pytest.approx(starts[1], abs=0.01)


class Process:
    """A command on a node: answers lines with the time of a clock that is ahead by so many seconds, or otherwise."""

    def __init__(self, answers):
        self.answers, self.closed, self.patience_s = iter(answers), 0, 0.0

    def write(self, data):
        assert data == b"\n"

    def lines(self):
        for answer in self.answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer if isinstance(answer, str) else str(time.time() + answer)

    def close(self):
        self.closed += 1


class Fleet:
    """One process on each node, with these answers."""

    def __init__(self, answers):
        self.processes = {node: Process(some) for node, some in answers.items()}

    def start(self, node, argv):
        return self.processes[node]


def test_one_node_of_each_host_is_asked_and_all_of_it_have_its_clock():
    fleet = Fleet({"node3": [30.0] * ROUNDS, "node2": [-0.5] * ROUNDS})
    hosts = {"node1": "host west", "node2": "host east", "node3": "host west"}
    clocks = measure_clocks(fleet, hosts)
    assert clocks.keys() == hosts.keys() and clocks["node1"] == clocks["node3"]
    for node, ahead_s in (("node1", 30.0), ("node2", -0.5)):
        found = clocks[node]
        assert found.error_s >= 0 and abs(found.ahead_s - ahead_s) <= found.error_s + 1e-3
    assert all(process.closed for process in fleet.processes.values())


def test_the_quickest_answer_counts(monkeypatch):
    """Of round trips of 4, 0.2 and 2 s, here on a clock that only the answers move."""
    now = SimpleNamespace(s=BEGAN)
    fake = SimpleNamespace(time=lambda: now.s, monotonic=lambda: now.s)
    monkeypatch.setattr("cluster.run.host_clocks.time", fake)

    class Slow(Process):
        def lines(self):
            for there_s, back_s in [(3.0, 1.0), (0.1, 0.1), (0.0, 2.0)]:
                now.s += there_s
                told = now.s + 30
                now.s += back_s
                yield str(told)

    fleet = Fleet({})
    fleet.processes["node1"] = Slow([])
    found = measure_clocks(fleet, {"node1": "host west"})["node1"]
    assert (found.ahead_s, found.error_s) == pytest.approx((30.0, 0.1))


@pytest.mark.parametrize(
    "answers",
    [[], [""], ["nan"], ["inf"], ["1e300"], ["soon"], ["9" * 5000], [NodeError("a hang", {})]],
)
def test_a_node_that_answers_otherwise_leaves_its_hosts_clock_unknown(answers):
    fleet = Fleet({"node1": answers, "node2": [3.0] * ROUNDS})
    clocks = measure_clocks(fleet, {"node1": "host west", "node2": "host east"})
    assert clocks.keys() == {"node2"}
    assert fleet.processes["node1"].closed


def test_a_node_that_cannot_be_reached_leaves_its_hosts_clock_unknown():
    class Gone(Fleet):
        def start(self, node, argv):
            raise NodeError("no connection", {node: "SSH is closed"})

    assert measure_clocks(Gone({}), {"node1": "host west"}) == {}
    assert measure_clocks(Gone({}), {}) == {}


def test_a_real_process_tells_the_time_of_this_machine():
    class Real(Process):
        def __init__(self, argv):
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe)

        def write(self, data):
            self.process.stdin.write(data)
            self.process.stdin.flush()

        def lines(self):
            return (text.decode() for text in self.process.stdout)

        def close(self):
            self.process.communicate()

    fleet = SimpleNamespace(start=lambda node, argv: Real(argv))
    found = measure_clocks(fleet, {"node1": "host west"})["node1"]
    assert abs(found.ahead_s) <= found.error_s + 1e-3


def started_at(unix):
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")


class Engine:
    """The engine of a host whose node2 was started at this time by the host's own clock."""

    where = "host east"

    def __init__(self, started):
        self.state = {"Running": True, "StartedAt": started_at(started)}

    def parts(self, spec):
        return [(self, ["node2"])]

    def containers(self, name):
        return [SimpleNamespace(node="node2", id="id2")]

    def inspect(self, _):
        settings = {"Networks": {"data": {}}}
        return {"Name": "/gradwire-node2", "State": self.state, "NetworkSettings": settings}


@pytest.mark.parametrize("ahead_s", [0.0, 30.0, -30.0])
@pytest.mark.parametrize(("started_s", "again"), [(-20.0, False), (20.0, True)])
def test_a_node_was_started_again_if_it_was_by_its_hosts_clock(ahead_s, started_s, again):
    fleet, job = SimpleNamespace(lost={}), SimpleNamespace(spec=ClusterSpec())
    ended = [RankExit(place_ranks(["node1", "node2"])[1], LOST, 0.0)]
    engine = Engine(BEGAN + ahead_s + started_s)
    clocks = {"node2": HostClock(ahead_s, 0.01)}
    fates = runner._fates(engine, fleet, job, ended, BEGAN, clocks)
    assert ("was started again" in fates["node2"]) == again


def test_clocks_are_measured_of_nodes_on_other_hosts_alone():
    fleet = Fleet({"node2": [30.0] * ROUNDS})
    parts = [(SimpleNamespace(where=""), ["node1"]), (SimpleNamespace(where="east"), ["node2"])]
    engine = SimpleNamespace(parts=lambda spec: parts)
    clocks = runner._clocks(engine, fleet, ClusterSpec())
    assert clocks.keys() == {"node2"}
