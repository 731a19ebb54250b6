"""Decides which failed checks a busy host may have caused: those are undecided, all others broken. Pure functions."""

import math
from dataclasses import dataclass

from cluster.contract.checks import (
    check_rate,
    delay_tolerance_ms,
    round_trip_jitter_ms,
    rtt_tolerance_ms,
)
from cluster.contract.delays import OUTER_DECILES
from cluster.contract.floods import FRAME_BYTES
from cluster.contract.impairments import unaccounted_losses
from cluster.contract.measured import Measured
from cluster.links.expected import Expected
from cluster.shaping.host_load import SOFTIRQ_PCT, HostLoad
from protocol.gilbert import burst_chances
from protocol.link import Link

# Of all that wait for a timer a tenth at most is later than so many times their mean (Markov's inequality).
TENTH = 10.0
# A sender has at least so much in the queue before its link (cluster.contract.floods: half of a buffer, which is 10 ms
# long or more). Where it is woken late by m ms on average, the queue is empty for m / 5 of the time at most.
QUEUED_MS = 5.0
# To be on time on the whole the nfqueue wire begins so much earlier, at most (node.wire.nfqueue.delayer), on each way
# of a round trip.
EARLY_MS = 2 * 1.0
EARLY_DEVIATIONS = OUTER_DECILES / 2  # from a normal distribution's first decile to its middle


@dataclass(frozen=True)
class Strain:
    """In what way, and by how much, the host was the limit while a link was measured.

    Attributes:
        limits: a sentence for each way; at least one.
        reach_ms: so late was a packet, or a ping, at the most, but for a tenth of them.
        short_pct: of the packets, or of the time: what was late, or had by others.
        dropped: packets that were dropped unseen by a wire that the link's pass.
    """

    limits: tuple[str, ...]
    reach_ms: float
    short_pct: float
    dropped: int


def make_strain(load: HostLoad, pings_late_ms: float, src: str = "") -> Strain | None:
    """What the load of the nodes on a link's way may have done to its measurement; None where the host gave enough.

    Pings take precedence over other programs, and were late by `pings_late_ms` on average. Packets do not pass the wire
    of the node `src` where they begin.
    """
    if not load.limits:
        return None
    late_ms, softirq_pct = load.timers_late_ms or 0.0, load.softirq_pct or 0.0
    # A wire that cannot tell (netem) waits for timers, as programs do.
    wires_ms = sum(load.worst_ms.values()) if load.worst_ms else TENTH * late_ms
    return Strain(
        limits=tuple(load.limits),
        reach_ms=wires_ms + TENTH * pings_late_ms,
        short_pct=max(
            100 * late_ms / QUEUED_MS,
            load.steal_pct or 0.0,
            softirq_pct if softirq_pct > SOFTIRQ_PCT else 0.0,
            *load.late_pct.values(),
            *load.throttled_pct.values(),
        ),
        dropped=sum(count for node, count in load.dropped.items() if node != src),
    )


def of_the_host(link: Link, asked: Expected, measured: Measured, strain: Strain) -> frozenset[str]:
    """The checks that a busy host may have made fail; of each there must be no more than it is known to have done.

    A busy host makes packets late, unevenly, and drops some. So it makes round trips longer, delays less even, speeds
    lower and losses more. It never makes a link quicker, smoother, or more reliable than asked; nothing doubled, and
    nothing overtook because of it. What it does not do either:

    - A round trip: it does not hold up all pings. Where a link has the delay that was asked, the earliest tenth of
      them shows it, also beside others that are late; where the delay is wrong, all are. And it adds no more than the
      latest packet of the wires on the way was late, and what pings were (`Strain.reach_ms`).
    - A delay of one direction: likewise.
    - Jitter: it makes no ping early. A link that really jitters has some that are, by 1.28 deviations for a tenth of
      them. And the outer deciles lie no farther apart than they may by what was asked, and by `reach_ms`.
    - Rate: it lacks no more than the share that the host was short of. Of floods on wan beside one and two busy loops
      up to 3.6 % was missing while 31 % of the packets were late, and none was more than 0.5 % too quick.
    - Goodput: where datagrams told that the link carries what it should, or may, whatever TCP makes of packets that are
      late is the host's doing: it takes them for congestion, and has had 4 % of a link on which half were, by up to
      50 ms. Where what was held up comes within its second, it may even seem some per cent too quick. But something
      comes through. Without datagrams it is as a rate: up to 16.5 % was missing while 26 % were late.
    - A queue: it makes none larger, and none smaller than by what was dropped.
    - Loss, its bursts, and losses that no wire has counted: no more than was dropped.
    """
    early_ms = measured.early_rtt_ms - asked.rtt_ms(link)
    tolerance_ms = rtt_tolerance_ms(link, asked, measured)
    earliest_ms = EARLY_DEVIATIONS * round_trip_jitter_ms(link, asked) + tolerance_ms + EARLY_MS
    uneven_ms = OUTER_DECILES * math.sqrt(max(0.0, measured.jitter_ms**2 - link.jitter_ms**2))
    too_long_ms = measured.rtt_ms - asked.rtt_ms(link)
    rate_may_be = too_slow(measured.rate_mbyte_s, asked.rate_mbyte_s(link), strain)
    if measured.rate is None:
        tcp_may_be = too_slow(measured.goodput_mbyte_s, asked.goodput_mbyte_s(link), strain)
    else:
        tcp_may_be = rate_may_be or check_rate(link, asked, measured.rate)[0]
    blamed = {
        "delay": _delay_may_be(link, measured, strain),
        "rtt": 0 < too_long_ms <= strain.reach_ms and early_ms <= tolerance_ms,
        "jitter": 0 < uneven_ms <= strain.reach_ms and early_ms >= -earliest_ms,
        "rate": rate_may_be,
        "goodput": bool(measured.goodput_mbyte_s) and tcp_may_be,
        "buffer": _frames_short(link, measured) <= strain.dropped,
        "unaccounted": 0 < unaccounted_losses(link, measured) <= strain.dropped,
        "loss": 0 < _lost_beyond(link, measured) <= strain.dropped,
        "bursts": 0 < _bursts_beyond(link, measured) <= strain.dropped,
    }
    return frozenset(name for name, may_be in blamed.items() if may_be)


def _delay_may_be(link: Link, measured: Measured, strain: Strain) -> bool:
    """Whether one way is too long, by no more than packets were late, and not for its earliest ones."""
    if measured.delay_ms is None or measured.early_delay_ms is None:
        return False
    is_right_early = measured.early_delay_ms - link.delay_ms <= delay_tolerance_ms(link, measured)
    return 0 < measured.delay_ms - link.delay_ms <= strain.reach_ms and is_right_early


def too_slow(measured_mbyte_s: float | None, expected_mbyte_s: float, strain: Strain) -> bool:
    """Whether a speed is lower than it should be, by no more than the host was short of."""
    if measured_mbyte_s is None:
        return False
    return 0 < 100 * (1 - measured_mbyte_s / expected_mbyte_s) <= strain.short_pct


def _lost_beyond(link: Link, measured: Measured) -> float:
    """How many packets more than asked did not arrive."""
    return measured.sent * (1 - link.lost_pct / 100) - measured.arrived


def _frames_short(link: Link, measured: Measured) -> float:
    """How many frames fewer than asked a queue held; infinity where it held no fewer."""
    if measured.buffer_ms is None or measured.buffer_ms >= link.buffer_ms:
        return math.inf
    return (link.buffer_ms - measured.buffer_ms) / 1e3 * link.bytes_per_s / FRAME_BYTES


def _bursts_beyond(link: Link, measured: Measured) -> float:
    """How many packets longer than asked the bursts of losses were, all together."""
    chances = burst_chances(link)
    return measured.sent - measured.arrived - measured.gaps / chances.end if chances else 0.0
