"""The host's side of traces: what nodes report about them, including invalid answers."""

import json
import queue
import threading
from types import SimpleNamespace

import pytest
from plans import node_plan

from cluster.base.errors import NodeError
from cluster.links.traces import Playback, Trace
from cluster.shaping import trace_player
from cluster.shaping.trace_player import TraceExit, TracePlayer
from protocol.lines import parse_order
from protocol.link import Link
from protocol.trace import ORDERS, ApplyOrder, BeginOrder, parse_first_order

TRACE = Trace("ride.csv", "", ("delay_ms",), ((0.0, 1.0), (1.0, 2.0)), 2.0, repeats=False)
PLAYBACKS = {"0": Playback(TRACE, (("node1", "node2"),), loops=False)}
ENDED = {"ended": "0", "changes": 2, "late": 0, "worst_ms": 0.5}


class Replay:
    """`python -m node.wire replay` on one node; `twist` may alter its answers."""

    def __init__(self, node, twist):
        self.node, self.twist, self.patience_s = node, twist, 0.0
        self.said, self.first = queue.Queue(), None

    def lines(self):
        return iter(self.said.get, None)

    def say(self, said):
        self.said.put(json.dumps(self.twist(said)))

    def write(self, line):
        if self.first is None:
            self.first = parse_first_order(line)
            self.say({"ready": True})
        elif isinstance(order := parse_order(ORDERS, line), BeginOrder):
            self.say(ENDED | {"late": int(self.node[-1])})
        elif isinstance(order, ApplyOrder):
            self.say({"applied": True})

    def close_stdin(self):
        self.said.put(None)

    close = close_stdin

    def wait(self):
        return 0, b""


class Fleet:
    """Three nodes; `twist` alters the second node's answers."""

    nodes = tuple(SimpleNamespace(name=f"node{n}") for n in (1, 2, 3))

    def __init__(self, twist):
        self.twist, self.started = twist, {}

    def start(self, node, command):
        twist = self.twist if node == "node2" else lambda said: said
        return self.started.setdefault(node, Replay(node, twist))

    def each(self, action, failure):
        for node in self.nodes:
            action(node)


def play(twist=lambda said: said):
    fleet = Fleet(twist)
    with TracePlayer(fleet, PLAYBACKS) as player:
        player.begin("0")
        while not (ended := player.ended(timeout_s=5.0)):
            pass
    return fleet, ended


def test_a_trace_that_all_its_nodes_have_ended_is_told_once_by_the_worst():
    fleet, ended = play()
    assert ended == [TraceExit("0", changes=2, late=2, worst_ms=0.5)]
    assert {node: list(replay.first.traces) for node, replay in fleet.started.items()} == {
        "node1": ["0"],
        "node2": ["0"],
        "node3": [],
    }


@pytest.mark.parametrize(
    ("twist", "words"),
    [
        (lambda said: said | {"colour": 1}, "colour: unknown key"),
        (lambda said: [], r"it said '\[\]'"),
        (lambda said: {}, "expected one of the keys ready, applied, ended"),
        (
            lambda said: said if "ready" in said else said | {"ended": "9"},
            "ended: '9' is not played",
        ),
        (
            lambda said: said if "ready" in said else said | {"late": -1},
            "late: expected no negative",
        ),
        (
            lambda said: said if "ready" in said else said | {"worst_ms": "1"},
            "worst_ms: expected a",
        ),
        (lambda said: said if "ready" in said else {"ended": "0"}, "changes: missing"),
    ],
)
def test_a_node_that_says_something_else_is_named(twist, words):
    with pytest.raises(NodeError, match=words) as refused:
        play(twist)
    assert list(refused.value.outcomes) == ["node2"]


class Talking(Replay):
    """A replay that says these lines, one every 50 ms, when its input begins or when it ends; then it stays."""

    def __init__(self, node, lines, when):
        super().__init__(node, lambda said: said)
        self.left, self.when = list(lines), when
        self.over, self.closed = threading.Event(), threading.Event()

    def lines(self):
        if self.when == "at the end":
            yield self.said.get()
            self.over.wait()
        while self.left and not self.closed.wait(0.05):
            yield json.dumps(self.left.pop(0))
        self.closed.wait(20)

    def close_stdin(self):
        self.over.set()

    def close(self):
        self.closed.set()


MANY = {str(n): Playback(TRACE, (("node1", "node2"),), loops=False) for n in range(100)}
ENDS = [ENDED | {"ended": name} for name in MANY]


@pytest.mark.parametrize("when", ["at the start", "at the end"])
def test_a_node_that_goes_on_talking_does_not_renew_its_deadline(monkeypatch, when):
    """All that it says may be said, but not what is waited for."""
    monkeypatch.setattr(trace_player, "ANSWER_TIMEOUT_S", 0.3)
    fleet = Fleet(lambda said: said)
    fleet.started["node2"] = node2 = Talking("node2", ENDS, when)
    with (
        pytest.raises(NodeError, match="no answer within") as silent,
        TracePlayer(fleet, MANY) as player,
    ):
        player.begin("0")
    assert list(silent.value.outcomes) == ["node2"]
    assert node2.left, "it was heard to the end"
    assert node2.closed.is_set()


@pytest.mark.parametrize(
    ("again", "words"),
    [
        (ENDED, "ended: '0' has ended before"),
        ({"applied": True}, "applied: no new plan was sent"),
    ],
)
def test_a_node_that_answers_what_was_not_asked_is_refused(again, words):
    player = TracePlayer(Fleet(lambda said: said), PLAYBACKS)
    with pytest.raises(NodeError, match=words) as refused, player:
        node2 = player._fleet.started["node2"]
        player.begin("0")
        for _ in range(1000):
            node2.said.put(json.dumps(again))
        for _ in range(5):
            player.ended(timeout_s=2.0)
    assert list(refused.value.outcomes) == ["node2"]
    assert player._said.qsize() < 10


def test_a_node_that_says_again_and_again_that_it_is_ready_says_nothing_new():
    with TracePlayer(Fleet(lambda said: said), PLAYBACKS) as player:
        for _ in range(1000):
            player._fleet.started["node2"].say({"ready": True})
        player.begin("0")
        assert player.wait_for_end("0").changes == 2
        assert player._said.qsize() == 0


def test_each_new_plan_is_answered_once(monkeypatch):
    monkeypatch.setattr(trace_player, "ANSWER_TIMEOUT_S", 5.0)
    fleet = Fleet(lambda said: said)
    with TracePlayer(fleet, PLAYBACKS) as player:
        plan = node_plan([2], [Link("node1", "node2", 5.0, 5.0, 0.0, 0.0, 40.0)])
        for _ in range(3):
            player.apply({"node1": plan})
        player.begin("0")
        assert player.wait_for_end("0").changes == 2


def test_a_node_that_answers_for_ever_does_not_hold_who_asks_what_ended(monkeypatch):
    """As many answers are read as there are, while more may come."""
    player, looks = TracePlayer(Fleet(lambda said: said), PLAYBACKS), []

    def hear(timeout_s):
        looks.append(timeout_s)
        assert len(looks) < 100, "it is heard for ever"

    monkeypatch.setattr(player, "_hear", hear)
    player.ended()
    assert len(looks) == 1


def test_a_process_that_failed_is_named_with_its_last_words():
    fleet = Fleet(lambda said: said)
    with pytest.raises(NodeError) as failed, TracePlayer(fleet, PLAYBACKS):
        for node in ("node1", "node3"):
            fleet.started[node].wait = lambda: (1, b"no tc\n")
    assert failed.value.outcomes == {"node1": "no tc", "node3": "no tc"}
