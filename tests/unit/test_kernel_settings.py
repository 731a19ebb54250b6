"""Settings of the host's kernel: read from any node, and recorded by groups of nodes."""

import json

import pytest

from cluster.base.spec import ClusterSpec
from cluster.contract.verdicts import Contract
from cluster.shaping.kernel_settings import group_settings
from node.wire.kernel_settings import data_device
from protocol.link_report import Settings
from protocol.reader import FormatError, read

ANSWER = {
    "kernel": "6.1.0-13-amd64",
    "wmem_max_bytes": 212_992,
    "rmem_max_bytes": 212_992,
    "tcp_wmem_bytes": 4_194_304,
    "tcp_rmem_bytes": 6_291_456,
    "slow_start_after_idle": True,
    "default_tcp": "cubic",
    "mtu": 1500,
}


def test_an_answer_is_what_the_node_said():
    assert read(Settings, json.loads(json.dumps(ANSWER))) == Settings(**ANSWER)
    assert read(Settings, ANSWER | {"mtu": None}).mtu is None


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, ANSWER | {"wmem_max_bytes": "212992"}, ANSWER | {"wmem_max_bytes": True}]
    + [
        ANSWER | {"tcp_wmem_bytes": 0},
        ANSWER | {"mtu": -1},
        ANSWER | {"mtu": 1500.0},
        ANSWER | {"more": 1},
    ]
    + [ANSWER | {"slow_start_after_idle": 1}, ANSWER | {"kernel": "\x1b[2J"}]
    + [ANSWER | {"default_tcp": "c" * 300}],
)
def test_any_other_answer_is_refused(answer):
    with pytest.raises(FormatError):
        read(Settings, answer)


def test_nodes_with_the_same_settings_are_one_group():
    one, other = Settings(**ANSWER), Settings(**ANSWER | {"mtu": 9000})
    groups = group_settings({"node1": one, "node2": other, "node3": one})
    jumbo = {"nodes": ["node2"]} | ANSWER | {"mtu": 9000}
    assert groups == [{"nodes": ["node1", "node3"]} | ANSWER, jumbo]


def test_they_are_in_contract_json():
    rows = [{"nodes": ["node1"]} | ANSWER]
    assert Contract((), settings=rows).document()["settings"] == rows


ROUTES = """Iface\tDestination\tGateway \tFlags
eth1\t00000000\t010013AC\t0003
eth0\t00{slot:02X}4D0A\t00000000\t0001
eth1\t000013AC\t00000000\t0001
"""


@pytest.mark.parametrize("slot", [0, 10, 99])
def test_the_data_networks_device_is_not_that_of_the_default_route_where_these_differ(slot):
    assert ClusterSpec(slot=slot).subnet == f"10.77.{slot}.0/24"
    routes = ROUTES.format(slot=slot)
    assert data_device(routes) == "eth0"
    assert data_device(routes.replace("eth0", "eth7")) == "eth7"
    assert data_device("\n".join(routes.splitlines()[:2])) == ""
