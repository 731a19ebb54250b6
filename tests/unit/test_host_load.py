"""Host load: from readings before and after a run to sentences, and the readings themselves."""

import json

import pytest

from cluster.shaping.host_load import compare_readings, overload_sentence
from node.wire.host_counters import cores, read_host_counters, throttled_s, waiting_s
from protocol.link_report import CoreTimes, HostCounters, Lateness, Settings, Shown
from protocol.reader import document, read

STAT = """\
cpu  300 0 200 1400 100 0 50 50 0 0
cpu0 100 0 100 700 50 0 30 20 0 0
cpu1 200 0 100 700 50 0 20 30 0 0
intr 12345 0 0
ctxt 1
"""


def reading(at_s=0.0, packets=0, late=0, dropped=0, throttled=0.0, core=None, waiting=0.0):
    """A reading of a host with two equal cores; `core` holds the seconds of idle, softirq and steal of each."""
    core = core or {"idle_s": at_s / 2}
    one = {"total_s": at_s, "idle_s": 0.0, "softirq_s": 0.0, "steal_s": 0.0} | core
    counters = HostCounters(at_s, [CoreTimes(**one)] * 2, waiting, throttled)
    return Shown(
        plan=None,
        report=None,
        counters={},
        received={},
        replayed=[],
        lateness=Lateness(packets, late, 9.0, dropped),
        host=counters,
        settings=Settings("6.1", 1, 1, 1, 1, True, "cubic", 1500),
        notes=[],
    )


def host(**after):
    return compare_readings({"node1": reading()}, {"node1": reading(at_s=100.0, **after)})


def test_ranks_that_keep_all_cores_busy_are_no_overload():
    busy = host(packets=10_000, late=100, core={"idle_s": 0.0}, waiting=90.0)
    assert busy.idle_pct == 0
    assert busy.waiting_pct == 90
    assert busy.late_pct == {"node1": 1.0}
    assert busy.limits == []
    assert overload_sentence(busy.limits) == ""


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"packets": 1000, "late": 300}, "30 % of the packets to node1 went too late"),
        ({"packets": 1000, "dropped": 7}, "7 packets to node1 were dropped"),
        ({"throttled": 20.0}, "a CPU limit took 20 % of the time of node1"),
        ({"throttled": 140.0}, "a CPU limit took 100 % of the time of node1"),  # two cores
        ({"core": {"steal_s": 12.0}}, "other machines took 12 % of the processors"),
        ({"core": {"softirq_s": 95.0}}, "packets alone kept a core busy 95 % of the time"),
    ],
)
def test_each_kind_of_overload_is_said(after, words):
    found = host(**after)
    assert len(found.limits) == 1
    assert words in found.limits[0]
    assert overload_sentence(found.limits).startswith(
        "the host, and not the links, was the limit: "
    )
    json.dumps(found.document())


def test_a_cpu_limit_is_told_in_seconds_and_as_a_share_of_the_time():
    found = host(throttled=20.0)
    assert (found.throttled_s, found.throttled_pct) == ({"node1": 20.0}, {"node1": 20.0})


def test_timers_that_are_late_are_an_overload():
    """Whatever takes the time: a guest under user-mode Linux has no other sign of it."""
    found = compare_readings({}, {}, timers_late_ms=1.26)
    assert found.limits == ["timers were 1.3 ms late"]
    assert compare_readings({}, {}, timers_late_ms=0.1).limits == []
    assert compare_readings({}, {}).timers_late_ms is None


HOSTS = {"node1": "host west", "node2": "host east", "node3": "host east"}


def several(*, timers_late_ms=None, hosts=HOSTS, **cores):
    """What is said of three nodes on two hosts; `cores` holds the seconds of the cores of some nodes."""
    before = {node: reading() for node in HOSTS}
    after = {node: reading(at_s=100.0, core=cores.get(node)) for node in HOSTS}
    return compare_readings(before, after, timers_late_ms, hosts).limits


def test_of_several_hosts_the_one_that_was_the_limit_is_named():
    assert several(node1={"steal_s": 7.0}, node2={"steal_s": 4.0}) == [
        "other machines took 7 % of the processors on host west"
    ]
    assert several(node2={"softirq_s": 90.0}, node3={"softirq_s": 95.0}) == [
        "packets alone kept a core busy 95 % of the time on host east"
    ]
    assert several(timers_late_ms={"node1": 0.1, "node3": 1.26}) == [
        "timers were 1.3 ms late on host east"
    ]


def test_of_several_that_were_the_limit_each_is_named():
    assert several(node1={"steal_s": 7.0}, node3={"steal_s": 12.0}) == [
        "other machines took up to 12 % of the processors on host west, host east"
    ]


def test_nodes_of_one_host_tell_the_same_of_it():
    """What all nodes read of their machine is said once, of no host in particular."""
    assert several(hosts=None, node1={"steal_s": 7.0}, node3={"steal_s": 12.0}) == [
        "other machines took 12 % of the processors"
    ]
    assert several(timers_late_ms={"node1": 0.9, "node2": 1.26}, hosts={}) == [
        "timers were 1.3 ms late"
    ]
    late = compare_readings({}, {}, {"node1": 0.9, "node2": 1.26})
    assert late.timers_late_ms == 1.26


def test_only_what_happened_between_the_readings_counts():
    """Of several late nodes, the worst is reported."""
    before = {name: reading(10.0, packets=900, late=800, dropped=5) for name in ("node1", "node2")}
    after = {
        "node1": reading(20.0, packets=1900, late=900, dropped=5),
        "node2": reading(20.0, packets=1900, late=1200, dropped=5),
    }
    found = compare_readings(before, after)
    assert found.late_pct == {"node1": 10.0, "node2": 40.0}
    assert found.dropped == {"node1": 0, "node2": 0}
    assert found.worst_ms == {"node1": 9.0, "node2": 9.0}  # since the wires were set up
    assert found.limits == ["up to 40 % of the packets to node1, node2 went too late"]


def test_a_wire_that_was_started_anew_or_cannot_tell_is_no_error():
    before = {"node1": reading(10.0, packets=900, late=800)}
    anew = compare_readings(before, {"node1": reading(20.0, packets=100, late=1)})
    assert anew.late_pct == {"node1": 1.0}
    silent = {"node1": reading(20.0)._replace(lateness=None)}
    assert compare_readings(before, silent).late_pct == {}
    assert compare_readings(silent, {"node1": reading(30.0, packets=10)}).late_pct == {"node1": 0.0}
    unlimited = reading(20.0, throttled=None)
    assert compare_readings(before, {"node1": unlimited}).throttled_s == {}
    assert compare_readings({}, before).limits == []


def test_proc_stat_is_read_core_by_core():
    first, second = cores(STAT)
    assert first.total_s == pytest.approx(10.0)  # the file counts hundredths of a second
    assert (first.idle_s, first.softirq_s, first.steal_s) == (7.5, 0.3, 0.2)
    assert second.steal_s == 0.3


def test_pressure_and_throttling_are_read_from_either_kernel():
    pressure = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4500000\nfull avg10=0 total=7\n"
    assert waiting_s(pressure) == 4.5
    assert throttled_s("usage_usec 9\nnr_throttled 2\nthrottled_usec 1500000\n") == 1.5
    assert throttled_s("nr_periods 3\nnr_throttled 2\nthrottled_time 2500000000\n") == 2.5
    assert throttled_s("usage_usec 9\nuser_usec 8\n") is None  # neither a limit nor the controller


def test_this_machine_can_be_read():
    found = read_host_counters()
    assert read(HostCounters, json.loads(json.dumps(document(found)))) == found
    assert found.cores
    assert found.at_s > 0


def test_where_no_packet_was_late_between_readings_none_was_by_more_than_a_wire_counts_as_late():
    """The worst packet was before the first reading."""
    assert host(packets=1000, late=0).worst_ms == {"node1": 1.0}
    assert host(packets=1000, late=1).worst_ms["node1"] > 1.0
