"""Tolerances: which properties of a link are checked, and how far each may be off. Pure functions."""

import math
from dataclasses import dataclass

from cluster.contract.bursts import buffer_error
from cluster.contract.floods import HOST_LIMIT_MBYTE_S, flood_error
from cluster.contract.impairments import judge_impairments
from cluster.contract.measured import Measured, Queue, Rate
from cluster.links.expected import Expected, payload_share
from protocol.link import Link, together_pct

# Of a round trip and of the delay of one direction.
TIME_TOLERANCE_PCT = 1.0
TIME_TOLERANCE_MS = 0.3
JITTER_TOLERANCE_PCT = 10.0
# Of a rate measured by datagrams, and of what TCP carries, which falls short of a right link by up to 2.4 %.
RATE_TOLERANCE_PCT, GOODPUT_TOLERANCE_PCT = 2.0, 3.0
# Beyond these, TCP says that the link may be wrong. On a right one it is not too fast, unless the host delays data.
SEEMS_SLOW_PCT, SEEMS_FAST_PCT = RATE_TOLERANCE_PCT, 0.3
CERTAIN = 3.0  # standard errors that chance is allowed
UNLIKELY = 1e-3  # what chance may not explain
# Standard errors of the mean and deviation that cluster.contract.delays fits to n packets, in deviations / sqrt(n).
MEAN_ERROR, SPREAD_ERROR = 1.1, 0.8
# For a queue, and for what a delayed sender adds. Measured on busy processors: within 0.8 % (docs/LOG.md).
BUFFER_TOLERANCE_PCT, BUFFER_TOLERANCE_MS = 5.0, 1.0


@dataclass(frozen=True)
class Checked:
    """The names of a link's failed checks, and whether its speed is limited by the machine (`clipped`)."""

    failed: tuple[str, ...]
    clipped: bool


def check_link(link: Link, asked: Expected, measured: Measured) -> Checked:
    """Compare one link's measurement with what was asked."""
    speeds = _check_speeds(link, asked, measured)
    checks = {
        "delay": _delay_holds(link, measured),
        "rtt": _rtt_holds(link, asked, measured),
        "jitter": _jitter_holds(link, measured),
        "buffer": _buffer_holds(link, measured),
        **judge_impairments(link, measured, asked.hops.get(link.ends, ())),
        **{name: holds for name, (holds, _) in speeds.items()},
    }
    if math.isinf(measured.rtt_ms) and _is_silence_likely(link, asked, measured):
        checks |= dict.fromkeys(("delay", "rtt", "jitter"), True)
    clipped = any(clipped for _, clipped in speeds.values())
    if asked.is_cut(link):
        checks, clipped = {"loss": checks["loss"]}, False
    return Checked(tuple(name for name, holds in checks.items() if not holds), clipped)


def check_speed(
    measured_mbyte_s: float,
    expected_mbyte_s: float,
    *,
    is_machine: bool,
    chance: float = 0.0,
    tolerance_pct: float = RATE_TOLERANCE_PCT,
) -> tuple[bool, bool]:
    """Return whether a speed holds, and whether it is clipped: lower because the machine cannot give more.

    Args:
        measured_mbyte_s: the measured speed.
        expected_mbyte_s: the expected speed.
        is_machine: whether the machine sent less than the link would have taken.
        chance: share of the speed by which chance may move it.
        tolerance_pct: how far it may be off besides.
    """
    low = expected_mbyte_s * (1 - tolerance_pct / 100 - chance)
    limit = HOST_LIMIT_MBYTE_S * (1 - tolerance_pct / 100)
    clipped = is_machine and limit <= measured_mbyte_s < low
    holds = clipped or measured_mbyte_s >= low
    too_fast = _too_fast(measured_mbyte_s, expected_mbyte_s * (1 + chance), tolerance_pct)
    return holds and not too_fast, clipped


def round_trip_jitter_ms(link: Link, asked: Expected) -> float:
    """Return the standard deviation of a link's round trip, as asked."""
    return math.hypot(link.jitter_ms, *(back.jitter_ms for back in ways_back(link, asked)))


def ways_back(link: Link, asked: Expected) -> list[Link]:
    """Return the link in the other direction, if there is one."""
    back = asked.by_ends.get(link.ends[::-1])
    return [] if back is None else [back]


def rtt_tolerance_ms(link: Link, asked: Expected, measured: Measured) -> float:
    """Return how far a round trip may be off, chance included."""
    spread_ms = round_trip_jitter_ms(link, asked)
    chance_ms = CERTAIN * MEAN_ERROR * spread_ms / math.sqrt(max(1, measured.rtt_samples))
    return asked.rtt_ms(link) * TIME_TOLERANCE_PCT / 100 + TIME_TOLERANCE_MS + chance_ms


def check_rate(
    link: Link, asked: Expected, rate: Rate, goodput_mbyte_s: float | None
) -> tuple[bool, bool]:
    """Check what a link carried of datagrams or TCP, as `check_speed`; chance drops and duplicates datagrams."""
    chance = CERTAIN * flood_error(asked.as_limited(link))
    expected = asked.rate_mbyte_s(link)
    is_machine = rate.is_machine and (rate.is_all or link.dst not in asked.downlinks)
    carried = carried_mbyte_s(rate.mbyte_s, goodput_mbyte_s, expected, asked.mtu)
    return check_speed(carried, expected, is_machine=is_machine, chance=chance)


def carried_mbyte_s(
    rate_mbyte_s: float, goodput_mbyte_s: float | None, asked_mbyte_s: float, mtu: int
) -> float:
    """Return what a link carried, in bytes on the wire: no less than what TCP got through it.

    If datagrams were fewer, their sender was too slow. (More than what was asked proves nothing: data that a busy host
    delayed may arrive within the second measured.)

    Args:
        rate_mbyte_s: measured by datagrams.
        goodput_mbyte_s: TCP's payload; None if TCP did not measure it.
        asked_mbyte_s: the rate that was asked for.
        mtu: of the data network.
    """
    by_tcp_mbyte_s = (goodput_mbyte_s or 0.0) / payload_share(mtu)
    if _too_fast(by_tcp_mbyte_s, asked_mbyte_s, GOODPUT_TOLERANCE_PCT):
        by_tcp_mbyte_s = 0.0
    return max(rate_mbyte_s, min(by_tcp_mbyte_s, asked_mbyte_s))


def is_rate_in_doubt(link: Link, asked: Expected, measured: Measured) -> bool:
    """Return whether TCP carried so much or so little that the link's rate may be wrong; only datagrams tell how much.

    TCP's own shortfall hides a part of a rate that is too high: beside other work, TCP was 1.6 to 4 % too fast on links
    that were 4 % too fast (docs/LOG.md).
    """
    if link.is_rough or measured.goodput_mbyte_s is None:
        return False
    expected = asked.goodput_mbyte_s(link)
    low, high = expected * (1 - SEEMS_SLOW_PCT / 100), expected * (1 + SEEMS_FAST_PCT / 100)
    return not low <= measured.goodput_mbyte_s <= high


def _check_speeds(link: Link, asked: Expected, measured: Measured) -> dict[str, tuple[bool, bool]]:
    """Return, for each measure of the link's speed, whether it holds and whether it is clipped."""
    goodput, rate = measured.goodput_mbyte_s, measured.rate
    speeds = {}
    if rate is not None:
        speeds["rate"] = check_rate(link, asked, rate, goodput)
    if goodput is not None and not link.is_rough:
        # TCP costs a machine more than datagrams: if these find the link as asked, TCP is the machine's limit.
        is_machine = rate is not None and speeds["rate"][0]
        expected = asked.goodput_mbyte_s(link)
        speeds["goodput"] = check_speed(
            goodput, expected, is_machine=is_machine, tolerance_pct=GOODPUT_TOLERANCE_PCT
        )
    elif goodput is not None and not speeds:
        # TCP's response to loss and jitter is not judged, unless nothing or too much gets through.
        holds = goodput > 0 and not _too_fast(
            goodput, asked.rate_mbyte_s(link), GOODPUT_TOLERANCE_PCT
        )
        speeds["goodput"] = (holds, False)
    return speeds


def _too_fast(measured_mbyte_s: float, expected_mbyte_s: float, tolerance_pct: float) -> bool:
    """Return whether a speed is too high, which is as wrong as too low."""
    return measured_mbyte_s > expected_mbyte_s * (1 + tolerance_pct / 100)


def _is_silence_likely(link: Link, asked: Expected, measured: Measured) -> bool:
    """Return whether the losses asked for may well leave no echo of the pings that were sent."""
    ways = link, *ways_back(link, asked)
    lost_pct = together_pct(way.lost_pct for way in ways)
    return (lost_pct / 100) ** measured.sent > UNLIKELY if lost_pct else False


def _rtt_holds(link: Link, asked: Expected, measured: Measured) -> bool:
    off_ms = abs(measured.rtt_ms - asked.rtt_ms(link))
    return off_ms <= rtt_tolerance_ms(link, asked, measured)


def delay_tolerance_ms(link: Link, measured: Measured) -> float:
    """Return how far a one-way delay may be off, chance included."""
    chance_ms = CERTAIN * MEAN_ERROR * link.jitter_ms / math.sqrt(max(1, measured.samples))
    return link.delay_ms * TIME_TOLERANCE_PCT / 100 + TIME_TOLERANCE_MS + chance_ms


def _delay_holds(link: Link, measured: Measured) -> bool:
    if measured.delay_ms is None:
        return True
    return abs(measured.delay_ms - link.delay_ms) <= delay_tolerance_ms(link, measured)


def _buffer_holds(link: Link, measured: Measured) -> bool:
    if measured.buffer_ms is None:
        return True
    return abs(measured.buffer_ms - link.buffer_ms) <= buffer_tolerance_ms(link)


def hides_queue(link: Link, queue: Queue) -> bool:
    """Return whether a queue seems too small, but the sender was so slow that this may be the cause.

    If even the right queue would have seemed empty, the burst says nothing about the queue, whatever is missing.
    """
    missing_ms = link.buffer_ms - queue.buffer_ms - buffer_tolerance_ms(link)
    return missing_ms > 0 and queue.short_ms >= min(missing_ms, link.buffer_ms)


def buffer_tolerance_ms(link: Link) -> float:
    """Return how far the drain time of a full queue may be off, chance included."""
    share = BUFFER_TOLERANCE_PCT / 100 + CERTAIN * buffer_error(link)
    return link.buffer_ms * share + BUFFER_TOLERANCE_MS


def _jitter_holds(link: Link, measured: Measured) -> bool:
    return abs(measured.jitter_ms - link.jitter_ms) <= jitter_tolerance_ms(link, measured)


def jitter_tolerance_ms(link: Link, measured: Measured) -> float:
    """Return how far a jitter may be off, chance included."""
    chance = CERTAIN * SPREAD_ERROR / math.sqrt(max(2, measured.samples))
    allowed = link.jitter_ms * (JITTER_TOLERANCE_PCT / 100 + chance) + TIME_TOLERANCE_MS
    if link.jitter_ms == 0:
        allowed += (link.delay_ms) * TIME_TOLERANCE_PCT / 100
    return allowed
