"""Delays of an order-preserving link, recovered from the times that its packets took."""

import random
import statistics

import pytest

from cluster.contract.checks import MEAN_ERROR, SPREAD_ERROR
from cluster.contract.delays import fit_delays, spread


def packets(count, interval_ms, mean_ms, sd_ms, seed=1, stall_at=None, read_ms=0.0):
    """Simulate a link: each packet leaves after its own delay, but not before the one ahead of it.

    The reader takes `read_ms` for each packet and only then reads the clock.
    """
    stream, arrived, read = random.Random(seed), 0.0, 0.0
    sent, took = [], []
    for number in range(count):
        left = number * interval_ms
        delay = stream.gauss(mean_ms, sd_ms) + (200.0 if number == stall_at else 0.0)
        arrived = max(arrived, left + delay)
        read = max(arrived, read) + read_ms
        sent.append(left)
        took.append(read - left)
    return sent, took


@pytest.mark.parametrize("apart", [5.0, 1.0, 0.5, 0.2])
def test_mean_and_deviation_are_found_however_close_packets_follow(apart):
    sent, took = packets(4000, 10 * apart, 100.0, 10.0)
    found = fit_delays(sent, took)
    assert found.mean_ms == pytest.approx(100, abs=1.5)
    assert found.sd_ms == pytest.approx(10, rel=0.1)
    if apart < 1:  # the plain mean would have been wrong
        assert statistics.fmean(took) > 104


@pytest.mark.parametrize(
    ("sd_ms", "apart", "read_ms"), [(100, 1, 0.4), (60, 0.5, 0.4), (20, 1, 0.3), (6, 10 / 6, 0.15)]
)
def test_packets_that_were_let_go_together_are_known_for_it_although_a_program_reads_them_one_by_one(
    sd_ms, apart, read_ms
):
    """The node's probe is such a program: before they were recognised, it found a link of 100 ms 7 % too long."""
    found = fit_delays(*packets(4000, sd_ms * apart, 3.0 * sd_ms, sd_ms, read_ms=read_ms))
    assert found.mean_ms == pytest.approx(3.0 * sd_ms + read_ms, abs=0.05 * sd_ms)
    assert found.sd_ms == pytest.approx(sd_ms, rel=0.05)


def test_one_stall_of_the_host_is_not_taken_for_jitter():
    sent, took = packets(400, 10.0, 100.0, 5.0, stall_at=200)
    assert fit_delays(sent, took).sd_ms == pytest.approx(5, rel=0.12)


def test_two_stalls_in_a_few_pings_are_not_taken_for_a_longer_way():
    sent, took = packets(30, 500.0, 300.0, 60.0)
    took[7] += 3000.0
    took[19] += 2000.0
    found = fit_delays(sent, took)
    assert found.mean_ms == pytest.approx(300, abs=40)
    assert found.sd_ms == pytest.approx(60, rel=0.4)


def test_who_overtook_lost_packets_unseen_is_not_taken_for_jitter():
    stream = random.Random(1)
    ahead, lost = (
        {4, 111, 270},
        {number - back for number in (4, 111, 270) for back in (1, 2, 3, 4)},
    )
    there = [number for number in range(400) if number not in lost]
    took = [0.1 if number in ahead else stream.uniform(35.0, 42.0) for number in there]
    sent = [number * 12.0 for number in there]
    assert fit_delays(sent, took).sd_ms == pytest.approx(7 / 12**0.5, rel=0.1)


def test_packets_that_all_take_the_same_time_have_no_deviation():
    assert fit_delays([0.0, 10.0, 20.0], [5.0, 5.0, 5.0]).sd_ms == 0


def test_the_chance_that_is_allowed_for_is_that_of_the_fit():
    found = [fit_delays(*packets(150, 10.0, 100.0, 10.0, seed)) for seed in range(150)]
    free = statistics.fmean(fit.free for fit in found)
    mean_error = statistics.stdev(fit.mean_ms for fit in found) / 10 * free**0.5
    spread_error = statistics.stdev(fit.sd_ms for fit in found) / 10 * free**0.5
    assert 0.7 * MEAN_ERROR < mean_error < MEAN_ERROR * 1.1
    assert 0.7 * SPREAD_ERROR < spread_error < SPREAD_ERROR * 1.1


def test_spread_is_a_standard_deviation_and_one_stall_of_the_host_is_none():
    stream = random.Random(1)
    assert spread([stream.gauss(50, 8) for _ in range(4000)]) == pytest.approx(8, rel=0.05)
    assert spread([50.0] * 99 + [90.0]) == 0
    assert spread([50.0] * 80 + [90.0] * 20) > 10  # that is not a stall
