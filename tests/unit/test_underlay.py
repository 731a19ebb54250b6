"""The network between hosts is part of each link's delay, and bounds what links may ask for."""

import json

import pytest
from plans import node_plan

from cluster.base import spec
from cluster.base.errors import ClusterError, UsageError
from cluster.base.spec import ClusterSpec
from cluster.contract.underlay_probe import _rounds
from cluster.links.changes import Change, change_plans
from cluster.links.link_spec import LinkSpec, link_plans, make_link_spec
from cluster.links.underlay import HostPath, Underlay, checked_delay, underlay_words
from cluster.shaping.link_record import plans_to_be, write_record
from cluster.shaping.underlay_record import read_underlay, write_underlay
from node.wire import netem
from node.wire.commands import Device
from node.wire.layout import lay_out
from node.wire.nfqueue import backend
from protocol.link import Link
from protocol.node_plan import parse_plan
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
    ("delay_ms", "jitter_ms", "is_possible"),
    [
        (4.0, 0.0, True),
        (3.86, 0.0, True),  # within what the contract allows a round trip
        (3.8, 0.0, False),
        (8.0, 2.0, True),
        (7.9, 2.0, False),  # the rest must leave room for the jitter
    ],
)
def test_a_link_is_no_shorter_than_the_network_beneath_it(delay_ms, jitter_ms, is_possible):
    link = LINK._replace(delay_ms=delay_ms, jitter_ms=jitter_ms)
    assert checked_delay(link, 0.0) is link
    if is_possible:
        UNDERLAY.check([link])
    else:
        with pytest.raises(UsageError, match=r"node1 -> node2: delay_ms .* takes 4 ms") as raised:
            UNDERLAY.check([link])
        at_least = "8" if jitter_ms else "4"
        assert raised.value.hint.startswith(f"a delay_ms of at least {at_least},")


def test_a_link_is_no_faster_than_the_network_beneath_it():
    fast = LINK._replace(rate_mbyte_s=125.0)
    UNDERLAY.check([fast, fast._replace(dst="node3", rate_mbyte_s=10_000.0)])
    with pytest.raises(UsageError, match="from host east to host west carries: 90 MB/s"):
        UNDERLAY.check([fast._replace(src="node2", dst="node3")])


def test_a_change_of_a_link_is_held_to_the_same():
    plans = link_plans(NODES, WAN.over(UNDERLAY))
    changed = change_plans(plans, [Change("node1", "node2", {"delay_ms": 5.0})])
    assert changed["node2"].underlay_ms == plans["node2"].underlay_ms
    with pytest.raises(UsageError, match="node1 -> node2: delay_ms 2 is too short"):
        change_plans(plans, [Change("node1", "node2", {"delay_ms": 2.0})])
    change_plans(plans, [Change("node1", "node3", {"delay_ms": 2.0})])


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
    there, back = underlay_words(UNDERLAY, [LINK, LINK._replace(dst="node3")]), LINK.ends[::-1]
    assert len(there) == 1
    assert "host west -> east: the network takes 8 ms for a round trip" in there[0]
    assert "carries 110 MB/s; its 1 links may send 10 MB/s at once" in there[0]
    link = LINK._replace(src=back[0], dst=back[1], rate_mbyte_s=91.0)
    assert underlay_words(UNDERLAY, [link])[0].endswith("91 MB/s at once, which is more")
    assert underlay_words(Underlay(), [LINK]) == []


def test_recorded_links_are_drawn_again_over_a_network_that_was_measured_since(three):
    write_record(three, link_plans(three.nodes, WAN))
    assert plans_to_be(three, None) == link_plans(three.nodes, WAN)
    assert read_underlay(three) == Underlay()
    write_underlay(three, UNDERLAY)
    assert read_underlay(three) == UNDERLAY
    over = link_plans(three.nodes, WAN.over(UNDERLAY))
    assert plans_to_be(three, None) == plans_to_be(three, WAN) == over
    write_record(three, over)
    assert plans_to_be(three, None) == over


def test_a_damaged_record_is_one_clear_error(three):
    write_underlay(three, UNDERLAY)
    (three.state_dir / "underlay.json").write_text('{"hosts": 1}')
    with pytest.raises(ClusterError, match="the record of the network between the hosts"):
        read_underlay(three)
