"""The contract: expectations from first principles, verdicts that can fail."""

import io
import json
import random
from dataclasses import replace

import pytest

from cluster.contract.floods import flooded_mbyte_s
from cluster.contract.gloo import gloo_note
from cluster.contract.measured import Measured, Queue, Rate, summarise_pings
from cluster.contract.table import print_contract
from cluster.contract.verdicts import Contract, carried_share, judge, judge_access
from cluster.links.expected import (
    Expected,
    all_reduce_mbyte_s,
    loss_interval,
    loss_note,
    mathis_mbyte_s,
)
from protocol.link import Link
from protocol.probe import Arrivals, Pings

THERE = Link("node1", "node2", 5.0, 80.0, 0.0, 0.0, 160.0, "nfqueue")
BACK = Link("node2", "node1", 5.0, 80.0, 0.0, 0.0, 160.0, "nfqueue")
LINKS = (THERE, BACK)
GOOD = Measured(
    rtt_ms=160.2,
    jitter_ms=0.1,
    samples=60,
    sent=60,
    arrived=60,
    reordered=0,
    goodput_mbyte_s=4.77,
    early_rtt_ms=160.0,
    delay_ms=80.1,
    early_delay_ms=80.0,
)


def test_goodput_is_the_payloads_share_of_full_frames():
    assert Expected(LINKS).goodput_mbyte_s(THERE) == pytest.approx(5 * 1448 / 1514)


def test_a_link_that_is_what_was_asked_for_holds():
    assert judge(THERE, Expected(LINKS), GOOD).broken == ()


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"rtt_ms": 176.0}, "rtt"),  # a delay that is 10 % off
        ({"rtt_ms": 157.0}, "rtt"),
        ({"delay_ms": 81.6}, "delay"),  # one way 2 % too long, though the round trip is right
        ({"delay_ms": 78.4}, "delay"),
        ({"queue": Queue(140.0, 0.0)}, "buffer"),
        ({"queue": Queue(180.0, 0.0)}, "buffer"),
        ({"jitter_ms": 20.0}, "jitter"),
        ({"arrived": 59}, "loss"),
        ({"reordered": 1}, "reordering"),
        ({"goodput_mbyte_s": 4.4}, "goodput"),
        ({"goodput_mbyte_s": 5.1}, "goodput"),  # too fast is wrong, too
        ({"goodput_mbyte_s": 0.0}, "goodput"),
    ],
)
def test_each_deviation_breaks_the_contract_by_name(change, broken):
    verdict = judge(THERE, Expected(LINKS), replace(GOOD, **change))
    assert verdict.broken == (broken,)
    contract = Contract((verdict,))
    assert not contract.holds
    assert f"node1 -> node2 ({broken})" in contract.verdict()


def test_what_loss_leaves_to_tcp_is_said_before_anything_is_sent():
    """Mathis et al. (1997): 1448 bytes, 160 ms, 2 %: 1.22 x 1448 / 0.16 / 0.1414."""
    lossy = THERE._replace(loss_pct=2.0)
    assert mathis_mbyte_s(1500, 160.0, 2.0) == pytest.approx(0.0781, rel=0.01)
    assert Expected((lossy, BACK)).goodput_mbyte_s(lossy) == pytest.approx(0.0781, rel=0.01)
    assert "node1 -> node2, 2 % lost, gets about 0.0781 of 5 MB/s" in loss_note(
        Expected((lossy, BACK))
    )
    assert loss_note(Expected((lossy, BACK), tcp="bbr")) == ""
    assert loss_note(Expected(LINKS)) == ""


@pytest.mark.parametrize(
    ("goodput_mbyte_s", "rtt_ms", "measured"), [(38.26, 60.0, 18.25), (47.82, 300.0, 6.24)]
)
def test_what_gloos_all_reduce_gets_of_a_link_is_what_was_measured(
    goodput_mbyte_s, rtt_ms, measured
):
    """Measured on real links, with all-reduces of 16 and 64 MB between two nodes (docs/LOG.md)."""
    assert all_reduce_mbyte_s(goodput_mbyte_s, rtt_ms) == pytest.approx(measured, rel=0.03)


def test_links_that_an_all_reduce_does_not_fill_are_said_and_hold_all_the_same():
    """40 MB/s over 160 ms need 6 MB in flight, gloo has 2 MiB; 5 MB/s need 0.8 MB."""
    fast = THERE._replace(rate_mbyte_s=40.0)
    asked = Expected((fast, BACK))
    there = judge(fast, asked, replace(GOOD, goodput_mbyte_s=38.2))
    back = judge(BACK, asked, GOOD)
    note = gloo_note([there, back])
    assert "less than half of 1 links" in note
    assert "node1 -> node2 carries 9.76 of 38.3 MB/s" in note
    assert there.broken == () and gloo_note([back]) == ""
    document = Contract((there, back)).document()
    assert [row["gloo_mbyte_s"] for row in document["links"]] == [
        pytest.approx(9.76, rel=0.01),
        pytest.approx(3.50, rel=0.01),
    ]


def test_a_link_that_this_machine_clips_is_held_against_what_it_gave():
    """The requested 5000 MB/s over 2 ms need 9.6 MB in flight; an all-reduce gets nearly all of the actual 150 MB/s."""
    links = tuple(link._replace(rate_mbyte_s=5000.0, delay_ms=1.0) for link in LINKS)
    found = replace(GOOD, rtt_ms=2.1, delay_ms=1.05, goodput_mbyte_s=150.0, rate=Rate(160.0, 2.0))
    clipped = judge(links[0], Expected(links), found)
    assert clipped.clipped and gloo_note([clipped]) == ""
    assert gloo_note([replace(clipped, clipped=False)])


def test_a_narrow_uplink_is_what_a_link_can_be_expected_to_carry():
    asked = Expected(LINKS, uplinks={"node1": 2.0})
    assert asked.rate_mbyte_s(THERE) == 2.0
    assert asked.rate_mbyte_s(BACK) == 5.0
    assert judge(THERE, asked, replace(GOOD, goodput_mbyte_s=1.91)).broken == ()
    assert judge(THERE, asked, GOOD).broken == ("goodput",)  # faster than the uplink allows
    (access,) = asked.accesses()
    assert asked.access_mbyte_s(access) == 2.0
    assert judge_access(access, 2.0, Rate(1.98, 99.0)).holds
    broken = Contract((), (judge_access(access, 2.0, Rate(3.9, 99.0)),))
    assert not broken.holds
    assert broken.verdict() == "broken: node1 (uplink)"
    assert [row["node"] for row in broken.document()["uplinks"]] == ["node1"]
    assert broken.document()["downlinks"] == []


def test_a_downlink_counts_what_comes_through():
    links = (THERE._replace(loss_pct=10.0), BACK)
    asked = Expected(links, downlinks={"node2": 2.0})
    assert asked.rate_mbyte_s(links[0]) == pytest.approx(
        2.0 / 0.9
    )  # a tenth is lost before the downlink
    assert asked.as_limited(links[0]).rate_mbyte_s == asked.rate_mbyte_s(links[0])
    (access,) = asked.accesses()
    assert (access.kind, access.links) == ("downlink", links[:1])
    assert access.share_pct(links[0]) == 90.0
    assert asked.access_mbyte_s(access) == pytest.approx(2.0)
    slower = replace(asked, links=(links[0]._replace(rate_mbyte_s=1.0), BACK))
    assert slower.access_mbyte_s(slower.accesses()[0]) == pytest.approx(0.9)  # the rest is lost
    wide = Expected((links[0], THERE._replace(src="node3")), downlinks={"node2": 2.0})
    assert wide.access_mbyte_s(wide.accesses()[0]) == 2.0


def test_the_rate_of_a_rough_link_is_judged_by_datagrams():
    rough = THERE._replace(loss_pct=2.0)
    found = replace(GOOD, sent=600, arrived=588, goodput_mbyte_s=0.1, rate=Rate(4.95, 99.0))
    assert judge(rough, Expected((rough, BACK)), found).broken == ()
    assert judge(rough, Expected((rough, BACK)), replace(found, rate=Rate(4.0, 99.0))).broken == (
        "rate",
    )
    # Of 1000 datagrams in 1 s, 2 % are lost after they have used the link's rate.
    assert flooded_mbyte_s(rough, 980) == pytest.approx(1.514)
    # Duplicates have used the link only once.
    twice = rough._replace(duplicate_pct=5.0)
    assert flooded_mbyte_s(twice, 1029) == pytest.approx(1.514)


def test_where_datagrams_and_tcp_told_a_clean_links_speed_both_are_judged():
    asked, both = Expected(LINKS), replace(GOOD, rate=Rate(4.97, 99.0))
    assert judge(THERE, asked, both).broken == ()
    slow = replace(both, rate=Rate(4.6, 99.0), goodput_mbyte_s=4.4)
    assert judge(THERE, asked, slow).broken == ("rate", "goodput")
    assert judge(THERE, asked, replace(both, rate=Rate(5.3, 99.0))).broken == ("rate",)
    assert judge(THERE, asked, replace(both, goodput_mbyte_s=4.0)).broken == ("goodput",)
    assert judge(THERE, asked, replace(both, goodput_mbyte_s=None)).broken == ()


@pytest.mark.parametrize("full_pct", [0.0, 99.0])
def test_a_link_that_carried_its_rate_by_tcp_is_not_called_slow_if_datagrams_were_fewer(full_pct):
    """As on netem in the guest: 20.5 MB/s by datagrams on a link of 28.3 that carried 27.0 MB/s of TCP's payload."""
    links = [link._replace(rate_mbyte_s=28.3) for link in LINKS]
    asked = Expected(tuple(links))
    found = replace(GOOD, rate=Rate(20.5, full_pct), goodput_mbyte_s=27.0)
    assert judge(links[0], asked, found).failed == ()
    for slow_mbyte_s in (26.0, None):
        slow = replace(found, goodput_mbyte_s=slow_mbyte_s)
        assert "rate" in judge(links[0], asked, slow).broken
    # More than the link's rate is data that a busy host delayed. It says nothing about the rate.
    assert judge(links[0], asked, replace(found, goodput_mbyte_s=28.0)).broken == (
        "rate",
        "goodput",
    )
    rough = links[0]._replace(jitter_ms=2.0)  # even where TCP itself is not judged
    assert "rate" not in judge(rough, Expected((rough, links[1])), found).broken


def test_the_verdict_says_what_told_the_speeds():
    def verdicts(*measured):
        return tuple(judge(THERE, Expected(LINKS), one) for one in measured)

    rate = replace(GOOD, goodput_mbyte_s=None, rate=Rate(4.97, 99.0))
    unknown = replace(GOOD, goodput_mbyte_s=None)
    both = replace(GOOD, rate=Rate(4.97, 99.0))
    said = {
        "speeds by TCP": (GOOD, GOOD),
        "speeds not measured": (unknown,),
        "speeds of 2 by datagrams, of 1 by TCP and datagrams": (rate, both, rate),
    }
    for words, measured in said.items():
        assert Contract(verdicts(*measured)).verdict().endswith(words)
    document = Contract(verdicts(rate, both)).document()
    assert [link["speed_by"] for link in document["links"]] == [
        "by datagrams",
        "by TCP and datagrams",
    ]


def test_a_link_that_is_asked_to_lose_everything_holds_when_it_does():
    cut = THERE._replace(loss_pct=100.0)
    asked = Expected((cut, BACK))
    silent = replace(GOOD, rtt_ms=float("inf"), arrived=0, goodput_mbyte_s=None)
    assert judge(cut, asked, silent).broken == ()
    assert judge(cut, asked, replace(silent, arrived=30)).broken == ("loss",)
    unknown = judge(BACK, asked, replace(silent, sent=0))  # no pings arrived to be echoed
    assert unknown.broken == ()
    contract, said = Contract((judge(cut, asked, silent), unknown)), io.StringIO()
    assert "all 2 links hold, 1 not measured" in contract.verdict()
    assert contract.document()["links"][1]["measured"]["loss_pct"] is None
    print_contract(contract, said)
    assert "inf" not in said.getvalue() and "not measured: the way back is cut" in said.getvalue()
    assert loss_note(asked) == ""


def test_loss_is_held_against_its_binomial_interval():
    low, high = loss_interval(600, 1.0)
    assert low == 0
    assert 13 <= high <= 16  # mean 6, standard deviation 2.44; tables: P(X > 15) = 0.0004
    low, high = loss_interval(6000, 1.0)
    assert 33 <= low <= 38
    assert 85 <= high <= 90
    assert loss_interval(100, 0) == (0, 0)
    assert loss_interval(100, 100) == (100, 100)


def test_a_link_asked_to_lose_packets_must_lose_them():
    lossy = THERE._replace(loss_pct=5.0)
    lossless = replace(GOOD, sent=600, arrived=600)
    assert judge(lossy, Expected((lossy, BACK)), lossless).broken == ("loss",)
    assert judge(lossy, Expected((lossy, BACK)), replace(lossless, arrived=570)).broken == ()


def test_tcp_under_jitter_or_loss_is_measured_but_not_judged():
    rough = THERE._replace(jitter_ms=8.0)
    slow = replace(GOOD, jitter_ms=8.0, samples=600, goodput_mbyte_s=1.0)
    assert judge(rough, Expected((rough, BACK)), slow).broken == ()
    assert judge(rough, Expected((rough, BACK)), replace(slow, goodput_mbyte_s=0.0)).broken == (
        "goodput",
    )


def test_a_rate_beyond_the_machine_is_clipped_and_said_and_a_slow_link_is_not():
    """The difference: a slow machine leaves the link's queue empty, a slow link has a full one."""
    fast = THERE._replace(rate_mbyte_s=2000.0)
    asked, found = Expected((fast, BACK)), replace(GOOD, goodput_mbyte_s=300.0)
    slow_machine = judge(fast, asked, replace(found, rate=Rate(500.0, 1.0)))
    assert slow_machine.clipped
    assert slow_machine.broken == ()
    assert "1 clipped" in Contract((slow_machine,)).verdict()
    slow_link = judge(fast, asked, replace(found, rate=Rate(500.0, 99.0)))
    assert slow_link.broken == ("rate", "goodput") and not slow_link.clipped
    assert judge(fast, asked, found).broken == ("goodput",)  # without a flood, nobody can tell
    assert not judge(THERE, Expected(LINKS), replace(GOOD, goodput_mbyte_s=1.0)).clipped
    # A machine that sends less than even this is busy, not at its limit.
    starved = replace(GOOD, goodput_mbyte_s=1.0, rate=Rate(2.0, 1.0))
    assert judge(THERE, Expected(LINKS), starved).broken == ("rate", "goodput")


def test_where_datagrams_fill_a_fast_link_tcp_that_does_not_is_clipped():
    fast = THERE._replace(rate_mbyte_s=500.0)
    found = replace(GOOD, goodput_mbyte_s=300.0, rate=Rate(499.0, 97.0))
    verdict = judge(fast, Expected((fast, BACK)), found)
    assert verdict.clipped and verdict.broken == ()


def arrivals(one_way_ms, reordered=0, interval_ms=1000.0):
    return Arrivals(
        arrived=len(one_way_ms),
        reordered=reordered,
        twice=0,
        gaps=0,
        sent_ms=[number * interval_ms for number in range(len(one_way_ms))],
        one_way_ms=one_way_ms,
    )


def pings(sent, rtt_ms, back):
    return Pings(series=1, sent=sent, late_ms=0.1, rtt_ms=rtt_ms, back=back)


def test_pings_are_summarised_by_direction_without_the_hosts_own_share():
    ping = pings(5, [10.3, 10.2, 30.0], arrivals([5.0, 5.0, 5.0]))
    there, back = summarise_pings(ping, arrivals([5.0, 6.0, 7.0, 6.0], reordered=1), host_ms=[0.2])
    assert there.rtt_ms == back.rtt_ms == pytest.approx(10.1)
    assert (there.samples, there.sent, there.arrived, there.reordered) == (3, 5, 4, 1)
    assert (back.samples, back.sent, back.arrived, back.reordered) == (3, 4, 3, 0)
    assert there.jitter_ms > back.jitter_ms == 0
    assert (there.delay_ms, back.delay_ms) == (pytest.approx(5.9), pytest.approx(4.9))
    assert (there.early_delay_ms, back.early_delay_ms) == (
        pytest.approx(4.9),
        pytest.approx(4.9),
    )


def test_on_links_that_jitter_both_directions_are_fitted_whatever_their_clocks():
    stream = random.Random(4)
    there = arrivals([stream.gauss(1050, 8) for _ in range(2000)])  # a clock that is 1000 ms ahead
    back = arrivals([stream.gauss(-970, 4) for _ in range(2000)])
    ping = pings(2000, [80.0], back)
    first, second = summarise_pings(ping, there, [0.2], THERE._replace(jitter_ms=8.0), BACK)
    assert first.rtt_ms == second.rtt_ms == pytest.approx(79.8, abs=0.6)
    assert (first.jitter_ms, second.jitter_ms) == (
        pytest.approx(8, rel=0.05),
        pytest.approx(4, rel=0.05),
    )


def test_a_link_that_carries_nothing_is_broken_and_still_a_document():
    silent = pings(4, [], arrivals([]))
    there, back = summarise_pings(silent, arrivals([]), [0.2])
    assert (there.rtt_ms, there.lost_pct, back.lost_pct) == (float("inf"), 100, None)
    dead = judge(BACK, Expected(LINKS), replace(back, goodput_mbyte_s=0.0))
    document = Contract((dead,)).document()
    assert document["links"][0]["broken"] == ["delay", "rtt", "goodput"]
    json.dumps(document, allow_nan=False)


def test_what_a_link_does_while_the_host_holds_nothing_up_is_told_by_the_earliest_tenth():
    trips = [
        10.2,
        *[13.0] * 5,
        10.4,
        10.3,
        *[90.0] * 12,
    ]  # the third value ends the earliest tenth of twenty
    ping = pings(20, trips, arrivals([5.3] * 20))
    there, back = summarise_pings(ping, arrivals([5.3] * 20), host_ms=[0.2] * 5 + [7.0] * 5)
    assert there.early_rtt_ms == back.early_rtt_ms == pytest.approx(10.4 - 0.2)
    assert summarise_pings(ping._replace(rtt_ms=[]), arrivals([]), [0.2])[0].early_rtt_ms == float(
        "inf"
    )


def test_early_round_trips_are_known_though_no_ping_is_early_in_both_directions():
    """On a crowded machine: a fifth of the pings is on time in each direction, but no ping in both."""
    there, back = ([5.0] * 4 + [25.0] * 16, [25.0] * 16 + [5.0] * 4)
    trips = [way + other for way, other in zip(there, back, strict=True)]
    one, other = summarise_pings(pings(20, trips, arrivals(back)), arrivals(there), host_ms=[0.2])
    assert min(trips) == 30 and one.rtt_ms == pytest.approx(49.8)
    assert one.early_rtt_ms == other.early_rtt_ms == pytest.approx(9.8)


def test_the_table_has_its_figures_on_the_right_and_fits_a_terminal():
    far = [link._replace(rate_mbyte_s=link.rate_mbyte_s * 100) for link in (THERE, BACK)]
    good = replace(GOOD, rate=Rate(1.0, 99.0), goodput_mbyte_s=600.123, loaded_rtt_ms=1234.5)
    verdicts = [judge(THERE, Expected(LINKS), GOOD), judge(far[1], Expected(tuple(far)), good)]
    print_contract(Contract(tuple(verdicts)), said := io.StringIO())
    header, first, second = said.getvalue().splitlines()[:3]
    assert max(map(len, (header, first))) < 100
    assert header.split("  ")[0] == "MEASURED/ASKED"
    for title in ("DELAY ms", "GOODPUT MB/s"):
        end = header.index(title) + len(title)
        assert {
            line[end - 1].isdigit() and line[end : end + 1] == " " for line in (first, second)
        } == {True}


ROUGH = {"jitter_ms": 8.0}
FAST = {"rate_mbyte_s": 50.0}


@pytest.mark.parametrize(
    ("asked", "found", "broken"),
    [
        ({}, {"goodput_mbyte_s": 4.78 * 0.965}, "goodput"),
        ({}, {"goodput_mbyte_s": 4.78 * 1.035}, "goodput"),
        ({}, {"rate": Rate(5 * 0.975, 99.0), "goodput_mbyte_s": None}, "rate"),
        ({}, {"rate": Rate(5 * 1.025, 99.0)}, "rate"),
        (
            FAST,
            {"rate": Rate(20.0, 0.0), "goodput_mbyte_s": None},
            "rate",
        ),  # any machine can send this much
        ({}, {"rtt_ms": 162.5}, "rtt"),
        ({}, {"rtt_ms": 157.5}, "rtt"),
        ({}, {"jitter_ms": 2.5}, "jitter"),
        (ROUGH, {"jitter_ms": 11.5, "samples": 600}, "jitter"),
        (ROUGH, {"jitter_ms": 4.5, "samples": 600}, "jitter"),
        (ROUGH, {"jitter_ms": 8.0, "samples": 600, "rtt_samples": 600, "rtt_ms": 165.5}, "rtt"),
    ],
)
def test_what_is_a_little_more_wrong_than_is_allowed_is_broken(asked, found, broken):
    """Not only gross errors: tolerances and chance intervals are as narrow as documented."""
    there, back = (link._replace(**asked) for link in LINKS)
    good = replace(GOOD, goodput_mbyte_s=Expected((there, back)).goodput_mbyte_s(there))
    verdict = judge(there, Expected((there, back)), replace(good, **found))
    assert verdict.broken == (broken,)


def test_losses_before_a_downlink_leave_it_full():
    """Both wires drop before it: 5 % lost of 10.5 MB/s fill a downlink of 10."""
    links = (THERE._replace(rate_mbyte_s=100.0, loss_pct=5.0), BACK)
    asked = Expected(links, downlinks={"node2": 10.0})
    rate = Rate(flooded_mbyte_s(links[0], 10.0e6 / 1514), 99.0)
    found = replace(GOOD, sent=800, arrived=760, goodput_mbyte_s=None, rate=rate)
    assert judge(links[0], asked, found).broken == ()
    (access,) = asked.accesses()
    assert judge_access(access, asked.access_mbyte_s(access), Rate(10.0, 99.0)).holds


def test_a_downlink_that_drops_what_was_sent_is_the_limit_and_not_the_machine():
    """Its queue is at the receiver: senders that are slower than their own links never see it full."""
    fast = THERE._replace(rate_mbyte_s=3000.0)
    asked = Expected((fast, BACK), downlinks={"node2": 500.0})
    (access,) = asked.accesses()
    wrong, right = Rate(120.0, 0.0, sent_mbyte_s=400.0), Rate(380.0, 0.0, sent_mbyte_s=390.0)
    assert not judge_access(access, 500.0, wrong).holds
    assert judge_access(access, 500.0, right).clipped
    found = replace(GOOD, goodput_mbyte_s=None)
    assert judge(fast, asked, replace(found, rate=wrong)).broken == ("rate",)
    assert judge(fast, asked, replace(found, rate=right)).clipped


def test_the_interval_of_any_number_of_packets_is_known_at_once():
    low, high = loss_interval(10**18, 1.0)
    assert low < 10**16 < high and high - low < 10**10
    exact, normal = loss_interval(9_900_000, 1.0), loss_interval(10_100_000, 1.0)
    assert normal[1] - normal[0] == pytest.approx(exact[1] - exact[0], rel=0.02)


def test_a_link_that_is_broken_is_not_said_to_be_cut():
    silent = replace(GOOD, rtt_ms=float("inf"), sent=0, arrived=0, goodput_mbyte_s=None)
    print_contract(Contract((judge(BACK, Expected(LINKS), silent),)), said := io.StringIO())
    assert "BROKEN: delay, rtt" not in said.getvalue()  # its own delay was measured well
    assert "BROKEN: rtt" in said.getvalue() and "is cut" not in said.getvalue()


@pytest.mark.parametrize(
    ("starved", "share"),
    [(0, 1.0), (2, 1.0), (5, 0.3), (9, 0.3)],
)
def test_a_machine_that_carried_most_links_has_carried_them(starved, share):
    """A sender that had to wait for a moment says nothing about what the machine carries, nor does a slow link."""
    rates = [Rate(1.5, 0.0)] * starved + [Rate(2.0, 60.0)] * (9 - starved)
    verdicts = [judge(THERE, Expected(LINKS), replace(GOOD, rate=rate)) for rate in rates]
    assert carried_share(verdicts) == pytest.approx(share)
    assert carried_share([judge(THERE, Expected(LINKS), GOOD)]) == 1.0  # no rate has been measured
