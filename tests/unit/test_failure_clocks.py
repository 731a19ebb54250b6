"""Which rank failed first, where a node's clock is not ours: on fake nodes of this and of other hosts."""

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.base.console import LinePrinter
from cluster.base.errors import RunFailed
from cluster.run.rank_placement import place_ranks, rank_environment
from cluster.run.ranks import RankProcesses
from cluster.run.root_cause import raise_failure
from cluster.run.stall_watcher import StallWatch
from protocol.rank import StartOrder

NODES = ["node1", "node2"]
PLACES = place_ranks(NODES)
HERE = Path("/proc/sys/kernel/random/boot_id").read_text()


class Rank:
    """A rank on a node whose clock is behind ours.

    Fails by itself `fails_at` seconds after its start, or right `after` another, or else once told to; its report comes
    `late_s` seconds later.
    """

    def __init__(self, *, fails_at=None, code=1, behind_s=0.0, late_s=0.05, after=None):
        self.fails_at, self.code, self.behind_s, self.late_s = fails_at, code, behind_s, late_s
        self.is_told, self.report = threading.Event(), ""
        self.after, self.has_failed = after, threading.Event()

    def write(self, line):
        pass

    def close_stdin(self):
        self.is_told.set()

    def lines(self):
        if self.after is not None:
            self.after.has_failed.wait()
        code = -15 if self.is_told.wait(self.fails_at) else self.code
        now = time.time() - self.behind_s
        self.has_failed.set()
        self.report = json.dumps({"exit_code": code, "time": now, "reported": now + 0.01})
        time.sleep(self.late_s)
        return iter(())

    def wait(self):
        return 1, self.report.encode()


class Fleet:
    """Nodes with these ranks; each says of which boot its machine's clock is."""

    def __init__(self, ranks, boots):
        self.ranks, self.boots, self.lost, self.nodes = ranks, boots, {}, ()

    def start(self, node, argv):
        return self.ranks[node]

    def run(self, argv, *, nodes, **options):
        said = self.boots if "boot_id" in argv[-1] else dict.fromkeys(nodes, "{}")
        return {node: SimpleNamespace(stdout=said[node].encode()) for node in nodes}


@pytest.fixture
def said_of(tmp_path):
    """A function that runs two ranks, the second on another machine or on this one, and returns what is said."""

    def run(first, second, boot):
        fleet = Fleet({"node1": first, "node2": second}, {"node1": HERE, "node2": boot})
        orders = {
            place: StartOrder(
                "run",
                ["true"],
                "/root",
                "/run",
                rank_environment(place, PLACES, (), "run", "/run", 60, silence_s=60),
            )
            for place in PLACES
        }
        watch = StallWatch(fleet, "run", lambda words: None)
        printer = LinePrinter(NODES, sys.stdout)
        ended = RankProcesses(fleet, orders, tmp_path, printer, watch, lambda words: None).wait()
        with pytest.raises(RunFailed) as failed:
            raise_failure(tmp_path, ended, {}, None, (), (), {})
        return failed.value.message.splitlines()

    return run


@pytest.mark.parametrize("behind_s", [-4.0, -0.2, 0.5, 1.0, 4.0, 30.0])
def test_a_rank_that_we_stopped_is_not_the_root_cause_although_its_clock_is_behind(
    said_of, behind_s
):
    first, *more = said_of(Rank(fails_at=0.1), Rank(behind_s=behind_s), "another boot\n")
    assert first.startswith("rank 0 on node1 ended with exit code 1: the root cause")
    assert more[-1] == "  the others: node2 was stopped"


@pytest.mark.parametrize("behind_s", [-4.0, 0.0, 4.0])
def test_a_rank_elsewhere_that_failed_first_is_the_root_cause(said_of, behind_s):
    second = Rank(fails_at=0.1, code=3, behind_s=behind_s)
    first, *_ = said_of(Rank(), second, "another boot\n")
    assert first.startswith("rank 1 on node2 ended with exit code 3: the root cause")


def test_on_this_machine_the_time_of_a_failure_counts_and_not_when_we_heard_of_it(said_of):
    second = Rank(fails_at=0.1, code=3, late_s=0.5)
    first, *_ = said_of(Rank(fails_at=0.01, after=second), second, HERE)
    assert first.startswith("rank 1 on node2 ended with exit code 3: the root cause")
