"""Ranks that cannot be started, interrupts as ranks end, callbacks that fail, nodes that cannot say who uses them.

Uses fake nodes.
"""

import json
import queue
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from cluster.base.console import LinePrinter
from cluster.base.errors import NodeError
from cluster.run import ranks
from cluster.run.rank_placement import place_ranks
from cluster.run.ranks import RankProcesses, refuse_busy
from cluster.run.stall_watcher import StallWatch
from cluster.ssh.remote_process import Result
from protocol.rank import LOST, StartOrder

NODES = ["node1", "node2"]
PLACES = place_ranks(NODES)
ENDS_WELL = json.dumps({"exit_code": 0, "time": 0.0, "reported": time.time()})
FAILED = json.dumps({"exit_code": 1, "time": 0.0, "reported": time.time()})


class Supervisor:
    """A `node.rank` that ends when told to, once all of its output is read; a stubborn one only when it is closed.

    Before it ends, its rank saves for `saves_s` seconds.
    """

    def __init__(self, *, is_stubborn=False, is_refusing=False, saves_s=0.0):
        self.is_stubborn, self.is_refusing = is_stubborn, is_refusing
        self.saves_s = saves_s
        self.is_told, self.is_read, self.is_closed = (threading.Event() for _ in range(3))

    def write(self, line):
        if self.is_refusing:
            raise NodeError("the connection broke", {"node2": "gone"})

    def close_stdin(self):
        self.is_told.set()

    def lines(self):
        yield "begun"
        (self.is_closed if self.is_stubborn else self.is_told).wait(20)
        time.sleep(self.saves_s)
        yield "ended"
        self.is_read.set()

    def wait(self):
        assert self.is_read.wait(20)
        return 0, ENDS_WELL.encode()

    def close(self):
        self.is_closed.set()


class Failing(Supervisor):
    """A `node.rank` whose rank fails at once."""

    def lines(self):
        yield "begun"

    def wait(self):
        return 1, FAILED.encode()


@pytest.fixture
def begin(tmp_path):
    """A function that starts the ranks of a run on two nodes with these supervisors."""

    def begin(*supervisors, tell=lambda news: None):
        processes = dict(zip(NODES, supervisors, strict=True))
        fleet = SimpleNamespace(lost={}, nodes=(), start=lambda node, argv: processes[node])
        orders = {place: StartOrder("run", ["true"], "/root", "/run", {}) for place in PLACES}
        watch = StallWatch(fleet, "run", lambda words: None)
        printer = LinePrinter(NODES, sys.stdout)
        return RankProcesses(fleet, orders, tmp_path, printer, watch, lambda words: None, tell=tell)

    return begin


def within(seconds, action):
    """Call a function in a thread, and return the NodeError that it raised; the test fails if it takes longer."""
    raised = []

    def call():
        try:
            action()
        except NodeError as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it does not return"
    return raised


def test_a_rank_that_does_not_end_holds_a_start_that_failed_only_so_long(begin, monkeypatch):
    monkeypatch.setattr(ranks, "STOP_TIMEOUT_S", 0.3)
    stubborn, refusing = Supervisor(is_stubborn=True), Supervisor(is_refusing=True)
    (error,) = within(5, lambda: begin(stubborn, refusing))
    assert error.message.startswith("the connection broke")
    assert stubborn.is_told.is_set() and stubborn.is_closed.is_set()
    assert not refusing.is_closed.is_set()  # it has ended by itself


def test_the_output_of_ranks_whose_start_failed_is_read_as_they_would_block_otherwise(begin):
    talking, refusing = Supervisor(), Supervisor(is_refusing=True)
    assert len(within(10, lambda: begin(talking, refusing))) == 1
    assert talking.is_read.is_set()


def test_a_live_view_that_fails_does_not_hide_that_a_rank_has_ended(begin, monkeypatch):
    failures = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda failure: failures.put(failure.exc_type))

    def tell(news):
        raise ZeroDivisionError

    begun = begin(Supervisor(), Supervisor(), tell=tell)
    begun.stop()
    ended = []
    within(5, lambda: ended.extend(begun.wait()))
    assert [end.exit_code for end in ended] == [0, 0]
    assert [failures.get(timeout=5) for _ in NODES] == [ZeroDivisionError] * 2


def test_a_supervisor_that_says_too_much_counts_as_lost_with_the_reason(begin):
    words = "`python3 -m node.rank` says more than 64 MB on standard error"

    class Endless(Supervisor):
        def wait(self):
            raise NodeError("an answer without end", {"node2": words})

    begun = begin(Supervisor(), Endless())
    begun.stop()
    first, second = begun.wait()
    assert (first.exit_code, second.exit_code, second.error) == (0, LOST, words)


def fleet_of(**results):
    """A fleet whose nodes answer the question who has them by an exit code and standard error."""

    def run(argv, *, nodes=NODES, check=True):
        assert not check
        if argv[0] == "flock":
            return {node: Result(node, code, b"", said) for node, (code, said) in results.items()}
        return {node: Result(node, 0, b"earlier\n", b"") for node in nodes}

    return SimpleNamespace(run=run)


IDLE, BUSY = (0, b""), (1, b"")


def test_nodes_that_no_run_has_are_free():
    refuse_busy(fleet_of(node1=IDLE, node2=IDLE))


def test_a_node_that_a_run_has_is_named_with_the_run():
    with pytest.raises(NodeError, match="the cluster is in use") as refused:
        refuse_busy(fleet_of(node1=IDLE, node2=BUSY))
    assert refused.value.outcomes == {"node2": "busy with run earlier"}


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ((LOST, b""), "the connection broke"),
        ((LOST, b"it has not answered for 15 s"), "it has not answered for 15 s"),
        ((127, b"sh: 1: flock: not found"), "sh: 1: flock: not found"),
        ((66, b""), "exit code 66"),
    ],
)
def test_a_node_that_cannot_tell_whether_a_run_has_it_counts_as_no_free_one(odd, words):
    with pytest.raises(NodeError, match="no run") as refused:
        refuse_busy(fleet_of(node1=odd, node2=IDLE))
    assert refused.value.outcomes == {"node1": words}
    with pytest.raises(NodeError, match="the cluster is in use") as refused:
        refuse_busy(fleet_of(node1=odd, node2=BUSY))
    assert refused.value.outcomes == {"node2": "busy with run earlier", "node1": words}


def interrupt_once_told(monkeypatch, begun, times):
    """Interrupt the wait for the next end, once the ranks have been told to end, the first `times` times."""
    left, get_next = [KeyboardInterrupt] * times, begun._next

    def get_next_or_interrupt(deadline):
        if left and begun._no_restarts.is_set():
            raise left.pop()
        return get_next(deadline)

    monkeypatch.setattr(begun, "_next", get_next_or_interrupt)


def test_a_first_interrupt_after_a_rank_has_failed_lets_the_others_save(begin, monkeypatch):
    """Their results are fetched and removed next."""
    saving = Supervisor(saves_s=0.3)
    begun = begin(Failing(), saving)
    interrupt_once_told(monkeypatch, begun, times=1)
    with pytest.raises(KeyboardInterrupt):
        begun.wait()
    assert saving.is_read.is_set()


def test_an_interrupt_before_the_ranks_are_told_to_end_tells_them(begin, monkeypatch):
    """Stacks of stalled ranks are awaited before, for 20 s at most."""

    def interrupt():
        raise KeyboardInterrupt

    saving = Supervisor(saves_s=0.3)
    begun = begin(Failing(), saving)
    monkeypatch.setattr(begun._watch, "end_with_stacks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        begun.wait()
    assert saving.is_told.is_set() and saving.is_read.is_set()


def test_a_second_interrupt_is_not_made_to_wait(begin, monkeypatch):
    stubborn = Supervisor(is_stubborn=True)
    begun = begin(Failing(), stubborn)
    interrupt_once_told(monkeypatch, begun, times=2)
    with pytest.raises(KeyboardInterrupt):
        begun.wait()
    assert stubborn.is_told.is_set() and not stubborn.is_read.is_set()
    stubborn.close()
