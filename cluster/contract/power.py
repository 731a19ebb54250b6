"""Computes the smallest errors that a contract finds with 99 % probability on a link, from the link's measurement.

Pure functions. Each error is the tolerance (`cluster.contract.checks`) plus what chance may add to it, so that of a
hundred links with such an error one passes. `tests/power.py` compares them with measurements.
"""

import math
from typing import NamedTuple

from cluster.contract.bursts import buffer_error
from cluster.contract.checks import (
    CERTAIN,
    MEAN_ERROR,
    RATE_TOLERANCE_PCT,
    SPREAD_ERROR,
    buffer_tolerance_ms,
    delay_tolerance_ms,
    jitter_tolerance_ms,
)
from cluster.contract.floods import flood_error
from cluster.contract.impairments import clumping, fewest_runs
from cluster.contract.measured import Measured
from cluster.links.expected import loss_interval
from protocol.gilbert import loss_burst_chances
from protocol.link import Link

ONE_IN_A_HUNDRED = 2.33  # standard errors
# The systematic error that a busy host adds to a delay, and to a speed or queue.
HOST_MS, HOST_PCT = 0.15, 1.0


class Detectable(NamedTuple):
    """The smallest error of each figure of a link that is found with 99 % probability; None if it was not measured.

    Attributes:
        delay_ms: of the one-way delay in this direction.
        jitter_ms: of the delay's standard deviation.
        buffer_ms: of the time in which a full queue drains.
        rate_pct: of the rate; None also if the machine was the limit: then any higher rate passes.
        loss_factor: as a multiple of the losses asked for; None also if all or none are asked for: if none, a single
            loss is found.
        loss_shortfall_factor: likewise, of a link that loses too little; 0: a link that loses nothing is found; None
            also if so few packets were sent that it would pass.
        loss_burst_factor: how many times as long as asked bursts of losses must be; None also if none are asked for, or
            if too few packets were lost: then bursts of any length pass.
    """

    delay_ms: float | None
    jitter_ms: float | None
    buffer_ms: float | None
    rate_pct: float | None
    loss_factor: float | None
    loss_shortfall_factor: float | None
    loss_burst_factor: float | None

    def document(self) -> dict[str, float | None]:
        """Return the values for contract.json, rounded to the side of the larger error."""
        rounded = {
            name: None if value is None else math.ceil(1000 * value) / 1000
            for name, value in self._asdict().items()
        }
        if self.loss_shortfall_factor is not None:
            rounded["loss_shortfall_factor"] = math.floor(1000 * self.loss_shortfall_factor) / 1000
        return rounded


def detectable_errors(link: Link, measured: Measured, *, clipped: bool = False) -> Detectable:
    """Return the detectable errors of one link as measured; `clipped`: whether the machine limited its speed."""
    told = measured.samples > 0
    return Detectable(
        delay_ms=_delay_ms(link, measured) if told and measured.delay_ms is not None else None,
        jitter_ms=_jitter_ms(link, measured) if told else None,
        buffer_ms=None if measured.buffer_ms is None else _buffer_ms(link),
        rate_pct=None if clipped else _rate_pct(link, measured),
        loss_factor=_loss_factor(link, measured),
        loss_shortfall_factor=_loss_shortfall_factor(link, measured),
        loss_burst_factor=_loss_burst_factor(link, measured),
    )


def _delay_ms(link: Link, measured: Measured) -> float:
    error_ms = MEAN_ERROR * link.jitter_ms / math.sqrt(measured.samples)
    return delay_tolerance_ms(link, measured) + ONE_IN_A_HUNDRED * error_ms + HOST_MS


def _jitter_ms(link: Link, measured: Measured) -> float:
    error_ms = SPREAD_ERROR * link.jitter_ms / math.sqrt(measured.samples)
    return jitter_tolerance_ms(link, measured) + ONE_IN_A_HUNDRED * error_ms + HOST_MS


def _buffer_ms(link: Link) -> float:
    chance_ms = ONE_IN_A_HUNDRED * buffer_error(link) * link.buffer_ms
    return buffer_tolerance_ms(link) + chance_ms + link.buffer_ms * HOST_PCT / 100


def _rate_pct(link: Link, measured: Measured) -> float | None:
    if not measured.speed_by or measured.rate is None and link.is_rough:
        return None
    chance_pct = 100 * (CERTAIN + ONE_IN_A_HUNDRED) * flood_error(link)
    return RATE_TOLERANCE_PCT + chance_pct + HOST_PCT


def _loss_factor(link: Link, measured: Measured) -> float | None:
    """Return the factor f at which f times the mean, less its chance deviation, exceeds the most losses that pass."""
    packets = _independent_packets(link, measured)
    if not packets or not 0 < link.loss_pct < 100:
        return None
    _, most = loss_interval(packets, link.loss_pct)
    root = (ONE_IN_A_HUNDRED + math.sqrt(ONE_IN_A_HUNDRED**2 + 4 * (most + 1))) / 2
    return root**2 / (packets * link.loss_pct / 100)


def _loss_shortfall_factor(link: Link, measured: Measured) -> float | None:
    """Return the factor at which the mean plus its chance deviation is below the fewest losses that pass."""
    packets = _independent_packets(link, measured)
    if not packets or not 0 < link.loss_pct < 100:
        return None
    fewest, _ = loss_interval(packets, link.loss_pct)
    if not fewest:
        return None
    return _mean_below(fewest - 1.0) / (packets * link.loss_pct / 100)


def _independent_packets(link: Link, measured: Measured) -> int:
    """Return how many packets without bursts would say as much about the link's losses."""
    packets = measured.drop_count.all_packets if measured.drop_count else measured.sent
    return round(packets / clumping(link))


def _mean_below(count: float) -> float:
    """Return the mean of random events of which there are no more than `count` in 99 of 100 cases."""
    return ((math.sqrt(ONE_IN_A_HUNDRED**2 + 4 * count) - ONE_IN_A_HUNDRED) / 2) ** 2


def _loss_burst_factor(link: Link, measured: Measured) -> float | None:
    """Return the factor by which runs of losses must be longer, and so fewer, to be fewer than pass."""
    chances, lost = loss_burst_chances(link), measured.sent - measured.arrived
    found_below = fewest_runs(link, measured) - 2.0
    if chances is None or measured.gaps is None or link.corrupt_pct or found_below <= 0:
        return None
    return lost * chances.end / _mean_below(found_below)
