"""Nodes on two hosts have no common clock: round trips are judged, and no one-way delay is made up."""

import io
import random
from dataclasses import replace

import pytest

from cluster.contract.checks import check_link
from cluster.contract.delays import fit_delays
from cluster.contract.look import judge_look
from cluster.contract.measured import Measured, summarise_pings
from cluster.contract.notes import clocks_note
from cluster.contract.probe_results import by_clocks
from cluster.contract.table import print_contract
from cluster.contract.verdicts import Contract, judge
from cluster.links.expected import Expected
from cluster.shaping.link_state import LinkState
from protocol.link import Link
from protocol.link_report import HostCounters, Shown
from protocol.probe import Arrivals, Pings

THERE = Link("node1", "node2", 5.0, 80.0, 0.0, 0.0, 160.0, "nfqueue")
BACK = Link("node2", "node1", 5.0, 40.0, 0.0, 0.0, 160.0, "nfqueue")
WEST, EAST = "0f0e", "a1b2"
TWO = Expected((THERE, BACK), clocks={"node1": WEST, "node2": EAST})
ONE = Expected((THERE, BACK), clocks={"node1": WEST, "node2": WEST})
DAYS_MS = 9.5e8
"""The difference between the boot times, and so the monotonic clocks, of two machines."""


def arrivals(delay_ms, jitter_ms=0.0, seed=1):
    stream = random.Random(seed)
    sent = [50.0 * number for number in range(400)]
    took = [delay_ms + stream.gauss(0, jitter_ms) for _ in sent]
    return Arrivals(len(sent), 0, 0, 0, sent, took)


def pinged(offset_ms, jitter_ms=0.0, there_ms=80.0, back_ms=40.0):
    """Return what node1's pings measure if node2's clock is `offset_ms` ahead."""
    there = arrivals(there_ms + offset_ms, jitter_ms, 1)
    back = arrivals(back_ms - offset_ms, jitter_ms, 2)
    rtt = [one + other for one, other in zip(there.one_way_ms, back.one_way_ms, strict=True)]
    ping = Pings(series=1, sent=400, late_ms=0.0, rtt_ms=rtt, back=back)
    links = (link._replace(jitter_ms=jitter_ms) for link in (THERE, BACK))
    first, second = summarise_pings(ping, there, [0.0], *links)
    return {THERE.ends: first, BACK.ends: second}


def test_who_shares_a_clock_is_told_by_what_names_it():
    assert ONE.has_one_clock(THERE.ends) and not TWO.has_one_clock(THERE.ends)
    assert Expected((THERE, BACK)).has_one_clock(THERE.ends)  # no clocks are known


@pytest.mark.parametrize("offset_ms", [0.0, 7.0, -DAYS_MS])
def test_between_two_clocks_a_round_trip_is_judged_and_one_way_is_unknown(offset_ms):
    found = by_clocks(pinged(offset_ms), TWO)
    for link in (THERE, BACK):
        assert found[link.ends].delay_ms is None
        assert check_link(link, TWO, found[link.ends]).failed == ()
    longer = by_clocks(pinged(offset_ms, there_ms=90.0), TWO)
    assert check_link(THERE, TWO, longer[THERE.ends]).failed == ("rtt",)


def test_by_one_clock_each_direction_is_judged():
    swapped = by_clocks(pinged(0.0, there_ms=40.0, back_ms=80.0), ONE)
    assert check_link(THERE, ONE, swapped[THERE.ends]).failed == ("delay",)
    assert check_link(BACK, ONE, swapped[BACK.ends]).failed == ("delay",)


def test_jitter_is_found_however_far_two_clocks_are_apart():
    near, far = fit_delays(*_times(0.0)), fit_delays(*_times(DAYS_MS))
    assert far.sd_ms == pytest.approx(near.sd_ms, rel=1e-3)
    assert far.mean_ms - DAYS_MS == pytest.approx(near.mean_ms, abs=1e-3)
    found = by_clocks(pinged(DAYS_MS, jitter_ms=5.0), TWO)
    assert found[THERE.ends].jitter_ms == pytest.approx(5.0, rel=0.1)
    assert found[THERE.ends].rtt_ms == pytest.approx(120.0, abs=1.0)


def _times(offset_ms):
    found = arrivals(80.0 + offset_ms, 5.0)
    return found.sent_ms, found.one_way_ms


def test_what_several_looks_found_is_put_together_without_it():
    one = by_clocks(pinged(7.0, jitter_ms=5.0), TWO)[THERE.ends]
    assert one.with_delays_and(one).delay_ms is None


def test_a_look_and_a_contract_say_nothing_of_it():
    found = by_clocks(pinged(7.0), TWO)
    look = judge_look(1.0, TWO, {link: found[link.ends] for link in (THERE, BACK)})
    assert look.failed == {} and look.document()["links"][0]["delay_ms"] is None
    contract = Contract((judge(THERE, TWO, found[THERE.ends]),))
    link = contract.document()["links"][0]
    assert link["measured"]["delay_ms"] is link["detectable"]["delay_ms"] is None
    table = io.StringIO()
    print_contract(contract, table)
    assert " -  " in table.getvalue() and contract.holds


def test_a_contract_notes_how_many_links_that_is():
    shown = {node: _shown(clock) for node, clock in TWO.clocks.items()}
    state = LinkState((THERE, BACK), {}, "cubic", (), 1450, {}, shown=shown)
    assert clocks_note(state).startswith("2 links are between hosts, without a common clock")
    assert clocks_note(replace(state, shown={})) == ""


def _shown(boot_id):
    host = HostCounters(0.0, [], None, None, boot_id)
    return Shown(None, None, {}, {}, [], None, host, None, [])


def test_a_measurement_without_clocks_is_as_it_was():
    assert Measured(1.0, 0.0, 1, 1, 1, 0, delay_ms=3.0).without_delays().rtt_ms == 1.0
