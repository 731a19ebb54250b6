"""The host's side of traces: what nodes report about them, including invalid answers."""

import json
import queue
from types import SimpleNamespace

import pytest

from cluster.base.errors import NodeError
from cluster.links.traces import Playback, Trace
from cluster.shaping.trace_player import TraceExit, TracePlayer
from protocol.lines import parse_order
from protocol.trace import ORDERS, BeginOrder, parse_first_order

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
        elif isinstance(parse_order(ORDERS, line), BeginOrder):
            self.say(ENDED | {"late": int(self.node[-1])})

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
