"""The network between hosts is part of each link's delay, and bounds what links may ask for."""

import json
import math
from types import SimpleNamespace

import pytest
from plans import node_plan

from cluster.base import spec
from cluster.base.errors import ClusterError, NodeError, UsageError
from cluster.base.spec import ClusterSpec
from cluster.contract import underlay_probe
from cluster.contract.underlay_probe import (
    _check_filled,
    _check_reached,
    _rounds,
    ping_until_reached,
)
from cluster.lifecycle import new_hosts
from cluster.links.changes import Change, change_plans
from cluster.links.expected import Expected
from cluster.links.link_spec import LinkSpec, link_plans, make_link_spec
from cluster.links.underlay import HostPath, Underlay, check_links, underlay_notes, underlay_words
from cluster.shaping.link_record import plans_to_be, write_record
from cluster.shaping.underlay_record import read_underlay, write_underlay
from node.wire import netem
from node.wire.commands import Device
from node.wire.layout import lay_out
from node.wire.nfqueue import backend
from protocol.link import Link
from protocol.node_plan import parse_plan
from protocol.probe import Goodput
from protocol.reader import FormatError, document

HOSTS = {"node1": "west", "node2": "east", "node3": "west"}
PATHS = {("west", "east"): HostPath(8.0, 110.0), ("east", "west"): HostPath(8.0, 90.0)}
UNDERLAY = Underlay(HOSTS, PATHS)
NODES = ClusterSpec(size=3).nodes
WAN = make_link_spec("wan", "full", 1, "auto")
LINK = Link("node1", "node2", 10.0, 20.0, 0.0, 0.0, 40.0)


@pytest.fixture
def state_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(spec, "PROJECT_DIR", tmp_path)
    (tmp_path / ".gradwire" / "hosts").mkdir(parents=True)


@pytest.fixture
def three(state_folder):
    return ClusterSpec("hosts", size=3)


def test_only_links_between_hosts_have_it_beneath_them():
    assert UNDERLAY.delay_ms(("node1", "node2")) == UNDERLAY.delay_ms(("node2", "node3")) == 4.0
    assert UNDERLAY.delay_ms(("node1", "node3")) == Underlay().delay_ms(("node1", "node2")) == 0.0


def test_plans_ask_for_the_same_links_and_say_what_is_beneath_them():
    over, bare = link_plans(NODES, WAN.over(UNDERLAY)), link_plans(NODES, WAN)
    assert [plan.links for plan in over.values()] == [plan.links for plan in bare.values()]
    assert [plan.underlay_ms for plan in over.values()] == [
        {"node2": 4.0},
        {"node1": 4.0, "node3": 4.0},
        {"node2": 4.0},
    ]
    assert all(plan.underlay_ms == {} and "underlay" not in plan.origin for plan in bare.values())


def test_what_the_nodes_keep_of_it_draws_the_same_plans_again():
    plans = link_plans(NODES, WAN.over(UNDERLAY))
    kept = json.loads(json.dumps(document(plans["node1"].origin)))
    assert LinkSpec.from_origin(kept) == WAN.over(UNDERLAY)
    assert parse_plan(json.dumps(document(plans["node2"]))) == plans["node2"]


@pytest.mark.parametrize(
    "underlay",
    [
        [],
        {"hosts": {}},
        {"hosts": {"node1": 1}, "paths": []},
        {"hosts": {"node1": "\x1b[2J"}, "paths": []},
        {"hosts": {}, "paths": [["west", "east", 1.0]]},
        {"hosts": {}, "paths": [["west", "east", "1e400", 1.0]]},
        {"hosts": {}, "paths": [["west", "east", -1.0, 1.0]]},
    ],
)
def test_what_a_node_says_of_it_is_checked(underlay):
    with pytest.raises(ClusterError, match="what the links in force were drawn from"):
        LinkSpec.from_origin(WAN.origin() | {"underlay": underlay})


def netem_ms(layout):
    (line,) = [line for line in netem.tc_lines(None, layout) if " netem " in line]
    return {float(line.split(" delay ")[1].split("ms")[0])}


def nfqueue_ms(layout):
    """Return the delays of both queues: of what comes from the peer, and of echo replies to it."""
    queues = backend.request_of(layout).queues.values()
    return {round(1e3 * behaviour.delay_s, 6) for behaviour in queues}


@pytest.mark.parametrize("delays_ms", [netem_ms, nfqueue_ms])
@pytest.mark.parametrize(
    ("underlay_ms", "rest_ms"), [({}, 20.0), ({"node2": 4.0}, 16.0), ({"node2": 25.0}, 0.0)]
)
def test_wires_add_the_rest_of_the_delay(delays_ms, underlay_ms, rest_ms):
    plan = node_plan([2], [LINK, LINK._replace(src="node2", dst="node1")], underlay_ms=underlay_ms)
    assert delays_ms(lay_out(plan, Device("eth0", 1450), None)) == {rest_ms}


def test_a_plan_names_only_peers_above_it():
    plan = document(node_plan([2], [])._replace(underlay_ms={"node9": 1.0}))
    with pytest.raises(FormatError, match=r"underlay_ms.node9: not one of the peers"):
        parse_plan(json.dumps(plan))


@pytest.mark.parametrize(
    ("values", "is_possible"),
    [
        ({"delay_ms": 4.0}, True),
        ({"delay_ms": 3.96}, True),  # within what the contract allows a round trip
        ({"delay_ms": 3.9}, False),
        ({"delay_ms": 8.0, "jitter_ms": 2.0}, True),
        ({"delay_ms": 7.9, "jitter_ms": 2.0}, False),  # the rest must leave room for the jitter
        ({"delay_ms": 24.0, "reorder_pct": 5.0}, True),
        ({"delay_ms": 23.0, "reorder_pct": 5.0}, False),  # and for packets to overtake others
        ({"delay_ms": 16.0, "reorder_pct": 5.0}, False),
    ],
)
def test_a_link_is_no_shorter_than_the_network_beneath_it(values, is_possible):
    link = LINK._replace(**values)
    assert Underlay().checked(link) is link
    if is_possible:
        assert UNDERLAY.checked(link) is link
    else:
        with pytest.raises(UsageError, match="is too short: .* host west and host east takes 4 ms"):
            UNDERLAY.checked(link)


def test_a_hint_asks_for_no_delay_that_is_refused_again():
    slow = Underlay(HOSTS, {("west", "east"): HostPath(208.809, 110.0)})
    with pytest.raises(UsageError) as raised:
        slow.checked(LINK)
    least_ms = float(raised.value.hint.split("at least ")[1].split(")")[0])
    assert slow.checked(LINK._replace(delay_ms=least_ms)) and least_ms < 105


def test_a_link_is_no_faster_than_the_network_beneath_it():
    fast = LINK._replace(rate_mbyte_s=125.0)
    assert UNDERLAY.checked(fast._replace(dst="node3", rate_mbyte_s=10_000.0))
    assert UNDERLAY.checked(fast)  # 119 MB/s of payload for 110: for the contract to judge
    with pytest.raises(UsageError, match="host east and host west carries: 90 MB/s of payload"):
        UNDERLAY.checked(fast._replace(src="node2", dst="node3"))


def test_a_slow_uplink_makes_a_fast_link_possible():
    links = [LINK._replace(rate_mbyte_s=1000.0)]
    check_links(UNDERLAY, Expected(links, uplinks={"node1": 50.0}))
    check_links(UNDERLAY, Expected(links, downlinks={"node2": 50.0}))
    with pytest.raises(UsageError, match="rate_mbyte_s 1000 is more"):
        check_links(UNDERLAY, Expected(links, uplinks={"node2": 50.0}))


@pytest.mark.parametrize(
    ("value", "words"),
    [({"delay_ms": 2.0}, "delay_ms 2 is too short"), ({"rate_mbyte_s": 200.0}, "200 is more than")],
)
def test_a_change_of_a_link_is_held_to_the_same(value, words):
    plans = link_plans(NODES, WAN.over(UNDERLAY))
    changed = change_plans(plans, [Change("node1", "node2", {"delay_ms": 5.0})])
    assert changed["node2"].underlay_ms == plans["node2"].underlay_ms
    with pytest.raises(UsageError, match=f"node1 -> node2: .*{words}"):
        change_plans(plans, [Change("node1", "node2", value)])
    change_plans(plans, [Change("node1", "node3", value)])


def test_hosts_that_are_new_are_measured_and_no_others():
    assert Underlay(HOSTS).unmeasured() == [("west", "east")]
    assert UNDERLAY.unmeasured() == Underlay({"node1": "west"}).unmeasured() == []
    grown = Underlay({**HOSTS, "node4": "north"}, PATHS)
    assert grown.unmeasured() == [("west", "north"), ("east", "north")]


def test_each_node_fills_one_link_at_a_time_in_both_directions():
    names = ("a", "b", "c", "d")
    links = [LINK._replace(src=s, dst=d) for s in names for d in names if s != d]
    rounds = list(_rounds(links))
    assert len(rounds) == 3 and sorted(sum(rounds, [])) == sorted(links)
    for some in rounds:
        assert {link.src for link in some} == {link.dst for link in some} == set(names)
        assert len({link.src for link in some}) == len(some)


def test_the_user_reads_what_the_links_ask_of_it():
    there, back = LINK, LINK._replace(src="node2", dst="node3", rate_mbyte_s=91.0)
    same_host = LINK._replace(dst="node3")
    asked = Expected([there, same_host, back])
    said = underlay_words(UNDERLAY, asked)
    assert len(said) == 2
    assert "host west -> east: the network takes 8 ms for a round trip" in said[0]
    assert said[0].endswith("carries 110 MB/s; its links may send 10 MB/s together")
    assert said[1].endswith("carries 90 MB/s; its links may send 91 MB/s together, which is more")
    assert underlay_notes(UNDERLAY, asked) == [
        "of the round trips between hosts, their network takes 8 ms",
        "host east -> west carries 90 MB/s, and its links may send 91 together",
    ]
    limited = Expected([there, back], uplinks={"node2": 5.0})
    assert "may send 5 MB/s together" in underlay_words(UNDERLAY, limited)[1]
    assert underlay_words(Underlay(), asked) == underlay_notes(Underlay(), asked) == []


def test_recorded_links_come_over_a_network_that_was_measured_since_and_stay_as_they_were(three):
    changed = [Change("node1", "node2", {"delay_ms": 77.0})]
    bare = link_plans(three.nodes, WAN)
    bare |= change_plans(bare, changed)
    write_record(three, bare)
    assert plans_to_be(three, None) == bare
    assert read_underlay(three) == Underlay()
    write_underlay(three, UNDERLAY)
    assert read_underlay(three) == UNDERLAY
    measured = link_plans(three.nodes, WAN.over(UNDERLAY))
    assert plans_to_be(three, WAN) == measured
    now = plans_to_be(three, None)
    assert now == measured | change_plans(measured, changed)
    write_record(three, now)
    assert plans_to_be(three, None) == now


class Part:
    """One of several engines."""

    def __init__(self, host_name):
        self.host_name = host_name


class SomeHosts:
    """Engines of several hosts: west has the nodes with odd numbers."""

    def parts(self, spec):
        names = [node.name for node in spec.nodes]
        return [(Part("west"), names[::2]), (Part("east"), names[1::2])]


@pytest.fixture
def probes(monkeypatch):
    """Record what is cleared and measured, in place of real nodes."""
    done = []

    def measure(fleet, nodes, pairs):
        done.append(("measure", {host: nodes[host] for pair in pairs for host in pair}))
        return {ends: HostPath(8.0, 100.0) for pair in pairs for ends in (pair, pair[::-1])}

    monkeypatch.setattr(new_hosts, "clear_some", lambda fleet, nodes: done.append(("clear", nodes)))
    monkeypatch.setattr(new_hosts, "measure_underlay", measure)
    return done


def test_new_hosts_are_measured_once_by_unshaped_nodes(three, probes):
    new_hosts.record_hosts(SomeHosts(), three)
    assert read_underlay(three).hosts == HOSTS
    assert new_hosts.measure_new_hosts(three, None)
    both = {"west": "node1", "east": "node2"}
    assert probes == [("clear", ["node1", "node2"]), ("measure", both)]
    assert not new_hosts.measure_new_hosts(three, None)
    assert read_underlay(three).delay_ms(("node1", "node2")) == 4.0


def test_nodes_that_have_no_links_yet_lose_none(three, probes):
    new_hosts.record_hosts(SomeHosts(), three)
    assert new_hosts.measure_new_hosts(three, None, have_links=False)
    assert [what for what, _ in probes] == ["measure"]


def test_nodes_that_a_known_host_gets_are_bound_before_they_exist(three, probes):
    new_hosts.record_hosts(SomeHosts(), three)
    new_hosts.measure_new_hosts(three, None)
    larger = ClusterSpec("hosts", size=4)
    new_hosts.record_hosts(SomeHosts(), larger)
    assert not new_hosts.measure_new_hosts(larger, None) and len(probes) == 2
    near = make_link_spec("datacenter", "full", 1, "auto")
    with pytest.raises(UsageError, match="delay_ms .* is too short"):
        plans_to_be(larger, near)


def test_one_host_has_no_underlay(three, probes):
    class OneHost:
        def parts(self, spec):
            return [(Part("west"), [node.name for node in spec.nodes])]

    new_hosts.record_hosts(OneHost(), three)
    assert not new_hosts.measure_new_hosts(three, None) and probes == []
    assert not (three.state_dir / "underlay.json").exists()


def test_a_network_that_carries_no_full_packets_is_an_error_and_not_a_rate_of_0():
    found = {
        ("node1", "node2"): Goodput(0.0, [], "timed out"),
        ("node2", "node1"): Goodput(9.0, []),
    }
    with pytest.raises(NodeError, match="carries small packets, but no full ones") as raised:
        _check_filled(found)
    assert raised.value.outcomes == {"node1": "to node2: timed out"}
    assert "1500 bytes" in raised.value.hint


def test_hosts_that_cannot_reach_each_other_are_all_named():
    silent = dict.fromkeys([("node1", "node2"), ("node1", "node3"), ("node2", "node1")], math.inf)
    with pytest.raises(NodeError, match="carries nothing") as raised:
        _check_reached({**silent, ("node3", "node1"): 5.0})
    words = {"node1": "cannot reach node2, node3", "node2": "cannot reach node1"}
    assert raised.value.outcomes == words and "4789/udp" in raised.value.hint


def pinging(monkeypatch, lost_until):
    """Replace pings: a pair's come back from the given look on. Returns the looks, by the links in them."""
    looks = []

    def ping(session, links, asked, order):
        looks.append([link.ends for link in links])
        found = {link.ends: min(link.ends) + max(link.ends) for link in links}
        return {
            ends: SimpleNamespace(
                early_rtt_ms=math.inf if len(looks) < lost_until.get(pair, 0) else 5.0
            )
            for ends, pair in found.items()
        }

    monkeypatch.setattr(underlay_probe, "ping_each_pair", ping)
    monkeypatch.setattr(underlay_probe, "AGAIN_S", 0.0)
    return looks


def both_ways(*pairs):
    return [underlay_probe._bare_link(*ends) for pair in pairs for ends in (pair, pair[::-1])]


def test_hosts_that_have_not_heard_of_a_new_node_yet_are_pinged_again(monkeypatch):
    """Swarm tells them by gossip; `up` failed on a busy machine because one look was all they had."""
    looks = pinging(monkeypatch, {"node1node3": 3})
    found = ping_until_reached(None, both_ways(("node1", "node2"), ("node1", "node3")))
    assert len(looks) == 3 and looks[1] == looks[2] == [("node1", "node3"), ("node3", "node1")]
    assert len(found) == 4 and set(found.values()) == {5.0}


def test_hosts_that_never_answer_are_given_up(monkeypatch):
    pinging(monkeypatch, {"node1node2": math.inf})
    monkeypatch.setattr(underlay_probe, "READY_S", 0.0)
    found = ping_until_reached(None, both_ways(("node1", "node2")))
    assert set(found.values()) == {math.inf}


def test_a_damaged_record_is_one_clear_error(three):
    write_underlay(three, UNDERLAY)
    (three.state_dir / "underlay.json").write_text('{"hosts": 1}')
    with pytest.raises(ClusterError, match="the record of the network between the hosts"):
        read_underlay(three)
