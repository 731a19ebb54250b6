"""Limits of nodes: which are valid, how they are applied, and how Compose expresses them."""

import pytest

from cluster.api import Cluster
from cluster.base.errors import ClusterError, UsageError
from cluster.base.spec import ClusterSpec
from cluster.engine.client import NO_SHARE
from cluster.engine.compose import compose_document
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.resources import (
    UNLIMITED_BYTES,
    Limit,
    check_room,
    cpu_share_us,
    enforced_limits,
    make_resource_request,
    read_limit,
    service_limits,
    split_words,
)

NODES = ("node1", "node2", "node3")
GIB = 2**30


def limits(cpus=(), memory=(), now=None):
    return make_resource_request(split_words(cpus), split_words(memory)).limits(NODES, now or {})


def test_a_nodes_own_word_goes_over_that_of_all():
    for words in (["1", "node3=0.5"], ["node3=0.5", "1"]):
        assert [limit.cpus for limit in limits(words).values()] == [1, 1, 0.5]


def test_what_is_not_said_stays_and_none_takes_it_away():
    now = {"node2": Limit(0.5, GIB), "node3": Limit(0.25, None)}
    assert limits(now=now) == {"node1": Limit(), **now}
    after = limits(["node3=none"], ["node2=512m"], now)
    assert after == {"node1": Limit(), "node2": Limit(0.5, GIB // 2), "node3": Limit()}
    assert make_resource_request(cpus={"node2": None}).limits(NODES, now)["node2"] == Limit(
        None, GIB
    )


def test_python_may_say_one_number_for_all():
    wish = make_resource_request(cpus=0.5, memory="1.5g")
    assert set(wish.limits(NODES, {}).values()) == {Limit(0.5, 3 * GIB // 2)}


def test_a_cluster_in_python_takes_them_and_words_about_no_links_are_refused():
    cluster = Cluster("lab", cpus={"node2": 0.5}, memory="1g")
    assert cluster.request.resources.limits(NODES, {})["node2"] == Limit(0.5, GIB)
    with pytest.raises(UsageError, match="cpus of node2 is 0"):
        Cluster("lab", cpus={"node2": 0})
    for words in ({"topology": "ring"}, {"wire": "netem"}, {"isolated": True}):
        with pytest.raises(UsageError, match="without --profile"):
            Cluster("lab", **words)


@pytest.mark.parametrize(
    ("cpus", "memory", "message"),
    [
        (["node3=0"], [], "cpus of node3 is '0'"),
        (["node3=-1"], [], "cpus of node3 is '-1'"),
        (["nan"], [], "cpus of all is 'nan'"),
        (["node3="], [], "cpus of node3 is ''"),
        (["node3=half"], [], "cpus of node3 is 'half'"),
        (["node9=1"], [], "unknown node 'node9'"),
        (["=1"], [], "unknown node ''"),
        ([], ["node2=1x"], "memory of node2 is '1x'"),
        ([], ["1m"], "memory of all is '1m'"),
        ([], ["node4=1g"], "unknown node 'node4'"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(cpus, memory, message):
    with pytest.raises(UsageError) as error:
        limits(cpus, memory)
    assert error.value.message.startswith(message)
    assert "\n" not in error.value.message


def test_more_than_the_machine_has_is_refused():
    check_room(make_resource_request("2", "8g"), 2, 8 * GIB)
    check_room(make_resource_request("none", "none"), 2, 8 * GIB)
    with pytest.raises(UsageError, match="cpus of node3 is 3, and this machine has 2"):
        check_room(make_resource_request({"node3": 3}), 2, 8 * GIB)
    with pytest.raises(UsageError, match="memory of all is 9g, and this machine has 8g"):
        check_room(make_resource_request(memory="9g"), 2, 8 * GIB)


def test_a_limit_is_in_the_compose_document_of_its_node_alone():
    services = compose_document(ClusterSpec(), {"node3": Limit(0.25, GIB)})["services"]
    keys = {"cpu_period", "cpu_quota", "mem_limit", "memswap_limit"}
    assert not keys & set(services["node1"])
    said = services["node3"]
    assert said["cpu_quota"] / said["cpu_period"] == 0.25
    assert said["mem_limit"] == said["memswap_limit"] == GIB
    assert "deploy" not in said and "cpus" not in said  # Swarm's; cpus cannot be updated


class FakeEngine:
    """An engine with three containers; it refuses new limits once one of them is gone."""

    def __init__(self):
        self.held = {"node1": Limit(), "node2": Limit(0.5, GIB), "node3": Limit()}
        self.gone = False

    def containers(self, name):
        return list(self.held)

    def limits(self, containers):
        return dict(self.held)

    def set_limits(self, containers, limits):
        if self.gone:
            raise ClusterError("node3 is gone")
        self.held |= limits


def test_processors_are_given_back_whatever_has_happened():
    engine = FakeEngine()
    processors = CpuLimits(engine, "lab")
    assert processors.document() == {"node2": {"cpus": 0.5, "memory_bytes": GIB}}
    processors.limit([{"all": 1.0}, {"node3": 0.25}])  # later limits override earlier ones
    assert engine.held == {"node1": Limit(1), "node2": Limit(1, GIB), "node3": Limit(0.25)}
    engine.gone = True
    with pytest.raises(ClusterError):
        processors.limit([{"node3": 0.5}])
    engine.gone = False
    assert processors.give_back()
    assert engine.held == processors.before
    assert not processors.give_back()


@pytest.mark.parametrize("cpus", [0.1, 0.123, 0.15, 0.25, 0.3, 0.5, 1, 1.5, 64])
def test_every_share_can_be_held_and_is_read_back(cpus):
    period, quota = cpu_share_us(cpus)
    assert quota >= 1000 and 4000 <= period <= 10_000  # the kernel's least; short ones act sooner
    assert read_limit({"CpuPeriod": period, "CpuQuota": quota}) == Limit(cpus)


def test_what_the_engine_says_is_read_back():
    assert read_limit({"CpuQuota": 2500, "CpuPeriod": 10_000, "Memory": GIB}) == Limit(0.25, GIB)
    assert read_limit({"CpuQuota": 50_000, "CpuPeriod": 0}) == Limit(0.5)
    assert read_limit({"NanoCpus": 1_500_000_000}) == Limit(1.5)
    for none in (
        {"CpuQuota": -1, "CpuPeriod": 10_000, "Memory": 2**60},
        {"CpuQuota": 0, "Memory": 0},
    ):
        assert read_limit(none) == Limit()


def test_limits_that_the_engine_enforces_otherwise_are_equal_and_keep_the_engines_own_values():
    held = {"CpuPeriod": 4_000, "CpuQuota": 2_000}
    ours = read_limit(held)
    for other in (
        {"CpuPeriod": 100_000, "CpuQuota": 50_000},
        {"NanoCpus": 500_000_000},
        {"CpuPeriod": 4_000, "CpuQuota": 2_000, "CpusetCpus": "0"},
        {"CpuPeriod": 4_000, "CpuQuota": 2_000, "CpuShares": 2},
    ):
        assert read_limit(other) == ours == Limit(0.5)
        assert enforced_limits(other) != enforced_limits(held)
        assert read_limit(other).document() == ours.document() == {"cpus": 0.5}


@pytest.mark.parametrize("limit", [Limit(), Limit(0.123), Limit(0.5, GIB), Limit(1.5)], ids=str)
def test_what_is_set_when_a_node_is_made_and_while_it_runs_is_read_back_alike(limit):
    """No limit is nothing to Compose, a quota of -1 to a running container, and 0 on hosts without an engine."""
    period, quota = cpu_share_us(limit.cpus) if limit.cpus else NO_SHARE
    said, memory = service_limits(limit), limit.memory_bytes
    made = {"CpuPeriod": said.get("cpu_period", 0), "CpuQuota": said.get("cpu_quota", 0)}
    held = {"CpuPeriod": period, "CpuQuota": quota, "NanoCpus": 0, "CpusetCpus": "", "CpuShares": 0}
    first, again = (
        made | {"Memory": said.get("mem_limit", 0)},
        held | {"Memory": memory or UNLIMITED_BYTES},
    )
    assert read_limit(first) == read_limit(again) == limit
    assert enforced_limits(first) == enforced_limits(again)
