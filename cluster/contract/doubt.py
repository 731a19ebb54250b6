"""Decides which failed checks a busy host may have caused: those are undecided, all others broken. Pure functions."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.contract.checks import (
    CERTAIN,
    MEAN_ERROR,
    check_rate,
    delay_tolerance_ms,
    ways_back,
)
from cluster.contract.delays import FIRST_DECILE, OUTER_DECILES
from cluster.contract.floods import FRAME_BYTES, QUEUE_SHARE
from cluster.contract.impairments import (
    counted_loss_holds,
    expected_lost_pct,
    unaccounted_losses,
)
from cluster.contract.measured import Measured
from cluster.links.expected import Expected
from cluster.shaping.host_load import SOFTIRQ_PCT, HostLoad
from protocol.gilbert import loss_burst_chances
from protocol.link import Link

# At most a tenth of all timers are later than this many times their mean (Markov's inequality).
TENTH = 10.0
# Likewise, at most nine tenths are later than their mean / 0.9: the earliest tenth, up to the first decile, is not.
NINE_TENTHS = 0.9
# A sender keeps at least this much in the queue before its link, unless half of its buffer is less
# (cluster.contract.floods). If it wakes up m ms late on average, the queue is empty for at most m / 5 of the time.
QUEUED_MS = 5.0
# The nfqueue wire releases packets early by at most this much, to be on time on average (MAX_LEAD_S in
# node/wire/nfqueue/python_path.py); both directions of a round trip together.
EARLY_MS = 2 * 1.0
EARLY_DEVIATIONS = -FIRST_DECILE  # from a normal distribution's first decile to its median
# Standard error of the first decile of n normal values, in deviations / sqrt(n): sqrt(p (1 - p)) / f(p), with p = 0.1
# and the density f(p) = 0.1755 (Mosteller, 1946). Of a uniform distribution, whose first decile is 1.39 deviations
# from its mean, it is smaller.
DECILE_ERROR = 1.71
ON_TIME_SHARES = tuple(percent / 100 for percent in range(15, 100))


@dataclass(frozen=True)
class Strain:
    """How, and by how much, the host was the limit while a link was measured.

    Attributes:
        limits: one sentence per way; at least one.
        reach_ms: upper bound of how late a packet or a ping was, except for a tenth of them.
        short_pct: the host's shortfall: the share of packets that were late, or of the time that others took.
        dropped: packets dropped unseen by a wire that the link's packets pass.
        late_ms: how late timers were, on average: for so long a sender's queue may have been empty.
        first_decile_ms: upper bound of how late the earliest tenth of pings was in one direction.
        waits_ms: how late pings were on average, besides those that wires made late.
        late_share: the share of packets that wires made late.
    """

    limits: tuple[str, ...]
    reach_ms: float
    short_pct: float
    dropped: int
    late_ms: float = 0.0
    first_decile_ms: float = 0.0
    waits_ms: float = 0.0
    late_share: float = 0.0

    def missing_pct(self, queued_ms: float) -> float:
        """Return how much of a speed may be missing if its sender keeps so much in the link's queue."""
        return max(self.short_pct, 100 * self.late_ms / queued_ms)

    def decile_late_ms(self, jitter_ms: float) -> float:
        """Return an upper bound of how much later the host makes the first decile of delays that jitter.

        Where only a share of the packets is later than x, the decile of all is at most x later than the quantile
        0.1 / (1 - share) of the delays. By Markov's inequality the share is at most mean / x, besides those that wires
        made late; the x that gives the lowest bound is taken. Without jitter it is `first_decile_ms`.
        """
        if not jitter_ms:
            return self.first_decile_ms
        on_time = 1 - self.late_share
        bounds_ms = [
            self.waits_ms / (on_time - share) + jitter_ms * _beyond_decile(share)
            for share in ON_TIME_SHARES
            if share < on_time
        ]
        latest_ms = self.reach_ms + jitter_ms * _beyond_decile(1 - 1 / TENTH)
        return max(self.first_decile_ms, min([latest_ms, *bounds_ms]))


def _beyond_decile(share: float) -> float:
    """Return how far the first decile of a normal distribution moves if it is taken of a share alone, in deviations."""
    return statistics.NormalDist().inv_cdf(0.1 / share) - FIRST_DECILE


def make_strain(load: HostLoad, pings_late_ms: float, src: str = "") -> Strain | None:
    """Return how the load of the nodes on a link's way may have affected its measurement; None if it did not.

    Pings take precedence over other programs; they were late by `pings_late_ms` on average. Packets do not pass the
    wire of the node `src`, where they start.
    """
    if not load.limits:
        return None
    late_ms, softirq_pct = load.timers_late_ms or 0.0, load.softirq_pct or 0.0
    # A wire that does not report its lateness (netem) waits for timers, as programs do.
    wires_ms = sum(load.worst_ms.values()) if load.worst_ms else TENTH * late_ms
    reach_ms = wires_ms + TENTH * pings_late_ms
    waits_ms = pings_late_ms if load.worst_ms else pings_late_ms + late_ms
    return Strain(
        limits=tuple(load.limits),
        reach_ms=reach_ms,
        short_pct=max(
            load.steal_pct or 0.0,
            softirq_pct if softirq_pct > SOFTIRQ_PCT else 0.0,
            *load.late_pct.values(),
            *load.throttled_pct.values(),
        ),
        dropped=sum(count for node, count in load.dropped.items() if node != src),
        late_ms=late_ms,
        first_decile_ms=min(reach_ms, _first_decile_ms(waits_ms, load.late_pct.values())),
        waits_ms=waits_ms,
        late_share=sum(load.late_pct.values()) / 100,
    )


def _first_decile_ms(mean_ms: float, late_pct: Iterable[float]) -> float:
    """Return an upper bound of the first decile of a lateness, beside wires that make a share of the packets late.

    By Markov's inequality, of all packets at most mean / x are later than x; with those that a wire made late, at most
    nine tenths.
    """
    on_time = NINE_TENTHS - sum(late_pct) / 100
    return mean_ms / on_time if on_time > 0 else math.inf


def queued_ms(links: Sequence[Link]) -> float:
    """Return how much the senders of floods on these links keep in each link's queue, at least."""
    return min(QUEUED_MS, *(link.buffer_ms * QUEUE_SHARE for link in links))


def of_the_host(link: Link, asked: Expected, measured: Measured, strain: Strain) -> frozenset[str]:
    """Return the checks that a busy host may have made fail: those with no more error than it is known to have caused.

    A busy host makes packets late, unevenly, and drops some. So it makes round trips longer, delays less even, speeds
    lower and losses more frequent. It never makes a link faster, smoother or more reliable than asked, and it never
    duplicates or reorders packets. Its effect on each check is limited:

    - Round trip: the host does not delay all pings equally. If a link has the delay that was asked, its earliest tenth
      shows that, even beside others that are late; if the delay is wrong, all are. On links that jitter, that tenth is
      earlier than the delay (`_early_by_ms`). It may be off by what both directions' one-way delays may: a link is not
      broken by the sum of two delays that hold. It may also be late itself by what pings that are so late on average
      allow (`Strain.first_decile_ms`), in each direction. And the host adds no more than the lateness of the latest
      packet on each wire on the way, plus that of the pings (`Strain.reach_ms`).
      A round trip may also seem too short, by no more than the host's own share that is subtracted: that is measured by
      other pings, and at these it may have been nothing (`Measured.share_ms`). So it may be for the earliest tenth.
    - One-way delay: likewise.
    - Jitter: the host makes no ping early. A link that really jitters has early ones, a tenth of them by 1.28
      deviations. And the outer deciles are no farther apart than what was asked and `reach_ms` allow.
    - Rate: no more is missing than the share that the host was short of. Of floods on wan beside one and two busy
      loops, up to 3.6 % was missing while 31 % of the packets were late, and none was more than 0.5 % too fast.
    - Goodput: if datagrams show that the rate holds, or that the host may have lowered it, any effect of late packets
      on TCP is due to the host: TCP takes them for congestion, and got 4 % of a link on which half were late, by up
      to 50 ms. If delayed data arrives within the measured second, goodput may even seem some percent too high. But
      something gets through. Without datagrams, goodput is treated as a rate: up to 16.5 % was missing while 26 %
      were late.
    - Queue: the host makes none larger, and none smaller than by what was dropped, and by what drained while the sender
      was stopped.
    - Loss, its bursts, and unaccounted losses: no more than what was dropped. The wire's own count of the losses that
      it drew must hold: what is dropped unseen is counted apart from it.
    """
    uneven_ms = OUTER_DECILES * math.sqrt(max(0.0, measured.jitter_ms**2 - link.jitter_ms**2))
    one_way, round_trip = _one_way(link, measured), _round_trip(link, asked, measured)
    missing_pct = strain.missing_pct(queued_ms([link]))
    rate_may_be = too_slow(measured.rate_mbyte_s, asked.rate_mbyte_s(link), missing_pct)
    if measured.rate is None:
        tcp_may_be = too_slow(measured.goodput_mbyte_s, asked.goodput_mbyte_s(link), missing_pct)
    else:
        goodput = measured.goodput_mbyte_s
        tcp_may_be = rate_may_be or check_rate(link, asked, measured.rate, goodput)[0]
    blamed = {
        "delay": one_way is not None and one_way.may_be_right(strain),
        "rtt": round_trip.may_be_right(strain),
        "jitter": 0 < uneven_ms <= strain.reach_ms and round_trip.is_never_early(EARLY_MS),
        "rate": rate_may_be,
        "goodput": bool(measured.goodput_mbyte_s) and tcp_may_be,
        "buffer": _frames_short(link, measured) <= strain.dropped,
        "unaccounted": 0 < unaccounted_losses(link, measured) <= strain.dropped,
        "loss": counted_loss_holds(link, measured)
        and 0 < _lost_beyond(link, asked, measured) <= strain.dropped,
        "loss_burst": 0 < _loss_bursts_beyond(link, measured) <= strain.dropped,
    }
    return frozenset(name for name, may_be in blamed.items() if may_be)


@dataclass(frozen=True)
class _Times:
    """How much longer than asked packets took in one direction of a link, or in both.

    Attributes:
        ways: the direction, or both.
        off_ms: the typical time.
        early_ms: the first decile of the times, less the typical one that was asked.
        share_ms, early_share_ms: of these two, the host's own share that was subtracted.
        tolerance_ms: how far the times may be off, chance included.
        samples: number of packets.
        wait_ms: by how much packets that wait for the one before them raise the decile.
    """

    ways: Sequence[Link]
    off_ms: float
    early_ms: float
    share_ms: float
    early_share_ms: float
    tolerance_ms: float
    samples: int
    wait_ms: float

    def may_be_right(self, strain: Strain) -> bool:
        """Return whether the host may have made them seem too long or too short: `of_the_host` says by how much."""
        if self.off_ms > 0:
            most_early_ms = self.tolerance_ms + len(self.ways) * strain.first_decile_ms
            most_early_ms -= _early_by_ms(self.ways, self.samples, self.wait_ms, strain)
            return self.off_ms <= strain.reach_ms and self.early_ms <= most_early_ms
        return self.off_ms + self.share_ms >= -self.tolerance_ms and self.is_never_early()

    def is_never_early(self, beyond_ms: float = 0.0) -> bool:
        """Return whether the earliest tenth is no earlier than on links that jitter as asked, or by `beyond_ms`."""
        jitter_ms = sum(way.jitter_ms for way in self.ways)
        earliest_ms = EARLY_DEVIATIONS * jitter_ms + _decile_chance_ms(jitter_ms, self.samples)
        earliest_ms += self.tolerance_ms + beyond_ms
        return self.early_ms + self.early_share_ms >= -earliest_ms


def _one_way(link: Link, measured: Measured) -> _Times | None:
    """Return the times of one direction; None if they are not known."""
    if measured.delay_ms is None or measured.early_delay_ms is None:
        return None
    return _Times(
        [link],
        measured.delay_ms - link.delay_ms,
        measured.early_delay_ms - link.delay_ms,
        measured.share_ms / 2,
        measured.early_share_ms / 2,
        delay_tolerance_ms(link, measured),
        measured.samples,
        measured.early_wait_ms,
    )


def _round_trip(link: Link, asked: Expected, measured: Measured) -> _Times:
    ways = (link, *ways_back(link, asked))
    return _Times(
        ways,
        measured.rtt_ms - asked.rtt_ms(link),
        measured.early_rtt_ms - asked.rtt_ms(link),
        measured.share_ms,
        measured.early_share_ms,
        sum(delay_tolerance_ms(way, measured) for way in ways),
        measured.rtt_samples,
        measured.early_rtt_wait_ms,
    )


def _early_by_ms(links: Sequence[Link], samples: int, wait_ms: float, strain: Strain) -> float:
    """Return by how much, at least, the earliest tenth of packets is earlier than these links' delays as they jitter.

    The first decile of both directions' round trips is the sum of theirs (`Measured.early_rtt_ms`).

    Args:
        links: one direction, or both.
        samples: number of packets; what chance moves the decile by, beyond what it moves the mean, is left out.
        wait_ms: by how much packets that wait for the one before them raise the decile.
        strain: the host's, which moves the decile by more than it would without jitter.
    """
    jitter_ms = sum(link.jitter_ms for link in links)
    chance_ms = _decile_chance_ms(jitter_ms, samples)
    late_ms = sum(strain.decile_late_ms(link.jitter_ms) - strain.first_decile_ms for link in links)
    return max(0.0, EARLY_DEVIATIONS * jitter_ms - wait_ms - chance_ms - late_ms)


def _decile_chance_ms(jitter_ms: float, samples: int) -> float:
    """Return by how much chance moves the first decile of so many delays, beyond what it moves their mean."""
    return CERTAIN * (DECILE_ERROR - MEAN_ERROR) * jitter_ms / math.sqrt(max(1, samples))


def too_slow(measured_mbyte_s: float | None, expected_mbyte_s: float, most_pct: float) -> bool:
    """Return whether a speed is too low, by no more than `most_pct`."""
    if measured_mbyte_s is None:
        return False
    return 0 < 100 * (1 - measured_mbyte_s / expected_mbyte_s) <= most_pct


def _lost_beyond(link: Link, asked: Expected, measured: Measured) -> float:
    """Return how many packets more than asked did not arrive."""
    lost_pct = expected_lost_pct(link, asked.hops.get(link.ends, ()))
    return measured.sent * (1 - lost_pct / 100) - measured.arrived


def _frames_short(link: Link, measured: Measured) -> float:
    """Return how many frames fewer than asked a queue held, beyond what its sender was too slow to fill.

    Infinity if it held no fewer.
    """
    if measured.queue is None or measured.queue.buffer_ms >= link.buffer_ms:
        return math.inf
    short_ms = link.buffer_ms - measured.queue.buffer_ms - measured.queue.short_ms
    return max(0.0, short_ms) / 1e3 * link.bytes_per_s / FRAME_BYTES


def _loss_bursts_beyond(link: Link, measured: Measured) -> float:
    """Return by how many packets, all together, the bursts of losses were longer than asked."""
    chances = loss_burst_chances(link)
    if chances is None or measured.gaps is None:
        return 0.0
    return measured.sent - measured.arrived - measured.gaps / chances.end
