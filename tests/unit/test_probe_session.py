"""Probes on all nodes: orders and answers as lines of any length, and nodes that answer something else."""

import json
import threading
from types import SimpleNamespace

import pytest
from fuzzing.documents import example

from cluster.base.errors import NodeError
from cluster.base.line_splitter import LONGEST_LINE_BYTES, split_lines
from cluster.base.spec import ClusterSpec
from cluster.contract import probe_session
from cluster.contract.floods import link_floods
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.probe_results import fill_links, flood_links, ping_links
from cluster.contract.probe_session import MARGIN_S, MARGIN_TIMES, ProbeSession
from cluster.links.expected import Expected
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess
from protocol.lines import parse_order
from protocol.link import Link
from protocol.link_report import Shown
from protocol.probe import (
    ORDERS,
    ArrivalsOrder,
    Goodput,
    PingOrder,
    Pings,
    SendOrder,
    ShowOrder,
    TimersOrder,
)
from protocol.reader import document, read

THERE = Link("node1", "node2", 5.0, 1.0, 0.0, 0.0, 40.0)
BACK = Link("node2", "node1", 5.0, 1.0, 0.0, 0.0, 40.0)
ARRIVED = {
    "arrived": 2,
    "twice": 0,
    "gaps": 0,
    "reordered": 0,
    "sent_ms": [0.0, 30.0],
    "one_way_ms": [1.0, 1.5],
}
PINGED = {"series": 1, "sent": 2, "late_ms": 0.1, "rtt_ms": [2.0, 2.1], "back": ARRIVED}


SHOWN = example(Shown)


def honest(order):
    match order:
        case PingOrder():
            return dict.fromkeys(order.peers, PINGED | {"sent": order.pings})
        case ArrivalsOrder():
            return dict.fromkeys(order.series, ARRIVED)
        case SendOrder():
            return {"goodput_mbyte_s": 4.5, "loaded_rtt_ms": [9.0], "note": ""}
        case TimersOrder():
            return {"late_ms": 0.2}
        case ShowOrder():
            return SHOWN
    return dict.fromkeys(
        order.names, {"datagrams_s": 3000.0, "full_pct": 95.0, "sent_datagrams_s": 3100.0}
    )


class Probe:
    """`python -m node.probe` on one node; `twist` may alter its answers."""

    def __init__(self, node, address, twist):
        self.node, self.twist, self.patience_s = node, twist, 0.0
        self.said = [twist({"ready": address})]

    def lines(self, longest_bytes):
        for said in iter(lambda: self.said.pop(0), None):
            text = said if isinstance(said, str) else json.dumps(said)
            yield from split_lines([text.encode() + b"\n"], longest_bytes)

    def write(self, line):
        self.said.append(self.twist(honest(parse_order(ORDERS, line))))

    def close(self):
        pass


def make_session(twist=lambda said: said):
    """Return a session with two nodes; `twist` alters the second node's answers."""

    def start(node, command):
        *_, address, _nodes = command
        return Probe(node, address, twist if node == "node2" else lambda said: said)

    nodes = [SimpleNamespace(name=f"node{n}", address=f"10.0.0.{n}") for n in (1, 2)]
    return ProbeSession(SimpleNamespace(nodes=nodes, lost={}, start=start))


def ping(session):
    return ping_links(session, [THERE, BACK], [THERE, BACK], EFFORTS["quick"])


def test_orders_and_answers_cross_unharmed():
    with make_session() as session:
        pinged = ping(session)
        assert pinged["node1", "node2"].arrived == pinged["node2", "node1"].arrived == 2
        assert fill_links(session, [THERE], Expected((THERE, BACK))) == {
            ("node1", "node2"): {"goodput_mbyte_s": 4.5, "loaded_rtt_ms": 9.0}
        }


def test_each_answer_is_waited_for_as_long_as_its_order_takes_and_no_longer():
    waited = []
    with make_session() as session:
        processes = session._processes.values()
        assert {process.patience_s for process in processes} == {MARGIN_S}
        for duration_s in (1.0, 20.0):
            order = SendOrder("10.0.0.2", 1.0, duration_s, 20.0)
            session.ask({"node1": order}, Goodput)
            waited.append(session._processes["node1"].patience_s)
    assert waited == [MARGIN_S + MARGIN_TIMES * (1.0 + duration_s) for duration_s in (1.0, 20.0)]


def test_an_answer_may_be_longer_than_a_line_of_a_program():
    """4000 pings of `--full` make an answer of 94 KB, which arrived in pieces, none of them valid JSON."""
    many = PINGED | {"rtt_ms": [1.234] * LONGEST_LINE_BYTES}
    order = PingOrder({"node1": "10.0.0.1"}, pings=2, interval_ms=1.0, wait_ms=1.0)
    with make_session(lambda said: said | {"node1": many} if "node1" in said else said) as session:
        found = session.ask_of_each({"node2": order}, Pings)
    assert document(found["node2"]["node1"]) == many


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("no JSON", "it said 'no JSON'"),
        ({"error": "no such device"}, "node2: no such device"),
        ({"error": "\x1b[2J"}, "error: expected a printable line"),
        ({"ready": "here"}, "ready: expected an IPv4 address"),
        ({}, "ready: missing"),
    ],
)
def test_a_node_whose_first_line_is_another_is_named(said, words):
    with pytest.raises(NodeError, match=words) as refused, make_session(lambda _: said):
        pass
    assert list(refused.value.outcomes) == ["node2"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("no JSON", "it said 'no JSON'"),
        ({"error": "no such device"}, "node2: no such device"),
        ({}, "node1: missing"),
        ({"node1": ARRIVED, "node9": ARRIVED}, "node9: nobody asked for it"),
        ({"node1": 1}, "node1: expected an object, got 1"),
    ],
)
def test_a_node_that_answers_something_else_is_named(said, words):
    def twist(honest):
        return said if "node1" in honest else honest

    with pytest.raises(NodeError, match=words) as refused, make_session(twist) as session:
        ping(session)
    assert list(refused.value.outcomes) == ["node2"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"arrived": -1}, "node1.arrived: expected no negative number"),
        ({"arrived": True}, "node1.arrived: expected a whole number"),
        ({"one_way_ms": [1.0]}, "one_way_ms: expected 2 of them"),
        ({"arrived": 1}, "arrived: 1 are fewer than the 2 of sent_ms"),
        ({"one_way_ms": [1.0, float("nan")]}, r"node1.one_way_ms\[1\]: expected a number"),
        ({"colour": 1}, "node1.colour: unknown key"),
    ],
)
def test_arrivals_that_are_none(values, words):
    def twist(said):
        return {name: one | values for name, one in said.items()} if "node1" in said else said

    with pytest.raises(NodeError, match=words) as refused, make_session(twist) as session:
        ping(session)
    assert list(refused.value.outcomes) == ["node2"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"datagrams_s": "many"}, "node2: .node1.datagrams_s: expected a number"),
        ({"full_pct": 101}, "node2: .node1.full_pct: .*100"),
        ({"datagrams_s": None}, "node2: .datagrams_s: expected a number, got null"),
        ({"full_pct": None}, "node2: .full_pct: expected a number, got null"),
    ],
)
def test_a_rate_that_is_none(values, words):
    def twist(said):
        return {name: one | values for name, one in said.items()} if "node1" in said else said

    floods = link_floods([THERE, BACK], ["node1", "node2"])
    with pytest.raises(NodeError, match=words), make_session(twist) as session:
        flood_links(session, floods, 1514)


class Line:
    """A connection to a node, with the channel of its probe: both end once it is closed."""

    def __init__(self, address):
        self.said = [json.dumps({"ready": address}).encode() + b"\n"]
        self.status_event = threading.Event()
        self.status_event.set()
        self.is_closed = False

    def get_transport(self):
        return self

    def is_active(self):
        return not self.is_closed

    def settimeout(self, seconds):
        pass

    def recv(self, count):
        return self.said.pop(0) if self.said else b""

    def recv_stderr_ready(self):
        return False

    def recv_stderr(self, count):
        return b""

    def send(self, data):
        if self.is_closed:
            raise OSError("Socket is closed")
        return len(data)

    def recv_exit_status(self):
        return -1

    def close(self):
        self.is_closed = True


class Lines(Fleet):
    """Connections to four nodes, on two hosts or on one."""

    def __init__(self, folder, hosts):
        super().__init__(ClusterSpec("lab", 4).nodes, folder, hosts=hosts)
        self._clients = {node.name: Line(node.address) for node in self.nodes}

    def start(self, node, argv):
        return RemoteProcess(node, self._clients[node])

    def lose(self, *names):
        """Lose nodes in silence, as a watchdog notices it."""
        for name in names:
            self._lose(name)
            self.hang_up(name)

    def hang_up(self, *names):
        for name in names:
            self._clients[name].close()


HOSTS = {"node1": "host west", "node2": "host east", "node3": "host west", "node4": "host east"}
SILENT = "it has not answered for 15 s"


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """A function that returns a fleet; while a session waits for others to be lost too, it loses these."""

    def make(hosts, *later):
        fleet = Lines(tmp_path, hosts)
        clock = SimpleNamespace(sleep=lambda seconds: fleet.lose(*later))
        monkeypatch.setattr(probe_session, "time", clock)
        return fleet

    return make


def lost_with(fleet, lose):
    """Return the error of a session that loses nodes after its probes are ready."""
    with pytest.raises(NodeError) as failed, ProbeSession(fleet) as session:
        lose()
        session.timers_late_ms()
    return failed.value


def test_all_nodes_of_a_lost_host_are_named_with_it(lines):
    """They are not lost at the same moment: each is asked every five seconds."""
    fleet = lines(HOSTS, "node4")
    error = lost_with(fleet, lambda: fleet.lose("node2"))
    words = f"{SILENT} (host east)"
    assert error.outcomes == {"node2": words, "node4": words}
    assert "cannot be measured" in error.message and error.hint == "python -m cluster.status"


def test_so_are_those_of_a_host_that_closes_its_connections(lines):
    fleet = lines(HOSTS)
    error = lost_with(fleet, lambda: fleet.hang_up("node2", "node4"))
    assert error.outcomes == dict.fromkeys(("node2", "node4"), "SSH is closed (host east)")


def test_on_one_machine_nodes_that_are_lost_are_named_without_it(lines):
    fleet = lines({}, "node4")
    error = lost_with(fleet, lambda: fleet.lose("node2", "node3"))
    assert error.outcomes == {"node2": SILENT, "node3": SILENT}


def test_those_that_are_lost_before_the_probes_start_are_named_too(lines):
    fleet = lines(HOSTS)
    fleet.lose("node2", "node4")
    fleet.start = lambda node, argv: Fleet.start(fleet, node, argv)
    with pytest.raises(NodeError) as failed, ProbeSession(fleet, ["node2", "node4"]):
        pass
    assert set(failed.value.outcomes) == {"node2", "node4"}


def test_what_the_others_say_of_a_lost_node_is_not_the_reason(lines):
    fleet = lines(HOSTS, "node4")

    def lose():
        fleet._clients["node1"].said.append(b'{"error": "no answer from node2"}\n')
        fleet.lose("node2")

    with pytest.raises(NodeError) as failed, ProbeSession(fleet) as session:
        lose()
        session.ask({"node1": TimersOrder()}, Goodput)
    assert set(failed.value.outcomes) == {"node2", "node4"}


def test_probes_say_what_is_in_force():
    with make_session() as session:
        assert session.shown() == dict.fromkeys(("node1", "node2"), read(Shown, SHOWN))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"error": "tc is not installed on this node"}, "node2: tc is not installed"),
        (SHOWN | {"notes": [5]}, "node2: .notes"),
        ({"late_ms": 0.2}, "node2: 'late_ms: unknown key"),
    ],
)
def test_a_node_that_cannot_say_what_is_in_force_is_named(said, words):
    with (
        make_session(lambda it: said if "plan" in it else it) as session,
        pytest.raises(NodeError, match=words),
    ):
        session.shown()
