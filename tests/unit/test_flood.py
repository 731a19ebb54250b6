"""Floods: the rate from samples of the kernel's datagram counter, and the counter itself."""

import math
import random
import socket
import statistics

import pytest
from ports import free_ports

from cluster.contract.floods import (
    FRAME_BYTES,
    access_error,
    access_floods,
    flood_error,
    flooded_mbyte_s,
    floods_s,
    link_floods,
)
from cluster.contract.impairments import clumping
from cluster.contract.measure import _together
from cluster.contract.measured import Rate
from cluster.contract.probe_plan import ANY_LOSSES, EFFORTS, TELLING_LOSSES
from cluster.contract.probe_schedule import make_probe_schedule
from cluster.contract.verdicts import judge_access
from cluster.links.expected import Expected, loss_interval
from node.probe import timers
from node.probe.flood import FloodGauge, flood, rate_of, share_of
from node.probe.timers import tick_s
from node.wire.nfqueue.delay_line import Behaviour, DelayLine, Downlink
from node.wire.nfqueue.nfnetlink import ACCEPT, WHOLE
from protocol.link import Link
from protocol.probe import FloodCount, Flooded, FloodOrder, FloodSend


def steady(datagrams_s, seconds, look_s=0.005, at_s=0.0, before=0):
    looks = round(seconds / look_s)
    return [(at_s + n * look_s, before + round(datagrams_s * n * look_s)) for n in range(looks)]


def test_a_steady_flood_has_its_rate():
    assert rate_of(steady(20_000, 0.3), 0.05) == pytest.approx(20_000, rel=1e-3)


def test_the_beginning_and_the_last_look_do_not_count():
    burst = [(-0.02, 0), (-0.01, 5000)]
    late = (0.9, 6000 + 5000)  # long after the flood ended
    samples = [*burst, *steady(20_000, 0.3, before=5000), late]
    assert rate_of(samples, 0.05) == pytest.approx(20_000, rel=1e-3)


def test_a_stall_of_the_host_does_not_move_it():
    """For 40 ms nothing is sampled or let through, then everything at once."""
    samples = [s for s in steady(20_000, 0.3) if not 0.2 < s[0] < 0.24]
    assert rate_of(samples, 0.05) == pytest.approx(20_000, rel=0.01)


def test_half_the_rate_is_half_the_rate():
    assert rate_of(steady(10_000, 0.3), 0.05) == pytest.approx(10_000, rel=1e-3)


@pytest.mark.parametrize("samples", [[], [(0.0, 1)], [(0.0, 1), (0.1, 2)]])
def test_next_to_nothing_came(samples):
    assert rate_of(samples, 0.05) == 0.0


def test_the_kernel_counts_what_nobody_reads():
    gauge = FloodGauge("127.0.0.1", 0)
    with gauge, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(2):
            for _ in range(250):
                sender.sendto(bytes(1472), gauge.sock.getsockname())
            gauge.look()
    assert [count for _, count in gauge.samples] == [250, 500]


def test_a_timetable_of_floods_is_sent_and_counted_by_sender():
    port, silent = free_ports(2)
    send = FloodSend(0.05, "127.0.0.1", port, 4, queued_bytes=60_000, seconds=0.2, datagrams=None)
    counts = {
        "self": FloodCount(port=port, skip_s=0.05, until_s=None),
        "silent": FloodCount(port=silent, skip_s=0, until_s=0.1),
    }
    found = flood(FloodOrder({"self": send}, counts, seconds=0.4), "127.0.0.1")
    assert found["self"].datagrams_s > 1000
    assert found["silent"] == Flooded(datagrams_s=0.0, full_pct=None, sent_datagrams_s=None)


def test_a_sender_tells_whether_the_way_out_was_full():
    """Loopback accepts everything at once; the full queue of a slower link does not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        port = sink.getsockname()[1]
        send = FloodSend(
            0.0, "127.0.0.1", port, 1, queued_bytes=60_000, seconds=0.1, datagrams=None
        )
        found = flood(FloodOrder({"peer": send}, {}, seconds=0.1), "127.0.0.1")
    sent_s = found["peer"].sent_datagrams_s
    assert found["peer"] == Flooded(datagrams_s=None, full_pct=0.0, sent_datagrams_s=sent_s)
    assert sent_s > 1000


def test_a_sender_stops_when_its_link_has_all_that_it_can_carry_meanwhile():
    """Then the link, and not the sender, decides how long that takes: a busy machine may stop the sender now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(0.0)
        port = sink.getsockname()[1]
        send = FloodSend(0.0, "127.0.0.1", port, 1, queued_bytes=60_000, seconds=0.5, datagrams=2)
        found = flood(FloodOrder({"peer": send}, {}, seconds=0.5), "127.0.0.1")
        arrived = list(iter(lambda: received(sink), 0))
    assert len(arrived) == 2
    assert found["peer"] == Flooded(datagrams_s=None, full_pct=100.0, sent_datagrams_s=2 / 0.5)


def received(sink):
    """Return the size of the next datagram; 0 if there is none."""
    try:
        return len(sink.recv(1 << 16))
    except BlockingIOError:
        return 0


@pytest.mark.parametrize("nodes", [1, 3, 10, 64, 199])
def test_timers_of_all_nodes_together_do_not_keep_a_host_busy(nodes):
    assert nodes / tick_s(nodes) <= 1000.1
    assert tick_s(nodes) >= 0.01


def test_a_timer_gauge_waits_for_as_long_as_its_cluster_wants(monkeypatch):
    waited = []
    monkeypatch.setattr(timers.time, "sleep", lambda seconds: waited.append(seconds) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        timers.TimerGauge(64).run()
    assert waited == [tick_s(64)]


def test_what_two_share_by_turns_adds_up():
    """A flow that has to wait is not sampled, so rates between samples add up to more than the total."""
    first, second = [(0.0, 1)], [(0.0, 1)]
    for look in range(1, 320):
        mine = first if look % 60 < 36 else second
        mine.append((look * 0.005, 50 + mine[-1][1]))
    assert sum(share_of(samples, 0.3, 1.3) for samples in (first, second)) == pytest.approx(
        10_000, rel=0.02
    )
    assert sum(rate_of(samples, 0.3) for samples in (first, second)) > 10_150
    assert share_of([], 0.3, 1.3) == 0.0


def access(nodes, mbyte_s, rates):
    """Return a node's links of these rates, in turn, and the floods of the uplink that they share."""
    links = [
        Link("node1", f"node{number + 2}", rates[number % len(rates)], 20.0, 0.0, 0.0, 40.0)
        for number in range(nodes - 1)
    ]
    asked = Expected(links, uplinks={"node1": mbyte_s})
    return links, asked.access_mbyte_s(*asked.accesses()), access_floods(asked, asked.accesses())


def evenly(mbyte_s, until_s):
    """Return what a gauge sees of full frames that follow each other evenly: a look wakes late, by up to 5 ms."""
    frame_s, looks, look_s = FRAME_BYTES / (mbyte_s * 1e6), [], 0.0
    while look_s <= until_s:
        came = int(look_s / frame_s + 1e-9) + 1
        looks.append((look_s, came))
        look_s = max(look_s + 0.005, came * frame_s)
    return looks


@pytest.mark.parametrize("mbyte_s", [0.1, 0.2, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("nodes", [2, 17, 20, 64, 128, 199])
@pytest.mark.parametrize("rates", [[10.0], [1.0, 2.5, 4.0, 5.5, 7.0, 8.5, 10.0]])
def test_what_many_links_get_of_an_uplink_adds_up_to_it(nodes, mbyte_s, rates):
    """Each link gets its share, as in node.wire.node_cap: some of them a few datagrams, at the same moments."""
    links, expected, floods = access(nodes, mbyte_s, rates)
    share = expected / sum(link.rate_mbyte_s for link in links)
    found = 0.0
    for link, one in zip(links, floods, strict=True):
        samples = evenly(link.rate_mbyte_s * share, one.seconds + one.pause_s)
        found += share_of(samples, one.skip_s, one.seconds) * FRAME_BYTES / 1e6
    assert found == pytest.approx(expected, rel=0.01)


def test_links_that_share_little_are_flooded_longer_within_a_limit():
    def planned_s(nodes, mbyte_s):
        _, _, floods = access(nodes, mbyte_s, [10.0])
        return floods[0].seconds, floods_s(floods)

    assert planned_s(9, 1.0)[0] == planned_s(100, 10.0)[0] == pytest.approx(1.3)
    assert planned_s(64, 0.5)[0] == pytest.approx(0.3 + 6 * 63 * 1514 / 0.5e6)
    assert planned_s(64, 0.5)[1] > planned_s(64, 0.5)[0] > 1.3
    assert planned_s(199, 0.01)[0] == pytest.approx(20.3)


def test_a_link_that_falls_silent_is_not_counted_on():
    samples = [(n * 0.1, n + 1) for n in range(6)]  # until 0.5 s
    assert share_of(samples, 0.3, 1.3) == pytest.approx(3.0)  # two came, and one may be on its way
    assert share_of([(0.0, 1)], 0.3, 1.3) == 0.0


@pytest.mark.parametrize(
    ("loss_pct", "rate_mbyte_s", "lost"),
    [(0.05, 8.0, 165), (0.5, 2.0, 165), (5.0, 2.0, 165), (0.05, 1.0, 21.5)],
)
def test_a_full_flood_is_so_long_that_losses_are_told_or_a_minute(loss_pct, rate_mbyte_s, lost):
    link = Link("node1", "node2", rate_mbyte_s, 10.0, 0.0, loss_pct, 40.0)
    (short,), (long,) = (
        link_floods([link], ["node1", "node2"], losses=goal) for goal in (None, TELLING_LOSSES)
    )
    assert long.seconds >= short.seconds
    frames = (long.seconds - long.skip_s) * rate_mbyte_s * 1e6 / 1514
    assert frames * loss_pct / 100 == pytest.approx(lost, rel=0.01)
    plain, nodes = link._replace(loss_pct=0.0), ["node1", "node2"]
    assert link_floods([plain], nodes, losses=TELLING_LOSSES) == link_floods([plain], nodes)


@pytest.mark.parametrize(
    ("loss_pct", "rate_mbyte_s", "loss_burst"),
    [(0.1, 1.0, 1.0), (0.05, 8.0, 1.0), (0.02, 100.0, 1.0), (1.0, 1.0, 5.0), (0.005, 500.0, 1.0)],
)
def test_a_usual_flood_finds_a_link_that_loses_nothing(loss_pct, rate_mbyte_s, loss_burst):
    link = Link("node1", "node2", rate_mbyte_s, 10.0, 0.0, loss_pct, 40.0, loss_burst=loss_burst)
    (flood,) = link_floods([link], ["node1", "node2"], losses=ANY_LOSSES)
    frames = (flood.seconds - flood.skip_s) * rate_mbyte_s * 1e6 / 1514
    fewest, _ = loss_interval(int(0.97 * frames / clumping(link)), loss_pct)
    assert fewest >= 1
    assert flood.seconds < 16.5


@pytest.mark.parametrize(("loss_pct", "rate_mbyte_s"), [(0.05, 1.0), (0.001, 500.0)])
def test_a_usual_flood_is_as_short_as_ever_if_losses_are_too_rare_to_be_told(
    loss_pct, rate_mbyte_s
):
    link = Link("node1", "node2", rate_mbyte_s, 10.0, 0.0, loss_pct, 40.0)
    assert link_floods([link], ["node1", "node2"], losses=ANY_LOSSES) == (
        link_floods([link], ["node1", "node2"])
    )


def flooded(link, seed):
    """Return the rate measured by one flood of a link that delivers its full rate."""
    (flood,) = link_floods([link], ["node1", "node2"])
    chance, datagram_s = random.Random(seed), 1514 / (link.rate_mbyte_s * 1e6)
    lost, samples, count = False, [], 0
    for number in range(int(flood.seconds / datagram_s)):
        if link.loss_burst > 1:
            end = 1 / link.loss_burst
            begin = end * link.loss_pct / (100 - link.loss_pct)
            lost = chance.random() < (1 - end if lost else begin)
        else:
            lost = chance.random() < link.loss_pct / 100
        if not lost:
            count += 1 + (chance.random() < link.duplicate_pct / 100)
        if number % 16 == 0:
            samples.append((number * datagram_s, count))
    return flooded_mbyte_s(link, rate_of(samples, flood.skip_s))


@pytest.mark.parametrize(
    "flaws",
    [
        {"loss_pct": 10.0},
        {"loss_pct": 5.0, "loss_burst": 5.0},
        {"loss_pct": 10.0, "loss_burst": 10.0},
        {"duplicate_pct": 5.0},
        {"loss_pct": 2.0, "duplicate_pct": 2.0},
    ],
)
def test_the_error_that_is_allowed_for_is_that_of_floods(flaws):
    link = Link(
        "node1", "node2", 5.0, 20.0, **{"jitter_ms": 0.0, "loss_pct": 0.0} | flaws, buffer_ms=40.0
    )
    found = [flooded(link, seed) for seed in range(60)]
    error = flood_error(link)
    assert statistics.fmean(found) == pytest.approx(5.0, rel=3 * error / 60**0.5 + 0.002)
    assert 0.7 * error < statistics.stdev(found) / 5.0 < 1.25 * error


def access_carried(asked, access, seed, real=1.0):
    """Return what an uplink carries, measured as floods of its links do, if it lets `real` of its limit through."""
    chance, total = random.Random(seed), sum(link.rate_mbyte_s for link in access.links)
    flood = next(f for f in access_floods(asked, [access]))
    seconds, found = flood.seconds - flood.skip_s, 0.0
    for link in access.links:
        share = asked.access_mbyte_s(access) * real * link.rate_mbyte_s / total
        end, lost, came = 1 / link.loss_burst, False, 0
        begin = end * link.loss_pct / (100 - link.loss_pct) if end < 1 else link.loss_pct / 100
        for _ in range(round(seconds * share * 1e6 / 1514)):
            lost = chance.random() < (1 - end if lost and end < 1 else begin)
            came += 0 if lost else 1 + (chance.random() < link.duplicate_pct / 100)
        found += flooded_mbyte_s(link, came / seconds)
    return Rate(found, 99.0)


@pytest.mark.parametrize(
    "flaws",
    [
        {"loss_pct": 5.0, "loss_burst": 5.0},
        {"loss_pct": 10.0, "loss_burst": 10.0},
        {"loss_pct": 20.0, "loss_burst": 10.0},
        {"loss_pct": 10.0, "duplicate_pct": 5.0},
        {},
    ],
)
@pytest.mark.parametrize("peers", [1, 3])
def test_an_uplink_may_be_off_by_what_chance_takes_from_its_links(flaws, peers):
    """Losses of 20 % in bursts of ten broke half of the right ones in one pass."""
    links = tuple(
        Link(
            "node1",
            f"node{n}",
            5.0,
            20.0,
            **{"jitter_ms": 0.0, "loss_pct": 0.0} | some,
            buffer_ms=40.0,
        )
        for n, some in zip(range(2, 2 + peers), [flaws, {}, flaws], strict=False)
    )
    asked = Expected(links, uplinks={"node1": 2.0})
    (access,) = asked.accesses()
    error = access_error(asked, access)

    def holds(seed, real=1.0):
        carried = access_carried(asked, access, seed, real)
        return judge_access(access, 2.0, carried, error=error).holds

    assert sum(not holds(seed) for seed in range(200)) <= 2
    assert (error > 0) is bool(flaws)
    if not flaws:
        assert not holds(1, 0.9) and not holds(1, 1.1)


def let_through(link, limit_mbyte_s, seconds=8.0):
    """Return the datagrams a second that a full link delivers through the nfqueue wire's own downlink."""
    line = DelayLine(
        Behaviour(
            link.delay_ms / 1e3,
            loss=link.loss_pct / 100,
            duplicate=link.duplicate_pct / 100,
            corrupt=link.corrupt_pct / 100,
            copied=WHOLE,
            limited=True,
        ),
        Downlink(limit_mbyte_s * 1e6, 0.04),
    )
    whole = b"\x45" + bytes(1499)
    came, between_s = 0, 1514 / (link.rate_mbyte_s * 1e6)
    for number in range(int(seconds / between_s)):
        line.admit(number, number * between_s, len(whole), whole)
        ((what, _, content, copy),) = line.take_due(math.inf)
        if what == ACCEPT and not content:
            came += 1 + bool(copy)
    return came / seconds


@pytest.mark.parametrize(
    "flaws",
    [
        {"corrupt_pct": 5.0},
        {"corrupt_pct": 3.0, "loss_pct": 10.0},
        {"duplicate_pct": 5.0, "corrupt_pct": 5.0},
        {},
    ],
)
def test_damaged_packets_have_passed_the_downlink(flaws):
    link = Link("node1", "node2", 10.0, 20.0, 0.0, 0.0, 40.0, "nfqueue")._replace(**flaws)
    asked = Expected((link,), downlinks={"node2": 4.0})
    (access,) = asked.accesses()
    error = access_error(asked, access)

    def measured(limit_mbyte_s):
        rate = Rate(flooded_mbyte_s(link, let_through(link, limit_mbyte_s)), 99.0)
        carried = _together(access, {link.ends: rate})
        holds = judge_access(access, asked.access_mbyte_s(access), carried, error=error).holds
        return rate.mbyte_s, holds

    rate_mbyte_s, holds = measured(4.0)
    assert holds and rate_mbyte_s == pytest.approx(asked.rate_mbyte_s(link), rel=0.01)
    assert not measured(3.6)[1] and not measured(4.4)[1]


def test_second_copies_pass_the_downlink_on_netem_alone():
    """Its queues, which double packets as they take them, are leaves of the class that limits them together."""
    twice = Link("node1", "node2", 10.0, 20.0, 0.0, 0.0, 40.0, "netem", duplicate_pct=25.0)
    for wire, rate_mbyte_s in (("netem", 3.2), ("nfqueue", 4.0)):
        link = twice._replace(wire=wire)
        asked = Expected((link,), downlinks={"node2": 4.0})
        assert asked.rate_mbyte_s(link) == pytest.approx(rate_mbyte_s)
        assert asked.access_mbyte_s(*asked.accesses()) == pytest.approx(4.0)
        assert (access_error(asked, *asked.accesses()) > 0) is (wire == "nfqueue")


def test_losses_before_a_full_downlink_do_not_change_what_it_carries():
    lossy = Link("node1", "node2", 5.0, 20.0, 0.0, 20.0, 40.0, loss_burst=10.0)
    full, wide = (Expected((lossy,), downlinks={"node2": limit}) for limit in (2.0, 9.0))
    assert access_error(full, *full.accesses()) == 0.0
    assert access_error(wide, *wide.accesses()) > 0.01


def test_losses_are_not_counted_where_that_would_take_a_bounded_contract_too_long():
    """Of sixteen nodes: minutes."""
    for count, counted in ((3, ANY_LOSSES), (16, None)):
        nodes = [f"node{n}" for n in range(count)]
        links = [
            Link(src, dst, 1.0, 20.0, 1.0, 0.1, 40.0)
            for src in nodes
            for dst in nodes
            if src != dst
        ]
        plan = make_probe_schedule(Expected(tuple(links)), [], nodes, EFFORTS["normal"], 1, 58.0)
        assert plan.losses == counted
        full = make_probe_schedule(Expected(tuple(links)), [], nodes, EFFORTS["full"], 1, math.inf)
        assert full.losses == TELLING_LOSSES
