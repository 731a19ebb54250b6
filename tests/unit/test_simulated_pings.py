"""Simulated pings over links that are as asked, or are not: right links hold, wrong ones are named."""

import random
import statistics
from dataclasses import replace

import pytest

from cluster.contract.checks import check_link
from cluster.contract.doubt import make_strain
from cluster.contract.impairments import judge_impairments
from cluster.contract.measured import Measured, summarise_pings
from cluster.contract.verdicts import judge
from cluster.links.expected import Expected
from cluster.links.link import Path
from cluster.shaping.host_load import HostLoad
from node.probe.pings import Echo, _summarise_ways_back, summarise_arrivals
from protocol.link import Link
from protocol.probe import Pings

THERE = Link("node1", "node2", 10.0, 40.0, 0.0, 0.0, 40.0)
INTERVAL_MS = 30.0


def back_of(link):
    return link._replace(src=link.dst, dst=link.src)


class Way:
    """One direction of a link: loses, delays and reorders packets as `link` says, and keeps the order of the others."""

    def __init__(self, link, stream):
        self.stream, self.draw = stream, stream.random
        self.last_s, self.is_losing = 0.0, False
        self.delay_s, self.jitter_s = link.delay_ms / 1e3, link.jitter_ms / 1e3
        self.reordered = link.reorder_pct / 100
        loss, self.end = link.loss_pct / 100, 1 / link.loss_burst
        self.begin = loss if self.end == 1 else self.end * loss / (1 - loss)

    def arrival_s(self, sent_s):
        """Return when a packet arrives; None if it is lost."""
        if self.begin and self._loses():
            return None
        if self.reordered and self.draw() < self.reordered:
            return sent_s
        delay_s = self.delay_s
        if self.jitter_s:
            delay_s = max(0.0, self.stream.gauss(delay_s, self.jitter_s))
        self.last_s = max(self.last_s, sent_s + delay_s)
        return self.last_s

    def _loses(self):
        if self.end == 1:
            return self.draw() < self.begin
        self.is_losing = self.draw() < (1 - self.end if self.is_losing else self.begin)
        return self.is_losing


def ping(real, stream, *, asked=None, count=60, interval_ms=INTERVAL_MS, read=None, host_ms=(0.0,)):
    """Return what pings measure of both directions of a link, each direction being as `real` says.

    `read` tells, for each direction, when a ping that arrives at this moment is read; if left out, at once. `host_ms`
    are round trips of the pings that show the host's own share.
    """
    read = read or (float, float)
    ways = Way(real, stream), Way(back_of(real), stream)
    arrived = []
    for number in range(count):
        sent_s = 100 + number * interval_ms / 1e3
        at_s = ways[0].arrival_s(sent_s)
        if at_s is not None:
            arrived.append((at_s, number, sent_s))
    arrived = [(read[0](at_s), *sent) for at_s, *sent in sorted(arrived)]
    echoes = []
    for place, (at_s, number, sent_s) in enumerate(arrived):
        returned_s = ways[1].arrival_s(at_s)
        if returned_s is not None:
            echoes.append(Echo(number, sent_s, at_s, place, returned_s))
    echoes.sort(key=lambda echo: echo.returned)
    echoes = [echo._replace(returned=read[1](echo.returned)) for echo in echoes]
    log = [(number, sent_s, at_s - sent_s) for at_s, number, sent_s in arrived]
    pings = Pings(
        series=1,
        sent=count,
        late_ms=0.0,
        rtt_ms=[1e3 * (echo.returned - echo.sent) for echo in echoes],
        back=_summarise_ways_back(echoes),
    )
    asked = asked or real
    return summarise_pings(pings, summarise_arrivals(log), host_ms, asked, back_of(asked))


def failed(asked, found):
    """Return the names of the checks that fail in either direction."""
    ways = asked, back_of(asked)
    expected = Expected(ways)
    return {
        name
        for link, one in zip(ways, found, strict=True)
        for name in check_link(link, expected, one).failed
    }


@pytest.mark.parametrize(("real", "names"), [(1.0, 1), (5.0, 0), (20.0, 1)])
@pytest.mark.parametrize("way", [0, 1])
def test_bursts_are_judged_in_both_directions(real, names, way):
    """Pings that are lost on the way there leave no hole on the way back: echoes are numbered as they left."""
    asked = THERE._replace(loss_pct=5.0, loss_burst=5.0)
    found = ping(asked._replace(loss_burst=real), random.Random(3), count=4000, interval_ms=4.0)
    link = (asked, back_of(asked))[way]
    assert judge_impairments(link, found[way])["loss_burst"] is not bool(names)


@pytest.mark.parametrize("count", [800, 4000])
@pytest.mark.parametrize(("loss_pct", "burst"), [(1.0, 3.0), (5.0, 4.0), (20.0, 2.0), (50.0, 10.0)])
def test_bursts_as_asked_hold(count, loss_pct, burst):
    asked, stream = THERE._replace(loss_pct=loss_pct, loss_burst=burst), random.Random(5)
    wrong = 0
    for _ in range(100):
        found = ping(asked, stream, count=count, interval_ms=4.0)
        ways = zip((asked, back_of(asked)), found, strict=True)
        wrong += sum(not judge_impairments(link, one)["loss_burst"] for link, one in ways)
    assert wrong <= 2  # of 200


def test_bursts_that_are_far_too_long_leave_few_and_are_found_all_the_same():
    asked, stream = THERE._replace(loss_pct=10.0, loss_burst=5.0), random.Random(7)
    real = asked._replace(loss_burst=30.0)
    found = [ping(real, stream, count=4000, interval_ms=4.0)[0] for _ in range(50)]
    assert sum(not judge_impairments(asked, one)["loss_burst"] for one in found) >= 48


@pytest.mark.parametrize("delay_ms", [5.0, 20.0, 28.0, 60.0])
@pytest.mark.parametrize("reorder_pct", [5.0, 15.0, 40.0])
def test_pings_that_skip_a_delay_shorter_than_their_interval_are_no_jitter(delay_ms, reorder_pct):
    """There is no other to overtake, so they look like pings that were quick."""
    asked, stream = THERE._replace(delay_ms=delay_ms, reorder_pct=reorder_pct), random.Random(11)
    wrong = [failed(asked, ping(asked, stream)) & {"delay", "rtt", "jitter"} for _ in range(50)]
    assert sum(map(bool, wrong)) <= 1


def test_a_delay_that_is_wrong_is_found_on_a_link_that_reorders_too():
    asked, stream = THERE._replace(delay_ms=20.0, reorder_pct=10.0), random.Random(13)
    for delay_ms in (18.5, 21.5):
        found = ping(asked._replace(delay_ms=delay_ms), stream, asked=asked)
        assert {"delay", "rtt"} <= failed(asked, found)


@pytest.mark.parametrize(
    ("asked_pct", "real_pct", "is_silent"),
    [(98.0, 100.0, True), (60.0, 100.0, False), (0.0, 100.0, False)],
)
def test_no_echo_is_no_fault_where_the_losses_asked_for_leave_none(asked_pct, real_pct, is_silent):
    asked = THERE._replace(loss_pct=asked_pct)
    there, _ = ping(asked._replace(loss_pct=real_pct), random.Random(1), asked=asked)
    names = set(check_link(asked, Expected((asked, back_of(asked))), there).failed)
    assert ({"delay", "rtt"} & names == set()) is is_silent


def test_on_a_link_that_loses_most_the_many_pings_for_losses_tell_the_delay():
    asked, stream = THERE._replace(loss_pct=90.0), random.Random(17)
    wrong = 0
    for _ in range(100):
        few = ping(asked, stream)
        many = ping(asked, stream, count=800, interval_ms=4.0)
        both = [one.with_losses_of(other) for one, other in zip(few, many, strict=True)]
        wrong += bool(failed(asked, both) & {"delay", "rtt", "jitter"})
    assert wrong <= 1


def test_a_round_trip_is_as_uncertain_as_the_direction_of_which_less_came():
    there = THERE._replace(jitter_ms=5.0)
    asked = Expected((there, back_of(there)._replace(jitter_ms=15.0, loss_pct=80.0)))
    stream, wrong = random.Random(19), 0
    for _ in range(200):
        found = _one_sided(*asked.links, stream)
        wrong += "rtt" in check_link(there, asked, found).failed
    assert wrong <= 2


def _one_sided(there, back, stream):
    """Return the measurement of the way there by 400 pings, with another link on the way back."""
    ways, echoes, log = (Way(there, stream), Way(back, stream)), [], []
    for number in range(400):
        sent_s = 100 + number * 0.05
        at_s = ways[0].arrival_s(sent_s)
        log.append((number, sent_s, at_s - sent_s))
        if (returned_s := ways[1].arrival_s(at_s)) is not None:
            echoes.append(Echo(number, sent_s, at_s, number, returned_s))
    rtt_ms = [1e3 * (echo.returned - echo.sent) for echo in echoes]
    pings = Pings(1, 400, 0.0, rtt_ms, _summarise_ways_back(echoes))
    return summarise_pings(pings, summarise_arrivals(log), [0.0], there, back)[0]


class LateReader:
    """A program on a busy host that reads packets in their order, each late by chance; some very late."""

    def __init__(self, stream, mean_ms):
        self.stream, self.mean_s = stream, mean_ms / 1e3
        self.last_s = 0.0
        self.late_s = []

    def __call__(self, at_s):
        late_s = 0.1 if self.stream.random() < 0.01 else self.stream.expovariate(1 / self.mean_s)
        self.last_s = max(self.last_s, at_s + late_s)
        self.late_s.append(self.last_s - at_s)
        return self.last_s


def strain_of(late_ms):
    """Return the strain of a host on which pings were read so late on average, and 6 % more by a late wire."""
    late = {"late_pct": {"node2": 6.0}, "worst_ms": {"node2": 90.0}}
    return make_strain(HostLoad(timers_late_ms=late_ms, **late, limits=("late",)), late_ms)


@pytest.mark.parametrize(
    ("count", "interval_ms", "loss_pct"),
    [(400, 40.0, 0.0), (60, 40.0, 0.0), (400, 200.0, 0.0), (400, 40.0, 30.0), (800, 4.0, 80.0)],
)
@pytest.mark.parametrize("mean_ms", [2.0, 12.0])
def test_a_right_link_that_jitters_is_never_broken_by_pings_that_a_busy_host_reads_late(
    count, interval_ms, loss_pct, mean_ms
):
    """However many of its pings, and however few, wait for the one before them."""
    there = THERE._replace(delay_ms=100.0, jitter_ms=40.0, loss_pct=loss_pct)
    asked, stream = Expected((there, back_of(there))), random.Random(23)
    for _ in range(40):
        readers = [LateReader(stream, mean_ms) for _ in range(2)]
        found = ping(there, stream, count=count, interval_ms=interval_ms, read=readers)
        strain = strain_of(1e3 * max(statistics.fmean(one.late_s) for one in readers))
        for link, one in zip(asked.links, found, strict=True):
            assert not {"delay", "rtt"} & set(judge(link, asked, one, strain).broken)


@pytest.mark.parametrize("jitter_ms", [0.0, 10.0])
def test_a_right_link_is_never_broken_by_what_a_crowded_host_needed_for_its_own_pings(jitter_ms):
    """Each node's pings to itself took it up to a second, those over links much less; seen with 64 nodes."""
    there = THERE._replace(delay_ms=100.0, jitter_ms=jitter_ms)
    asked, stream = Expected((there, back_of(there))), random.Random(41)
    for _ in range(40):
        readers = [LateReader(stream, 20.0) for _ in range(2)]
        own_ms = [stream.expovariate(1 / 300.0) for _ in range(60)]
        found = ping(there, stream, count=60, interval_ms=40.0, read=readers, host_ms=own_ms)
        strain = strain_of(1e3 * max(statistics.fmean(one.late_s) for one in readers))
        for link, one in zip(asked.links, found, strict=True):
            assert not {"delay", "rtt"} & set(judge(link, asked, one, strain).broken)


def test_a_link_that_is_too_short_is_broken_on_a_busy_host_too():
    asked, stream = Expected((THERE, back_of(THERE))), random.Random(43)
    for _ in range(20):
        found = ping(
            THERE._replace(delay_ms=38.5), stream, asked=THERE, host_ms=[0.3] * 55 + [40.0] * 5
        )
        for link, one in zip(asked.links, found, strict=True):
            assert {"delay", "rtt"} <= set(judge(link, asked, one, strain_of(2.0)).broken)


@pytest.mark.parametrize("count", [400, 1600])
def test_a_link_that_jitters_and_is_a_third_too_long_is_broken_on_a_busy_host_too(count):
    there = THERE._replace(delay_ms=100.0, jitter_ms=40.0)
    asked, stream = Expected((there, back_of(there))), random.Random(29)
    for _ in range(20):
        real = there._replace(delay_ms=132.0)
        found = ping(real, stream, asked=there, count=count, interval_ms=40.0)
        for link, one in zip(asked.links, found, strict=True):
            assert "delay" in judge(link, asked, one, strain_of(0.3)).broken


def doubled(links, stream, sent):
    """Return how many of the pings arrived over these links, and how many copies beyond the first."""
    arrived = twice = 0
    for _ in range(sent):
        copies = 1
        for link in links:
            passed = [copy for copy in range(copies) if stream.random() >= link.loss_pct / 100]
            copies = sum(1 + (stream.random() < link.duplicate_pct / 100) for _ in passed)
        arrived, twice = arrived + bool(copies), twice + max(0, copies - 1)
    return arrived, twice


@pytest.mark.parametrize("sent", [60, 800, 4000])
@pytest.mark.parametrize(
    ("duplicates_pct", "loss_pct"),
    [([0.05] * 2, 0.0), ([5.0] * 2, 0.0), ([20.0] * 2, 0.0), ([60.0] * 3, 0.0), ([20.0] * 2, 30.0)],
)
def test_what_one_link_of_a_path_has_doubled_the_next_may_double_again(
    sent, duplicates_pct, loss_pct
):
    """Two links of 20 % leave 44 extra copies of a hundred pings, and not 36."""
    links = [THERE._replace(duplicate_pct=pct, loss_pct=loss_pct) for pct in duplicates_pct]
    path, stream = Path("node1", "node3", tuple(links)).end_to_end(), random.Random(31)

    def is_wrong(real):
        arrived, twice = doubled(real, stream, sent)
        found = Measured(80.0, 0.0, 60, sent, arrived, 0, twice=twice)
        return not judge_impairments(path, found, links)["doubles"]

    assert sum(is_wrong(links) for _ in range(40)) <= 1
    if sent == 4000 and duplicates_pct[0] > 1:
        real = [links[0]._replace(duplicate_pct=0.5 * links[0].duplicate_pct), *links[1:]]
        assert sum(is_wrong(real) for _ in range(10)) >= 7


@pytest.mark.parametrize("loss_pct", [0.5, 20.0])
def test_a_packet_that_was_doubled_before_a_link_that_loses_may_arrive_all_the_same(loss_pct):
    """Over two links that double and lose 20 %, 33 % do not arrive, and not 36."""
    links = [THERE._replace(duplicate_pct=20.0, loss_pct=loss_pct)] * 2
    path, stream = Path("node1", "node3", tuple(links)).end_to_end(), random.Random(37)

    def is_wrong(real):
        arrived, twice = doubled(real, stream, 4000)
        found = Measured(80.0, 0.0, 60, 4000, arrived, 0, twice=twice)
        return not judge_impairments(path, found, links)["loss"]

    assert sum(is_wrong(links) for _ in range(40)) <= 1
    real = [links[0]._replace(loss_pct=1.5 * loss_pct), links[1]]
    assert loss_pct < 1 or sum(is_wrong(real) for _ in range(10)) >= 9


def test_a_path_over_links_that_double_nothing_may_double_nothing():
    links = [THERE._replace(loss_pct=1.0)] * 3
    found = Measured(80.0, 0.0, 60, 800, 780, 0, twice=0)
    for twice in (0, 1):
        one = replace(found, twice=twice)
        assert judge_impairments(links[0], one, links)["doubles"] is (not twice)


def test_a_path_has_the_duplicates_of_all_its_links_within_a_links_limits():
    for pct, together in ((20.0, 44.0), (60.0, 100.0)):
        links = (THERE._replace(duplicate_pct=pct),) * 2
        path = Path("node1", "node3", links).end_to_end()
        assert path.duplicate_pct == pytest.approx(together)


def test_a_path_over_links_with_other_bursts_has_the_mean_of_the_lost_packets():
    links = (
        THERE._replace(loss_pct=1.0, loss_burst=10.0),
        THERE._replace(src="node2", dst="node3", loss_pct=5.0),
    )
    path = Path("node1", "node3", links).end_to_end()
    assert path.loss_burst == pytest.approx((1.0 * 10 + 5.0 * 1) / 6)
    plain = tuple(link._replace(loss_pct=0.0, loss_burst=1.0) for link in links)
    assert Path("node1", "node3", plain).end_to_end().loss_burst == 1.0
