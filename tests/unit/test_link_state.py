"""Bytes of the links in force, from two readings of all nodes."""

from cluster.shaping.link_state import LinkState, sent_bytes
from protocol.link_report import LinkCounters


def link_state(counters):
    """A link state with only the kernel's byte counters: node -> peer -> bytes."""
    counted = {
        src: {dst: LinkCounters(count, 0, 0, 0, 0) for dst, count in peers.items()}
        for src, peers in counters.items()
    }
    return LinkState((), {}, "cubic", (), 1500, counted)


def test_bytes_of_a_run_are_the_difference_of_two_readings():
    before = link_state({"node1": {"node2": 1_000_000}, "node2": {"node1": 5}})
    after = link_state({"node1": {"node2": 4_000_000, "node3": 70}, "node2": {"node1": 5}})
    assert sent_bytes(before, after) == {
        "node1->node2": 3_000_000,
        "node1->node3": 70,
        "node2->node1": 0,
    }
