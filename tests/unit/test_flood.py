"""Counting datagrams: from samples of the kernel's counters to a rate."""

import pytest

from node.probe.flood import dropped_datagrams, summarise_flood

SNMP = """\
Icmp: InMsgs InErrors
Icmp: 1 2
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 10 20 30 40 50 60
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
UdpLite: 0 0 0 0 0 0
"""


def test_the_kernels_count_is_found_by_its_name():
    assert dropped_datagrams(SNMP) == 50


def test_only_the_time_counts_in_which_datagrams_came_without_a_pause():
    quiet = [(n * 0.05, 1000) for n in range(10)]
    # 100 a sample, from 0.5 s on; the first sample and the last are not full ones.
    busy = [(0.5, 1030), *((0.5 + n * 0.05, 1030 + n * 100) for n in range(1, 21)), (1.55, 3040)]
    after = [(1.6, 3040), (1.65, 3040)]
    found = summarise_flood(quiet + busy + after, skip_s=0.2)
    assert found["datagrams"] / found["seconds"] == pytest.approx(2000)
    assert 0.7 < found["seconds"] < 0.9


def test_nothing_came():
    assert summarise_flood([], 0.1) == {"datagrams": 0, "seconds": 0.0}
    assert summarise_flood([(0.0, 5), (0.05, 5)], 0.1) == {"datagrams": 0, "seconds": 0.0}
    assert summarise_flood([(0.0, 5), (0.05, 6)], 0.1) == {"datagrams": 0, "seconds": 0.0}
