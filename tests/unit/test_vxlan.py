"""The data device of a node that no Docker network connects: its plan, the commands that make it."""

import pytest

from node import vxlan
from node.wire.commands import Device, WireError
from protocol.reader import FormatError
from protocol.vxlan_plan import VxlanPeer, VxlanPlan, checked_vxlan_plan

PEERS = {
    "node2": VxlanPeer("10.77.0.12", "02:67:77:00:00:02", "two.example"),
    "node3": VxlanPeer("10.77.0.13", "02:67:77:00:00:03", "three.example", 4801),
}
PLAN = VxlanPlan("node1", "10.77.0.11", "02:67:77:00:00:01", 77, 4789, PEERS)


def test_the_device_has_the_nodes_address_and_learns_nothing():
    line = vxlan.link_line(PLAN, Device("data0", 1450), f"address {PLAN.mac}")
    assert line == (
        "link add data0 address 02:67:77:00:00:01 mtu 1450 type vxlan id 77 dstport 4789 nolearning nolocalbypass"
    )
    assert vxlan.address_lines(PLAN) == [
        "address add 10.77.0.11/24 dev data0",
        "link set data0 up",
    ]


def test_packets_to_a_peer_and_broadcasts_go_to_where_it_is():
    hosts = {"node2": "192.0.2.2", "node3": "192.0.2.3"}
    assert vxlan.forwarding_lines(PLAN, hosts, "data0") == [
        "fdb append 02:67:77:00:00:02 dev data0 dst 192.0.2.2 port 4789",
        "fdb append 00:00:00:00:00:00 dev data0 dst 192.0.2.2 port 4789",
        "fdb append 02:67:77:00:00:03 dev data0 dst 192.0.2.3 port 4801",
        "fdb append 00:00:00:00:00:00 dev data0 dst 192.0.2.3 port 4801",
    ]


def test_a_name_may_be_known_later_but_not_never(monkeypatch):
    asked = []

    def resolve(host):
        asked.append(host)
        if host == "three.example" and asked.count(host) < 3:
            raise OSError("unknown")
        return "192.0.2.9"

    monkeypatch.setattr(vxlan, "_resolve", resolve)
    monkeypatch.setattr(vxlan, "RESOLVE_INTERVAL_S", 0.0)
    assert vxlan.resolve_hosts(PLAN, 60.0) == dict.fromkeys(("node2", "node3"), "192.0.2.9")
    assert asked.count("two.example") == 1
    asked.clear()
    with pytest.raises(WireError, match=r"no IPv4 address of three.example within 0 s"):
        vxlan.resolve_hosts(PLAN, 0.0)


@pytest.mark.parametrize(
    ("peers", "complaint"),
    [
        (PEERS | {"node1": PEERS["node2"]}, "peers.node1: a node is not its own peer"),
        (PEERS | {"node4": PEERS["node2"]}, "another node has the address 10.77.0.12"),
        (
            {"node2": PEERS["node2"]._replace(mac=PLAN.mac)},
            "another node has the mac 02:67:77:00:00:01",
        ),
    ],
)
def test_nodes_that_cannot_be_told_apart_are_refused(peers, complaint):
    with pytest.raises(FormatError, match=complaint):
        checked_vxlan_plan(PLAN._replace(peers=peers))
