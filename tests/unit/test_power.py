"""The smallest errors that a contract claims to detect are detected, on figures drawn as links produce them."""

import random
from dataclasses import replace
from math import sqrt

import pytest

from cluster.contract.checks import is_rate_in_doubt
from cluster.contract.floods import link_floods
from cluster.contract.measured import DropCount, Measured, Queue, Rate
from cluster.contract.notes import rare_losses_note
from cluster.contract.power import detectable_errors
from cluster.contract.probe_plan import EFFORTS, TELLING_LOSSES, delay_pings
from cluster.contract.verdicts import judge
from cluster.links.expected import Expected
from protocol.gilbert import loss_burst_chances
from protocol.link import Link

THERE = Link("node1", "node2", 5.0, 80.0, 0.0, 0.0, 160.0, "nfqueue")
BACK = THERE._replace(src="node2", dst="node1")
GOOD = Measured(
    rtt_ms=160.1,
    jitter_ms=0.1,
    samples=60,
    sent=60,
    arrived=60,
    reordered=0,
    goodput_mbyte_s=4.77,
    early_rtt_ms=160.0,
    delay_ms=80.05,
    early_delay_ms=80.0,
)


def caught(link, measured):
    return bool(judge(link, Expected((link, BACK)), measured).failed)


@pytest.mark.parametrize(("loss_pct", "packets"), [(0.1, 20_000), (1.0, 2000), (5.0, 2000)])
def test_the_smallest_factor_of_losses_is_found_in_99_of_100_cases(loss_pct, packets):
    lossy, stream = THERE._replace(loss_pct=loss_pct), random.Random(loss_pct)

    def looked_at(factor):
        share, sent = factor * loss_pct / 100, 800
        lost = sum(stream.random() < share for _ in range(packets))
        pinged = min(lost, round(sent * loss_pct / 100))  # as requested: only the drop count tells
        drop_count = DropCount(sent, pinged, packets, lost)
        return replace(
            GOOD, sent=sent, arrived=sent - pinged, drop_count=drop_count, goodput_mbyte_s=None
        )

    factor = detectable_errors(lossy, looked_at(1)).loss_factor
    assert 1 < factor < 3
    assert sum(caught(lossy, looked_at(factor)) for _ in range(200)) >= 195
    assert sum(caught(lossy, looked_at(1)) for _ in range(200)) <= 3


def counted(link, packets, lost):
    """Return a link's measurement in which the wire counted so many packets, and pings lost none."""
    drop_count = DropCount(100, 0, packets, lost)
    return replace(GOOD, sent=100, arrived=100, drop_count=drop_count, goodput_mbyte_s=None)


@pytest.mark.parametrize(("packets", "factor"), [(8000, 0.0), (80_000, 0.42), (800_000, 0.79)])
def test_losses_that_are_as_rare_as_said_are_found_in_99_of_100_cases(packets, factor):
    lossy, stream = THERE._replace(loss_pct=0.1), random.Random(packets)
    said = detectable_errors(lossy, counted(lossy, packets, packets // 1000))
    assert said.loss_shortfall_factor == pytest.approx(factor, abs=0.05)
    mean, deviation = (f(said.loss_shortfall_factor * packets / 1000) for f in (float, sqrt))
    draws = [max(0, round(stream.gauss(mean, deviation))) for _ in range(200)]
    assert sum(caught(lossy, counted(lossy, packets, lost)) for lost in draws) >= 195
    assert not caught(lossy, counted(lossy, packets, packets // 1000))
    assert not rare_losses_note(
        [judge(lossy, Expected((lossy, BACK)), counted(lossy, packets, packets // 1000))]
    )


def test_a_link_whose_missing_losses_would_pass_has_a_note():
    lossy = THERE._replace(loss_pct=0.1)
    rare = counted(lossy, 4000, 4)
    assert detectable_errors(lossy, rare).loss_shortfall_factor is None
    assert not caught(lossy, counted(lossy, 4000, 0))
    verdicts = [
        judge(link, Expected((link, BACK)), rare)
        for link in (lossy, THERE, THERE._replace(loss_pct=100))
    ]
    assert rare_losses_note(verdicts).endswith("too rare to be told from none by so few packets: 1")


def runs_of_losses(loss_pct, burst, packets, stream):
    """Return how many of the packets Gilbert's model loses, and in how many runs."""
    begin, end = loss_burst_chances(THERE._replace(loss_pct=loss_pct, loss_burst=burst))
    lost = runs = 0
    is_lost = False
    for _ in range(packets):
        was_lost, is_lost = is_lost, stream.random() < (1 - end if is_lost else begin)
        lost += is_lost
        runs += is_lost and not was_lost
    return lost, runs


@pytest.mark.parametrize(("loss_pct", "packets"), [(5.0, 4000), (20.0, 800)])
def test_bursts_as_much_longer_as_said_are_found_in_99_of_100_cases(loss_pct, packets):
    lossy, stream = THERE._replace(loss_pct=loss_pct, loss_burst=3.0), random.Random(loss_pct)

    def looked_at(factor):
        """Return a measurement with the losses that were asked for, in longer runs."""
        lost, runs = runs_of_losses(loss_pct, 3.0 * factor, packets, stream)
        few = round(packets * loss_pct / 100)
        runs = round(runs * few / lost)
        return replace(GOOD, sent=packets, arrived=packets - few, gaps=runs, goodput_mbyte_s=None)

    factor = detectable_errors(lossy, looked_at(1)).loss_burst_factor
    assert 1.3 < factor < 4
    assert sum(caught(lossy, looked_at(factor)) for _ in range(100)) >= 96
    assert sum(caught(lossy, looked_at(1)) for _ in range(100)) <= 2


def test_with_few_losses_bursts_of_any_length_pass():
    lossy = THERE._replace(loss_pct=1.0, loss_burst=5.0)
    few = replace(GOOD, sent=800, arrived=792, gaps=2)
    assert detectable_errors(lossy, few).loss_burst_factor is None
    assert detectable_errors(THERE._replace(loss_pct=1.0), few).loss_burst_factor is None


def test_errors_of_a_quiet_link_are_found_where_they_are_as_large_as_said():
    said = detectable_errors(THERE, GOOD)
    assert said.loss_factor is None
    assert said.delay_ms == pytest.approx(0.01 * 80 + 0.3 + 0.15)
    assert said.delay_ms <= 0.02 * 80 + 0.3  # what was aimed at
    assert caught(THERE, replace(GOOD, delay_ms=80 + said.delay_ms))
    assert caught(THERE, replace(GOOD, jitter_ms=said.jitter_ms))
    assert said.buffer_ms is None
    assert said.rate_pct == pytest.approx(3)  # what was aimed at
    for factor in (0.97, 1.03):
        by_tcp = replace(GOOD, goodput_mbyte_s=4.7824 * factor * 0.976)  # its shortfall
        assert is_rate_in_doubt(THERE, Expected((THERE, BACK)), by_tcp) or caught(THERE, by_tcp)
        assert caught(THERE, replace(by_tcp, rate=Rate(5.0 * factor, 99.0)))
    assert not caught(THERE, GOOD)


def test_a_queue_is_found_where_it_is_off_by_as_much_as_said():
    right = replace(GOOD, queue=Queue(THERE.buffer_ms, short_ms=0.0))
    error_ms = detectable_errors(THERE, right).buffer_ms
    assert error_ms == pytest.approx(0.06 * 160 + 1)
    assert not caught(THERE, right)
    assert caught(THERE, replace(right, queue=Queue(THERE.buffer_ms - error_ms, short_ms=0.0)))
    lossy = THERE._replace(loss_pct=2.0)  # losses leave more to chance
    assert detectable_errors(lossy, right).buffer_ms > error_ms + 0.5


def test_what_was_not_measured_is_not_said_to_be_found():
    silent = replace(GOOD, samples=0, goodput_mbyte_s=None)
    assert detectable_errors(THERE, silent) == (None,) * 7
    assert detectable_errors(THERE, GOOD, clipped=True).rate_pct is None
    rough = THERE._replace(jitter_ms=5.0)
    assert detectable_errors(rough, GOOD).rate_pct is None  # jitter makes TCP's rate vague
    assert detectable_errors(rough, replace(GOOD, rate=Rate(5.0, 90.0))).rate_pct == pytest.approx(
        3
    )


def test_a_full_contract_finds_losses_off_by_half_and_a_jitter_off_by_15_pct():
    """For a loss of 0.05 % and a jitter of 20 ms, with the packets that a full contract sends at 8 MB/s."""
    lossy = Link("node1", "node2", 8.0, 80.0, 20.0, 0.05, 160.0, "nfqueue")
    (flood,) = link_floods([lossy], ["node1", "node2"], losses=TELLING_LOSSES)
    packets = round((flood.seconds - flood.skip_s) * 8e6 / 1514)
    drop_count = DropCount(4000, 2, packets, 165)
    pings = delay_pings([lossy], {"node2": "10.0.0.2"}, 9, EFFORTS["full"]).pings
    said = detectable_errors(
        lossy, replace(GOOD, samples=pings, jitter_ms=20.0, drop_count=drop_count)
    )
    assert said.loss_factor <= 1.5
    assert said.jitter_ms <= 0.15 * 20 + 0.45 + 0.2
