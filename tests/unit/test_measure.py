"""A measurement: what its findings are compared with, what is measured again, and how doubts are resolved."""

import math
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest

from cluster.contract import measure
from cluster.contract.measured import DropCount, Measured, Queue, Rate
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.probe_schedule import ProbeSchedule
from cluster.contract.witness import DropCounters, Witness
from cluster.links.expected import Expected
from protocol.link import Link
from protocol.link_report import (
    CoreTimes,
    HostCounters,
    Lateness,
    Settings,
    Shown,
    WireCounters,
)

THERE = Link("node4", "node2", 5.0, 1.0, 0.0, 0.0, 40.0)
BACK = Link("node2", "node4", 5.0, 4.0, 0.0, 0.0, 40.0)
VIA = {THERE: ("node3",), BACK: ("node3",)}
GOOD = Measured(5.0, 0.0, 60, 60, 60, 0, late_ms=0.1, early_rtt_ms=5.0)
UNEVEN = replace(GOOD, jitter_ms=1.4)
CORE = CoreTimes(total_s=0.0, idle_s=0.0, softirq_s=0.0, steal_s=0.0)
SETTINGS = Settings("6.1", 1, 1, 1, 1, True, "cubic", 1500)


class Nodes:
    """Readings of three nodes whose wires release a share of the packets late; each reading counts more packets."""

    def __init__(self, late_pct):
        self.read, self.late_pct = 0, dict(late_pct)

    def readings(self):
        return {name: self.reading(name) for name in ("node2", "node3", "node4")}

    def reading(self, name):
        packets = 1000 * self.read
        late = packets * self.late_pct.get(name, 0) // 100
        host = HostCounters(at_s=self.read, cores=[CORE], waiting_s=None, throttled_s=None)
        return Shown(None, None, {}, {}, [], Lateness(packets, late, 20.0, 0), host, SETTINGS, [])

    def shown(self):
        self.read += 1
        return self.readings()


@pytest.fixture
def make_survey(monkeypatch):
    """A function that surveys a pair of nodes, with or without a link, whose pings yield these findings in turn."""
    monkeypatch.setattr(measure.time, "sleep", lambda seconds: None)

    def make(*found, links=(), via=VIA, late_pct=(), timers_late_ms=MappingProxyType({})):
        looks, nodes = iter(found), Nodes(late_pct)

        def ping_links(prober, links, asked, effort, apart=1.0):
            assert {link.ends for link in asked} == {THERE.ends, BACK.ends}
            now = next(looks)
            return {link.ends: replace(now, delay_ms=link.delay_ms) for link in links}

        monkeypatch.setattr(measure, "ping_links", ping_links)
        names = ["node2", "node3", "node4"]
        late_ms = {name: timers_late_ms.get(name, 0.1) for name in names}
        prober = SimpleNamespace(nodes=names, timers_late_ms=lambda: late_ms, shown=nodes.shown)
        seen = Witness({}, prober, nodes.readings())
        timetable = ProbeSchedule(frozenset(), frozenset(), frozenset(), 1.0)
        return measure._Survey(
            prober, seen, Expected(links), via, EFFORTS["quick"], timetable, lambda words: None
        ), nodes

    return make


@pytest.mark.parametrize("links", [[THERE, BACK], [THERE], [BACK]])
def test_a_path_has_two_directions_also_where_one_is_measured_again(make_survey, links):
    """With one direction alone, half of the round trip was expected: a path that was once in doubt stayed broken."""
    survey, _ = make_survey(GOOD)
    for verdict in survey.paths(measure._Look(links)):
        assert verdict.expected_rtt_ms == 5.0
        assert verdict.broken == ()
        assert verdict.via == ("node3",)


def sure(survey, links):
    verdicts, again = survey.until_sure(survey.links, links)
    return [(verdict.broken, verdict.undecided) for verdict in verdicts], again


def test_where_all_holds_at_once_no_node_is_asked(make_survey):
    survey, nodes = make_survey(GOOD, links=(THERE, BACK), via={})
    assert sure(survey, [THERE]) == ([((), ())], 0)
    assert nodes.read == 0


def test_a_link_is_undecided_only_after_three_looks_at_a_busy_host(make_survey):
    busy = {"node2": 30}
    survey, nodes = make_survey(*[UNEVEN] * 3, links=(THERE, BACK), via={}, late_pct=busy)
    assert sure(survey, [THERE]) == ([((), ("jitter",))], 2)
    assert nodes.read == 3
    survey, nodes = make_survey(UNEVEN, UNEVEN, GOOD, links=(THERE, BACK), via={}, late_pct=busy)
    assert sure(survey, [THERE]) == ([((), ())], 2)


def test_each_pass_pings_half_as_often_as_the_one_before(make_survey, monkeypatch):
    """Else all passes over 64 nodes on two slow processors are as late as the first one."""
    survey, _ = make_survey(*[UNEVEN] * 3, links=(THERE, BACK), via={}, late_pct={"node2": 30})
    paces, ping_links = [], measure.ping_links

    def noted(prober, links, asked, effort):
        paces.append(effort.pace)
        return ping_links(prober, links, asked, effort)

    monkeypatch.setattr(measure, "ping_links", noted)
    sure(survey, [THERE])
    assert paces == [1.0, 0.5, 0.25]


def test_a_link_is_broken_where_its_own_nodes_were_well_whatever_others_were(make_survey):
    survey, _ = make_survey(*[UNEVEN] * 3, links=(THERE, BACK), via={}, late_pct={"node3": 90})
    assert sure(survey, [THERE]) == ([(("jitter",), ())], 2)


def test_programs_that_were_late_excuse_a_speed_and_no_ping_that_was_on_time(make_survey):
    busy = {"node2": 2.0}  # ms
    survey, _ = make_survey(*[UNEVEN] * 3, links=(THERE, BACK), via={}, timers_late_ms=busy)
    assert sure(survey, [THERE]) == ([(("jitter",), ())], 2)
    assert survey.witness.most_late_ms == {"node2": 2.0, "node3": 0.1, "node4": 0.1}
    slow = replace(UNEVEN, delay_ms=THERE.delay_ms, rate=Rate(4.0, 90.0))
    found = survey.judged([THERE], survey.asked, {THERE.ends: slow})
    assert [(v.broken, v.undecided) for v in found] == [(("jitter",), ("rate",))]


def test_a_path_is_undecided_where_a_node_on_its_way_was_busy(make_survey):
    survey, _ = make_survey(*[UNEVEN] * 3, late_pct={"node3": 90})
    verdicts, _ = survey.until_sure(survey.paths, [THERE])
    assert [(v.broken, v.undecided) for v in verdicts] == [((), ("jitter",))]
    assert "node3" in verdicts[0].limits[0]


def test_what_a_look_is_judged_by_is_what_the_nodes_did_meanwhile(make_survey):
    """node2 is busy until the end of the first look, but not during the others."""
    survey, nodes = make_survey(*[UNEVEN] * 3, links=(THERE, BACK), via={}, late_pct={"node2": 30})
    late = nodes.reading

    def well_from_the_second_on(name):
        reading = late(name)
        first = 300 if name == "node2" and nodes.read else 0
        return reading._replace(lateness=reading.lateness._replace(late=first))

    nodes.reading = well_from_the_second_on
    assert sure(survey, [THERE]) == ([(("jitter",), ())], 2)


def test_what_tcp_did_not_fill_is_flooded_and_nothing_else_is(make_survey, monkeypatch):
    """On a busy host TCP may stay far below a link's rate; datagrams do not wait for acknowledgements."""
    survey, _ = make_survey(*[GOOD] * 3, links=(THERE, BACK), via={}, late_pct={"node2": 30})
    both = frozenset((THERE, BACK))
    survey = replace(survey, schedule=ProbeSchedule(both, frozenset(), frozenset(), 1.0))
    asked, flooded = survey.asked, []

    def fill_links(prober, some, links):
        full = {THERE: 0.3, BACK: asked.goodput_mbyte_s(BACK)}
        found = {(link.src, link.dst): full[link] for link in some}
        return {
            pair: {"goodput_mbyte_s": rate, "loaded_rtt_ms": 9.0} for pair, rate in found.items()
        }

    def flood_links(prober, floods, frame_bytes):
        assert frame_bytes == 1514
        flooded.append([flood.link for flood in floods])
        return {flood.link.ends: Rate(flood.link.rate_mbyte_s, 99.0) for flood in floods}

    monkeypatch.setattr(measure, "fill_links", fill_links)
    monkeypatch.setattr(measure, "flood_links", flood_links)
    assert sure(survey, [THERE, BACK]) == ([((), ("goodput",)), ((), ())], 2)
    assert flooded == [[THERE]] * 3


@pytest.mark.parametrize(
    ("share", "rate", "floods"),
    [(1.004, 1.03, 3), (1.002, 1.03, 0), (0.97, 0.97, 3), (0.975, 1.0, 1), (0.985, 0.97, 0)],
)
def test_a_link_whose_rate_tcp_puts_in_doubt_is_flooded_at_once(
    make_survey, monkeypatch, share, rate, floods
):
    """4 % too fast, of which TCP reached a half: that passed as within the 3 % that TCP may be off."""
    survey, _ = make_survey(*[GOOD] * 3, links=(THERE, BACK), via={})
    streamed = ProbeSchedule(frozenset([THERE]), frozenset(), frozenset(), 1.0)
    survey, flooded = replace(survey, schedule=streamed), []

    def fill_links(prober, links, asked):
        speed = {"goodput_mbyte_s": share * asked.goodput_mbyte_s(THERE), "loaded_rtt_ms": None}
        return {link.ends: speed for link in links}

    def flood_links(prober, floods, frame_bytes):
        flooded.extend(flood.link for flood in floods)
        return {THERE.ends: Rate(rate * THERE.rate_mbyte_s, 99.0)}

    monkeypatch.setattr(measure, "fill_links", fill_links)
    monkeypatch.setattr(measure, "flood_links", flood_links)
    verdicts, again = sure(survey, [THERE])
    is_broken = floods > 1
    assert ("rate" in verdicts[0][0], again) == (is_broken, 2 * is_broken)
    assert len(flooded) == floods


@pytest.mark.parametrize(
    ("mbyte_s", "full_pct", "shares"),
    [
        (1.0, 99.0, [0.5, 0.25]),  # the links are the limit
        (1.0, 0.0, [0.1, 0.01]),  # a machine that carries a fifth of what it was given
        (0.0, 0.0, [0.05, 0.0025]),  # one that stood still
    ],
)
def test_a_later_pass_floods_at_once_no_more_than_the_machine_has_carried(
    make_survey, monkeypatch, mbyte_s, full_pct, shares
):
    survey, _ = make_survey(*[GOOD] * 3, links=(THERE, BACK), via={}, late_pct={"node2": 30})
    both = frozenset((THERE, BACK))
    survey = replace(survey, schedule=ProbeSchedule(frozenset(), both, frozenset(), 1.0))
    assert THERE.rate_mbyte_s == 5.0
    asked_for = []

    def link_floods(limited, nodes, pace, share, losses):
        asked_for.append(share)
        return [SimpleNamespace(link=link, over_s=1.0) for link in limited]

    monkeypatch.setattr(measure, "link_floods", link_floods)
    monkeypatch.setattr(
        measure,
        "flood_links",
        lambda _, floods, __: {flood.link.ends: Rate(mbyte_s, full_pct) for flood in floods},
    )
    survey.until_sure(survey.links, [THERE, BACK])
    assert asked_for == pytest.approx([1.0, *shares])


def test_a_link_over_which_nothing_comes_back_is_broken_and_its_speed_is_not_tried(
    make_survey, monkeypatch
):
    dead = replace(GOOD, rtt_ms=math.inf, early_rtt_ms=math.inf, arrived=0)
    survey, _ = make_survey(*[dead] * 3, links=(THERE, BACK), via={})
    both = frozenset((THERE, BACK))
    survey = replace(survey, schedule=ProbeSchedule(both, both, both, 1.0))
    tried = []
    for probe in ("flood_links", "burst_buffers"):
        monkeypatch.setattr(measure, probe, lambda *_: tried.append("datagrams"))
    monkeypatch.setattr(measure, "fill_links", lambda _, some, __: tried.extend(some) or {})
    verdicts, _ = survey.until_sure(survey.links, [THERE, BACK])
    assert [set(verdict.broken) for verdict in verdicts] == [{"rtt", "loss"}] * 2
    assert tried == []


def test_the_wires_counters_are_of_the_pings_and_of_the_whole_look():
    pair = THERE.ends
    moments = [{pair: WireCounters(*counts)} for counts in ((100, 5), (900, 45), (5000, 250))]
    counters = DropCounters(moments[0], moments[1]).closed(moments[2])
    assert counters.of(THERE) == DropCount(packets=800, lost=40, all_packets=4900, all_lost=245)
    assert counters.of(BACK) is None  # its node reports no counters


def test_what_a_node_says_of_its_wire_is_known_by_the_link():
    nodes = Nodes(())
    reading = nodes.reading

    def received(name):
        return reading(name)._replace(received={"node9": WireCounters(7, len(name))})

    nodes.reading = received
    found = Witness({}, nodes, {}).received()
    assert found["node9", "node2"] == WireCounters(7, 5) and len(found) == 3


def lose_in_turn(monkeypatch, *lost):
    """Have the pings for losses lose so many of 800 in turn; returns the links that they were sent to, by pass."""
    losses, asked_of = iter(lost), []

    def ping_losses(prober, links, asked, effort):
        asked_of.append(list(links))
        count = next(losses)
        found = replace(GOOD, sent=800, arrived=800 - count, gaps=count)
        return {link.ends: found for link in links}

    monkeypatch.setattr(measure, "ping_losses", ping_losses)
    return asked_of


def test_of_what_chance_decides_all_looks_count_together(make_survey, monkeypatch):
    """1 % is requested and 2.4 % is lost: by chance, one look of three might pass."""
    lossy = THERE._replace(loss_pct=1.0)
    survey, _ = make_survey(*[GOOD] * 3, links=(lossy, BACK), via={})
    lose_in_turn(monkeypatch, 24, 16, 17)  # of 800 each; 20 of 800 alone would pass
    verdicts, again = survey.until_sure(survey.links, [lossy])
    assert again == 2
    assert verdicts[0].broken == ("loss",)
    assert (verdicts[0].measured.sent, verdicts[0].measured.arrived) == (2400, 2400 - 57)


def test_a_link_that_holds_at_the_second_look_is_not_missed_at_the_third(make_survey, monkeypatch):
    lossy, back = THERE._replace(loss_pct=1.0), BACK._replace(loss_pct=1.0)
    lost = {lossy: iter([24, 1]), back: iter([24, 24, 24])}

    def ping_losses(prober, links, asked, effort):
        counts = {link: next(lost[link]) for link in links}
        return {
            link.ends: replace(GOOD, sent=800, arrived=800 - count, gaps=count)
            for link, count in counts.items()
        }

    survey, _ = make_survey(*[GOOD] * 3, links=(lossy, back), via={})
    monkeypatch.setattr(measure, "ping_losses", ping_losses)
    verdicts, again = survey.until_sure(survey.links, [lossy, back])
    assert [verdict.broken for verdict in verdicts] == [(), ("loss",)]
    assert again == 3


LOST_ONE = replace(GOOD, arrived=59, gaps=1)


def test_a_link_asked_to_lose_nothing_that_lost_some_is_judged_by_many_pings(
    make_survey, monkeypatch
):
    """Of 1 %, every second pass of 60 pings would see nothing."""
    survey, _ = make_survey(LOST_ONE, GOOD, GOOD, links=(THERE, BACK), via={})
    asked_of = lose_in_turn(monkeypatch, 8, 9)
    verdicts, again = survey.until_sure(survey.links, [THERE])
    assert (again, asked_of) == (2, [[THERE], [THERE]])
    assert verdicts[0].broken == ("loss",)
    assert (verdicts[0].measured.sent, verdicts[0].measured.arrived) == (800, 791)


def test_a_single_packet_that_something_else_lost_makes_no_link_broken(make_survey, monkeypatch):
    survey, _ = make_survey(LOST_ONE, GOOD, links=(THERE, BACK), via={})
    lose_in_turn(monkeypatch, 0)
    assert sure(survey, [THERE]) == ([((), ())], 1)


def test_a_path_that_lost_some_is_judged_by_many_pings(make_survey, monkeypatch):
    survey, _ = make_survey(LOST_ONE, GOOD, GOOD)
    asked_of = lose_in_turn(monkeypatch, 8, 9)
    verdicts, _ = survey.until_sure(survey.paths, [THERE])
    assert (verdicts[0].broken, asked_of) == (("loss",), [[THERE], [THERE]])


def test_what_a_busy_host_dropped_of_a_link_asked_to_lose_nothing_is_forgotten(
    make_survey, monkeypatch
):
    survey, nodes = make_survey(LOST_ONE, GOOD, links=(THERE, BACK), via={}, late_pct={"node2": 30})
    drop_and_lose(monkeypatch, nodes, lambda: min(1, nodes.read), [0])
    verdicts, again = survey.until_sure(survey.links, [THERE])
    assert (verdicts[0].failed, again) == ((), 1)
    assert (verdicts[0].measured.sent, verdicts[0].measured.arrived) == (800, 800)


def test_a_link_that_lost_nothing_gets_no_more_pings(make_survey, monkeypatch):
    survey, _ = make_survey(UNEVEN, GOOD, links=(THERE, BACK), via={})
    asked_of = lose_in_turn(monkeypatch)
    assert sure(survey, [THERE]) == ([((), ())], 1)
    assert asked_of == []


def drop_and_lose(monkeypatch, nodes, dropped, lost):
    """Have the wires drop packets unseen, by `dropped` so far, and each pass lose so many of 800 pings."""
    reading = nodes.reading

    def dropping(name):
        found = reading(name)
        return found._replace(lateness=found.lateness._replace(dropped=dropped()))

    nodes.reading = dropping
    lose_in_turn(monkeypatch, *lost)


def test_what_a_busy_host_may_have_lost_counts_in_no_later_look(make_survey, monkeypatch):
    lossy = THERE._replace(loss_pct=1.0)
    survey, nodes = make_survey(GOOD, GOOD, links=(lossy, BACK), via={}, late_pct={"node2": 30})
    drop_and_lose(monkeypatch, nodes, lambda: 20 * min(1, nodes.read), [24, 8])
    verdicts, _ = survey.until_sure(survey.links, [lossy])
    assert verdicts[0].failed == () and verdicts[0].measured.sent == 800


def test_delays_of_two_looks_weigh_as_many_packets_as_they_are():
    first = replace(GOOD, samples=100, rtt_ms=10.0, delay_ms=4.0, jitter_ms=3.0)
    second = replace(GOOD, samples=300, rtt_ms=14.0, delay_ms=8.0, jitter_ms=1.0)
    both = second.with_delays_and(first)
    assert (both.samples, both.rtt_ms, both.delay_ms) == (400, 13.0, 7.0)
    assert both.jitter_ms == pytest.approx(3**0.5)
    assert second.with_delays_and(replace(first, samples=0)) == second


def test_a_link_that_was_silent_at_first_is_asked_for_its_speed_later(make_survey, monkeypatch):
    """Nothing was wrong with its speed in the first pass, because that was not measured."""
    silent = replace(GOOD, rtt_ms=math.inf, arrived=0)
    survey, _ = make_survey(silent, GOOD, links=(THERE, BACK), via={})
    schedule = replace(survey.schedule, streamed=frozenset([THERE]))
    survey = replace(survey, schedule=schedule)
    filled = []

    def fill_links(prober, links, asked):
        filled.append(list(links))
        return {link.ends: {"goodput_mbyte_s": 0.5, "loaded_rtt_ms": None} for link in links}

    lose_in_turn(monkeypatch, 0)
    monkeypatch.setattr(measure, "fill_links", fill_links)
    monkeypatch.setattr(measure, "flood_links", lambda *_: {THERE.ends: Rate(0.5, 99.0)})
    monkeypatch.setattr(measure, "LOOKS", 2)
    verdicts, again = survey.until_sure(survey.links, [THERE])
    assert (again, filled) == (1, [[THERE]])
    assert verdicts[0].broken == ("rate", "goodput")


def test_a_burst_is_repeated_if_its_sender_paused_so_long_that_a_queue_may_only_seem_small(
    make_survey, monkeypatch
):
    queues = iter([Queue(20.0, 30.0), Queue(39.5, 0.2)])
    monkeypatch.setattr(measure, "burst_buffers", lambda *_: {THERE.ends: next(queues)})
    survey, _ = make_survey(links=(THERE, BACK))
    assert survey.burst([THERE]) == {THERE.ends: Queue(39.5, 0.2)}
    queues = iter([Queue(20.0, 2.0)])  # too small, whatever the pause
    assert survey.burst([THERE]) == {THERE.ends: Queue(20.0, 2.0)}
    queues = iter([Queue(20.0, 30.0)] * 3)
    assert survey.burst([THERE]) == {THERE.ends: Queue(20.0, 30.0)}


def test_counters_that_fell_count_nothing():
    """The links were laid anew meanwhile, or the node says what it likes."""
    more, less = {THERE.ends: WireCounters(10, 5)}, {THERE.ends: WireCounters(9, 5)}
    assert DropCounters(more, less, more).of(THERE) is None
    assert DropCounters(less, more, more).of(THERE) == DropCount(1, 0, 1, 0)


def test_what_an_undisturbed_pass_found_counts_after_a_busy_one(make_survey, monkeypatch):
    lossy = THERE._replace(loss_pct=1.0)
    survey, nodes = make_survey(*[GOOD] * 3, links=(lossy, BACK), via={}, late_pct={"node2": 30})
    drop_and_lose(monkeypatch, nodes, lambda: 0 if nodes.read < 4 else 90, [24, 30, 8])
    verdicts, _ = survey.until_sure(survey.links, [lossy])
    assert verdicts[0].measured.sent % 800 == 0 and verdicts[0].measured.sent >= 1600


def test_delays_that_the_pings_for_losses_tell_are_not_judged_between_two_clocks(
    make_survey, monkeypatch
):
    lossy = THERE._replace(loss_pct=90.0)
    few = replace(GOOD, samples=0, rtt_samples=0, rtt_ms=math.inf)
    many = replace(GOOD, sent=800, arrived=80, gaps=70, rtt_samples=60, delay_ms=9e8)
    survey, _ = make_survey(few, links=(lossy, BACK), via={})
    survey = replace(survey, asked=replace(survey.asked, clocks={"node2": "a", "node4": "b"}))
    monkeypatch.setattr(measure, "ping_losses", lambda *_: {lossy.ends: many})
    (verdict,) = survey.links(measure._Look([lossy]))
    assert (verdict.measured.delay_ms, verdict.measured.rtt_ms, verdict.failed) == (None, 5.0, ())


def test_an_uplink_over_links_that_lose_packets_is_judged_with_their_chance(make_survey):
    """Losses that come in bursts of ten may take 7.5 % of a right one; others take less."""
    for burst, holds in ((10.0, True), (1.0, False)):
        lossy = [link._replace(loss_pct=10.0, loss_burst=burst) for link in (THERE, BACK)]
        survey, _ = make_survey(GOOD, links=lossy, via={})
        survey = replace(survey, asked=replace(survey.asked, uplinks={lossy[0].src: 2.0}))
        (access,) = survey.asked.accesses()
        (verdict,) = survey.judged_accesses([access], {lossy[0].ends: Rate(1.85, 99.0)})
        assert verdict.holds is holds


def test_a_path_is_judged_by_all_links_on_it(make_survey):
    """Two links that double a fifth each leave 44 copies too many of a hundred pings, within chance."""
    twice = [link._replace(duplicate_pct=44.0) for link in (THERE, BACK)]
    via = dict.fromkeys(twice, ("node3",))
    hops = {link.ends: [link._replace(duplicate_pct=20.0)] * 2 for link in twice}
    found = replace(GOOD, sent=4000, arrived=4000, twice=1880, delay_ms=None)
    for known, broken in ((hops, ()), ({}, ("doubles",))):
        survey, _ = make_survey(*[found] * 2, via=via)
        survey = replace(survey, asked=replace(survey.asked, hops=known))
        (verdict, _) = survey.judged(
            twice, replace(survey.asked, links=twice), dict.fromkeys([t.ends for t in twice], found)
        )
        assert verdict.broken == broken
