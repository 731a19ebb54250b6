"""Estimates a link's delay distribution from packets of which some waited for the one before them. Pure arithmetic.

On a link that jitters and keeps the order, a packet leaves at the later of two moments: its own, and that of the
packet before it. If it waited, its own delay is only known to be no longer than the observed one: it is censored, the
others are not. Mean and deviation of a normal distribution are fitted to both kinds (expectation-maximisation:
Dempster, Laird and Rubin, 1977), so pings need not be so far apart that none ever waits.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

OUTER_DECILES = (
    2.5631  # from a normal distribution's first decile to its ninth, in standard deviations
)
# Two packets that arrive closer together than this were released together: a program reads one after the other, and
# takes some tenths of a millisecond for each. TOGETHER_SHARE is in deviations: few come so close by chance.
TOGETHER_MS, TOGETHER_SHARE = 0.2, 0.03
# In deviations from the median; beyond it, a stall of the host, or a reordered packet that had none left to overtake.
# Jitter alone exceeds it for one packet in 150,000.
OUTLIER = 4.5
ROUNDS, SMALL_STEP = 500, 1e-5
FIRST_DECILE = -OUTER_DECILES / 2  # of a normal distribution, in deviations from its mean
# For the wait of the earliest tenth: so many packets show it, and it is found to a hundredth of a deviation.
SHOWING, LATEST, HALVINGS = 64, 5.0, 10


@dataclass(frozen=True)
class Delays:
    """A normal distribution of one-way delays, and the number of packets behind it that did not wait (`free`)."""

    mean_ms: float
    sd_ms: float
    free: int


def fit_delays(sent_ms: Sequence[float], one_way_ms: Sequence[float]) -> Delays:
    """Fit a link's own delays to packets, taken in the order in which they were sent.

    Args:
        sent_ms: when each was sent, by any clock.
        one_way_ms: how long each took.
    """
    free, waited, arrived = [], [], -math.inf
    together_ms = max(TOGETHER_MS, TOGETHER_SHARE * spread(one_way_ms))
    # Relative to the median: clocks of two machines may be days apart, and squaring that would lose the delay's digits.
    middle_ms = statistics.median(one_way_ms)
    times = zip(sent_ms, (took - middle_ms for took in one_way_ms), strict=True)
    for sent, took in sorted(times):
        if sent + took < arrived + together_ms:
            waited.append(took)
        else:
            free.append(took)
        arrived = max(arrived, sent + took)
    found = _fit(_without_outliers(free), waited)
    return replace(found, mean_ms=found.mean_ms + middle_ms)


def early_wait_ms(sent_ms: Sequence[float], jitter_ms: float, arrived: float = 1.0) -> float:
    """Return by how much packets that wait for the one before them raise the first decile of a link's delays.

    A packet has taken no longer than x if neither its own delay nor those of the packets before it, which were sent
    earlier, end later: the product of these chances.

    Args:
        sent_ms: when the packets that arrived were sent.
        jitter_ms: the standard deviation of each one's own delay.
        arrived: share of the packets that arrived; others may have waited for those that did not.
    """
    if not jitter_ms or not sent_ms:
        return 0.0
    sent = [at_ms * arrived / jitter_ms for at_ms in sorted(sent_ms)]
    some = range(0, len(sent), max(1, len(sent) // SHOWING))
    low, high = FIRST_DECILE, LATEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        share = statistics.fmean(_chance_until(middle, sent, number) for number in some)
        low, high = (middle, high) if share < 0.1 else (low, middle)
    return (high - FIRST_DECILE) * jitter_ms


def _chance_until(most: float, sent: Sequence[float], number: int) -> float:
    """Return the chance that a packet takes no longer than `most`, from the mean; all times in deviations."""
    chance = 1.0
    for before in range(number, -1, -1):
        room = most + sent[number] - sent[before]
        if room > LATEST or chance < SMALL_STEP:
            break
        chance *= 0.5 * math.erfc(-room / math.sqrt(2))
    return chance


def _without_outliers(values: Sequence[float]) -> list[float]:
    """Return the values near their median, by deciles: a tenth of the values cannot move these, however few."""
    middle, reach = statistics.median(values), OUTLIER * spread(values)
    return [value for value in values if abs(value - middle) <= reach]


def spread(values: Sequence[float]) -> float:
    """Return a standard deviation, computed from the distance between the outer deciles of values.

    One stall of the host, which delays one ping in a hundred, must not look like jitter; a link that delays one ping
    in five must.
    """
    if len(values) < 2:
        return 0.0
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return (deciles[-1] - deciles[0]) / OUTER_DECILES


def _fit(free: Sequence[float], waited: Sequence[float]) -> Delays:
    mean, sd = statistics.fmean(free), statistics.pstdev(free)
    count, sum_1, sum_2 = len(free) + len(waited), sum(free), sum(took**2 for took in free)
    for _ in range(ROUNDS if sd else 0):
        below = [_moments_below(limit, mean, sd) for limit in waited]
        new_mean = (sum_1 + sum(first for first, _ in below)) / count
        second = (sum_2 + sum(second for _, second in below)) / count
        new_sd = math.sqrt(max(second - new_mean**2, 0.0))
        step = abs(new_mean - mean) + abs(new_sd - sd)
        mean, sd = new_mean, new_sd
        if not sd or step < SMALL_STEP * sd:
            break
    return Delays(mean, sd, len(free))


def _moments_below(limit: float, mean: float, sd: float) -> tuple[float, float]:
    """Return the mean, and the mean square, of a normal variable that is known to be below a limit."""
    z = (limit - mean) / sd
    share = 0.5 * math.erfc(-z / math.sqrt(2))
    if share < 1e-12:  # far out in the tail: as good as at the limit
        return limit, limit**2
    ratio = math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / share
    return mean - sd * ratio, mean**2 + sd**2 - sd * ratio * (limit + mean)
