"""Computes the measurements of a link from the answers of probes: round trip, jitter, loss. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.contract.delays import Delays, fit_delays, spread
from protocol.probe import Arrivals, Pings

# If fewer of a flood's sends find the link's queue full, the machine is the limit. Measured on two busy processors:
# 22 and more if the link is the limit, 0.0 if the machine is.
EMPTY_PCT = 5.0


@dataclass(frozen=True)
class Rate:
    """A link's rate, measured by a flood of datagrams.

    Attributes:
        mbyte_s: the rate, in bytes on the wire.
        full_pct: share of the sends that found the link's queue full.
    """

    mbyte_s: float
    full_pct: float

    @property
    def is_machine(self) -> bool:
        """Whether the machine could not send as much as the link would take: the link's queue was rarely full."""
        return self.full_pct < EMPTY_PCT


@dataclass(frozen=True)
class DropCount:
    """The packets that the wire at a link's end received, and those that it dropped as asked.

    Attributes:
        packets, lost: during the pings that measure loss, without any other probe.
        all_packets, all_lost: during the whole pass, including the speed probes.
    """

    packets: int
    lost: int
    all_packets: int
    all_lost: int


@dataclass(frozen=True)
class Measured:
    """The measurement of one directed link.

    Attributes:
        rtt_ms: typical round trip, less the host's own share; infinite if no ping came back.
        jitter_ms: standard deviation of the one-way delay.
        samples: number of packets behind both; if the link jitters, only those that did not wait for the one before
            them.
        sent, arrived: pings, in this direction alone.
        reordered: number of pings that overtook another.
        goodput_mbyte_s: payload that the receiver's program read from one TCP connection; None if not measured.
        loaded_rtt_ms: median round trip while that connection filled the link's queue; None if no ping came back.
        rate: by datagrams, which no congestion control slows down; None if not measured.
        twice: number of pings of which a second copy arrived.
        gaps: number of runs of pings that did not arrive.
        late_ms: how late these pings were sent, on average.
        early_rtt_ms: first decile of the round trips, less the host's own share: what the link does while the host
            delays nothing; infinite if no ping came back.
        delay_ms: typical one-way delay, less half of the host's own share; infinite if no ping arrived, None if it
            cannot be measured: nodes on one host share a clock, nodes on two hosts do not.
        early_delay_ms: first decile of the one-way delays, less the same; infinite or None as `delay_ms`.
        buffer_ms: how long the link's full queue takes to drain; None if not measured.
        drop_count: the wire's own count, on impaired links; None if not read.
    """

    rtt_ms: float
    jitter_ms: float
    samples: int
    sent: int
    arrived: int
    reordered: int
    goodput_mbyte_s: float | None = None
    loaded_rtt_ms: float | None = None
    rate: Rate | None = None
    twice: int = 0
    gaps: int = 0
    late_ms: float = 0.0
    early_rtt_ms: float = math.inf
    delay_ms: float | None = math.inf
    early_delay_ms: float | None = math.inf
    drop_count: DropCount | None = None
    buffer_ms: float | None = None

    def with_speeds_of(self, other: "Measured") -> "Measured":
        """Return a copy with the speeds of another measurement."""
        return replace(
            self,
            goodput_mbyte_s=other.goodput_mbyte_s,
            loaded_rtt_ms=other.loaded_rtt_ms,
            rate=other.rate,
            buffer_ms=other.buffer_ms,
        )

    def with_losses_of(self, other: "Measured") -> "Measured":
        """Return a copy with the losses of another measurement, which sent more pings."""
        return replace(
            self,
            sent=other.sent,
            arrived=other.arrived,
            reordered=other.reordered,
            twice=other.twice,
            gaps=other.gaps,
        )

    def with_losses_and(self, earlier: "Measured") -> "Measured":
        """Return a copy with the losses of this pass and an earlier one added up.

        If each pass were judged by itself, a link with wrong losses would get one more chance to pass with each.
        """
        return replace(
            self,
            sent=self.sent + earlier.sent,
            arrived=self.arrived + earlier.arrived,
            reordered=self.reordered + earlier.reordered,
            twice=self.twice + earlier.twice,
            gaps=self.gaps + earlier.gaps,
            drop_count=_sum_counts(self.drop_count, earlier.drop_count),
        )

    def with_delays_and(self, earlier: "Measured") -> "Measured":
        """Return a copy with delays and jitter pooled over this pass and an earlier one, for links that jitter."""
        samples = self.samples + earlier.samples
        if not (self.samples and earlier.samples):
            return self
        share = self.samples / samples
        return replace(
            self,
            samples=samples,
            rtt_ms=share * self.rtt_ms + (1 - share) * earlier.rtt_ms,
            delay_ms=None
            if self.delay_ms is None or earlier.delay_ms is None
            else share * self.delay_ms + (1 - share) * earlier.delay_ms,
            jitter_ms=math.sqrt(share * self.jitter_ms**2 + (1 - share) * earlier.jitter_ms**2),
        )

    def without_delays(self) -> "Measured":
        """Return a copy without one-way delays, which contain the clocks' offset if nodes have no common clock."""
        return replace(self, delay_ms=None, early_delay_ms=None)

    @property
    def rate_mbyte_s(self) -> float | None:
        """The rate measured by a flood, in bytes on the wire; None if not measured."""
        return self.rate.mbyte_s if self.rate else None

    @property
    def speed_by(self) -> str:
        """How the link's speed was measured, in words; '' if it was not."""
        told = {"TCP": self.goodput_mbyte_s, "datagrams": self.rate_mbyte_s}
        names = [name for name, value in told.items() if value is not None]
        return "by " + " and ".join(names) if names else ""

    @property
    def lost_pct(self) -> float | None:
        """Percentage of pings that did not arrive; None if there was none to send back."""
        return 100 * (1 - self.arrived / self.sent) if self.sent else None


def _sum_counts(one: DropCount | None, other: DropCount | None) -> DropCount | None:
    if one is None or other is None:
        return one
    return DropCount(
        packets=one.packets + other.packets,
        lost=one.lost + other.lost,
        all_packets=one.all_packets + other.all_packets,
        all_lost=one.all_lost + other.all_lost,
    )


def summarise_pings(
    ping: Pings,
    arrivals: Arrivals,
    host_ms: Sequence[float],
    *,
    jitter: bool = False,
) -> tuple[Measured, Measured]:
    """Return the measurements of both directions, there and back, less the host's own share.

    Args:
        ping: the results of the pings to a peer.
        arrivals: what had arrived at the peer, as the peer itself reports.
        host_ms: round trips without a link.
        jitter: whether the links are asked to jitter. If so, the round trip is the sum of the mean delays fitted to
            both directions (if two clocks differ, one is as much too long as the other is too short); else it is the
            median, which a stall of the host does not move.
    """
    ways = arrivals, ping.back
    host_rtt_ms, early_host_ms = statistics.median(host_ms), _early(host_ms)
    fits = [_fit(way, jitter=jitter) for way in ways]
    rtt_ms = _round_trip_ms(ping, fits, jitter=jitter)
    sent = (ping.sent, arrivals.arrived + arrivals.twice)  # each copy is sent back
    first, second = (
        Measured(
            rtt_ms - host_rtt_ms,
            fit.sd_ms,
            fit.free if jitter else len(ping.rtt_ms),
            count,
            way.arrived,
            way.reordered,
            twice=way.twice,
            gaps=way.gaps,
            late_ms=ping.late_ms,
            early_rtt_ms=_early(ping.rtt_ms) - early_host_ms,
            delay_ms=fit.mean_ms - host_rtt_ms / 2,
            early_delay_ms=_early(way.one_way_ms) - early_host_ms / 2,
        )
        for fit, count, way in zip(fits, sent, ways, strict=True)
    )
    return first, second


def _round_trip_ms(ping: Pings, fits: Sequence[Delays], *, jitter: bool) -> float:
    if not ping.rtt_ms:
        return math.inf
    return sum(fit.mean_ms for fit in fits) if jitter else statistics.median(ping.rtt_ms)


def _fit(way: Arrivals, *, jitter: bool) -> Delays:
    """Return one direction's delays: fitted if the links are asked to jitter, else by median and outer deciles."""
    if not way.one_way_ms:
        return Delays(math.inf, 0.0, 0)
    if jitter:
        return fit_delays(way.sent_ms, way.one_way_ms)
    middle_ms = statistics.median(way.one_way_ms)
    return Delays(middle_ms, spread(way.one_way_ms), len(way.one_way_ms))


def _early(values: Sequence[float]) -> float:
    """Return the first decile; infinity if there are no values."""
    return sorted(values)[len(values) // 10] if values else math.inf
