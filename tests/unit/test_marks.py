"""Marks of a node's state: which differences count as a change, and which values vary by themselves."""

import pytest

from node.wire import marks
from node.wire.marks import without_counts

HTB = (
    "qdisc htb 6777:[67770000] dev eth0 root refcnt {} r2q 10 default 0x2 direct_packets_stat {} ver 3.17\n"
    "qdisc tbf 12:[00120000] dev eth0 parent 6777:12 rate 1Tbit limit {}b\n"
)
SAVED = "# iptables-save v1.8.11 on {}\n*raw\n:PREROUTING ACCEPT [{}]\n-A PREROUTING -i {} -j GRADWIRE_IN\n"


@pytest.mark.parametrize(
    ("text", "before", "counted", "changed"),
    [
        (HTB, (3, 0, 900), (2, 17, 900), (3, 0, 901)),
        (
            SAVED,
            ("Monday", "4:256", "eth0"),
            ("Tuesday", "19:1216", "eth0"),
            ("Monday", "4:256", "eth1"),
        ),
    ],
)
def test_counters_references_and_comments_do_not_count(text, before, counted, changed):
    was, now, other = (without_counts(text.format(*one)) for one in (before, counted, changed))
    assert was == now != other


def test_lists_that_other_containers_add_to_are_not_the_nodes_own(monkeypatch, tmp_path):
    """The kernel loads BBR when the first container uses it; from then on all containers have it in their lists."""
    monkeypatch.setattr(marks, "TCP_SETTINGS", tmp_path)
    (tmp_path / "tcp_rmem").write_text("4096 131072 6291456")
    before = marks._tcp_settings()
    for name in ("available", "allowed"):
        (tmp_path / f"tcp_{name}_congestion_control").write_text("reno cubic bbr")
    assert marks._tcp_settings() == before
    (tmp_path / "tcp_rmem").write_text("4096 131072 6291457")
    assert marks._tcp_settings() != before
