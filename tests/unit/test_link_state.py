"""The links in force: bytes, from two readings of all nodes, and whether they are those that are requested."""

from plans import node_plan

from cluster.shaping.link_state import LinkState, are_on_wire, sent_bytes
from protocol.link import Link
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


def test_links_that_were_laid_anew_meanwhile_carried_what_they_counted_since():
    """Their counters begin again at 0; what they had carried of the run before that is not known."""
    before = link_state({"node1": {"node2": 5_000_000}})
    after = link_state({"node1": {"node2": 1_000}})
    assert sent_bytes(before, after) == {"node1->node2": 1_000}


def test_a_plan_that_names_the_wire_which_auto_became_is_in_force():
    link = Link("node1", "node2", 5.0, 20.0, 0.0, 0.0, 40.0, "auto")
    plan = node_plan([2], [link], origin={"profile": "near", "wire": "auto"})
    shown = (link._replace(wire="nfqueue"),)  # as the node reports it
    in_force = LinkState(shown, {"node1": plan}, "cubic", (), 1500, {})
    assert are_on_wire(in_force, {"node1": plan.on_wire("nfqueue")})
    assert not are_on_wire(in_force, {"node1": plan.on_wire("netem")})
    other = node_plan([2], [link._replace(rate_mbyte_s=6.0)], origin=plan.origin)
    assert not are_on_wire(in_force, {"node1": other.on_wire("nfqueue")})
    # On a kernel with netem, `auto` is netem.
    pinned = LinkState(shown, {"node1": plan.on_wire("nfqueue")}, "cubic", (), 1500, {})
    assert not are_on_wire(pinned, {"node1": plan})
    assert not are_on_wire(LinkState((), {}, "cubic", (), 1500, {}), {})
