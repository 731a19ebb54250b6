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
