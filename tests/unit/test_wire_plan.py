"""The link plan of a node: strictly parsed, and every error names its key."""

import copy
import json

import pytest

from protocol.node_plan import parse_plan
from protocol.reader import FormatError, document

PLAN = {
    "node": "node1",
    "address": "10.77.0.11",
    "wire": "auto",
    "tcp": "cubic",
    "slow_start_after_idle": True,
    "seed": 1,
    "uplink_mbyte_s": None,
    "downlink_mbyte_s": None,
    "isolated": False,
    "peers": {"node2": {"address": "10.77.0.12", "mac": "02:67:77:00:00:02"}},
    "routes": {"node3": {"address": "10.77.0.13", "via": "node2"}},
    "links": [
        {"src": "node1", "dst": "node2", "rate_mbyte_s": 50, "delay_ms": 30.0}
        | {"jitter_ms": 0.0, "loss_pct": 0.0, "buffer_ms": 60.0, "loss_burst": 1.0}
        | {"duplicate_pct": 0.0, "corrupt_pct": 0.0, "reorder_pct": 0.0, "distribution": "normal"},
    ],
}


def broken(*path_and_value):
    """Return the plan with one value changed: first its path, then the value."""
    *path, key, value = path_and_value
    plan = copy.deepcopy(PLAN)
    target = plan
    for step in path:
        target = target[step]
    target[key] = value
    return json.dumps(plan)


def test_a_plan_survives_the_way_through_the_types():
    plan = parse_plan(json.dumps(PLAN | {"origin": {"profile": "wan"}}))
    as_it_came = document(plan)
    del as_it_came["links"][0]["wire"]  # `auto` by default
    assert as_it_came == PLAN | {"origin": {"profile": "wan"}, "underlay_ms": {}}
    assert parse_plan(json.dumps(document(plan))) == plan


def test_links_are_told_apart_by_where_they_start():
    plan = parse_plan(json.dumps(PLAN))
    assert list(plan.outgoing()) == ["node2"]
    assert plan.incoming() == {}
    assert plan.outgoing()["node2"].bytes_per_s == 50e6


def test_the_links_of_a_report_may_stand_in_a_plan():
    (link,) = parse_plan(broken("links", 0, "wire", "netem")).links
    (plain,) = parse_plan(json.dumps(PLAN)).links
    assert link._replace(wire="auto") == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("[]", "plan: expected an object"),
        (broken("tpc", "cubic"), "plan.tpc: unknown key, did you mean tcp?"),
        (broken("links", 0, "rate_mbit", 1), "links[0].rate_mbit: unknown key"),
        (broken("wire", "tc"), "wire: expected one of auto, netem, nfqueue, got 'tc'"),
        (broken("address", "node1"), "address: expected an IPv4 address"),
        (broken("tcp", "cubic; reboot"), "tcp: expected one word"),
        (broken("slow_start_after_idle", 1), "slow_start_after_idle: expected true or false"),
        (broken("seed", True), "seed: expected a whole number"),
        (broken("peers", []), "peers: expected an object"),
        (broken("peers", "node2", "mac", "02:67"), "peers.node2.mac: expected a MAC address"),
        (broken("peers", {}), "routes.node3.via: expected one of"),
        (broken("routes", []), "routes: expected an object"),
        (broken("routes", "node3", "via", "node9"), "routes.node3.via: expected one of node2"),
        (broken("links", 0, "dst", "node7"), "links[0]: node7 is missing in peers"),
        (
            broken("peers", "node1", {"address": "10.77.0.9", "mac": "02:67:77:00:00:09"}),
            "own peer",
        ),
        (broken("peers", "node3", PLAN["peers"]["node2"]), "two of them have the address"),
        (broken("links", {}), "links: expected a list"),
        (broken("links", PLAN["links"] * 2), "node1 to node2 is there twice"),
        (broken("links", 0, "src", "node3"), "links[0]: node3 to node2 neither starts nor ends"),
        (broken("links", 0, "rate_mbyte_s", 0), "links[0].rate_mbyte_s: 0 is not between"),
        (broken("links", 0, "delay_ms", "30ms"), "links[0].delay_ms: expected a number"),
        (broken("links", 0, "delay_ms", float("nan")), "links[0].delay_ms: expected a number"),
        (broken("links", 0, "loss_pct", 101), "links[0].loss_pct: 101 is not between 0 and 100"),
    ],
)
def test_an_error_names_the_key(text, message):
    with pytest.raises(FormatError) as caught:
        parse_plan(text)
    assert message in str(caught.value)


def test_a_missing_key_is_named():
    plan = copy.deepcopy(PLAN)
    del plan["links"][0]["buffer_ms"]
    with pytest.raises(FormatError, match=r"links\[0\]\.buffer_ms: missing"):
        parse_plan(json.dumps(plan))
