"""Computes the measurements of a link from the answers of probes: round trip, jitter, loss. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.contract.delays import Delays, early_wait_ms, fit_delays, spread
from protocol.link import Link
from protocol.probe import Arrivals, Pings

# If fewer of a flood's sends find the link's queue full, the machine is the limit. Measured on two busy processors:
# 22 and more if the link is the limit, 0.0 if the machine is.
EMPTY_PCT = 5.0
# Of what was sent: the part of a flood that counts may be a little slower than the whole.
ALL_SHARE = 0.9
# With fewer pings, one delayed by the host moves a median or a decile.
FEWEST_SAMPLES = 12
# Jitter moves one packet in 4,000 farther than this many deviations.
FARTHEST = 3.5


@dataclass(frozen=True)
class Rate:
    """A link's rate, measured by a flood of datagrams.

    Attributes:
        mbyte_s: the rate, in bytes on the wire.
        full_pct: share of the sends that found the link's queue full; 100 if all was sent in time.
        sent_mbyte_s: what its sender sent, in bytes on the wire.
    """

    mbyte_s: float
    full_pct: float
    sent_mbyte_s: float = 0.0

    @property
    def is_machine(self) -> bool:
        """Whether the machine could not send as much as the link would take: the link's queue was rarely full."""
        return self.full_pct < EMPTY_PCT

    @property
    def is_all(self) -> bool:
        """Whether what was sent has arrived: no queue behind the sender's, such as a downlink's, was full."""
        return self.mbyte_s >= self.sent_mbyte_s * ALL_SHARE


@dataclass(frozen=True)
class Queue:
    """How long a link's full queue takes to drain, and by how much the right queue would have seemed too small.

    The latter is more than nothing if the sender was too slow to keep the queue full.
    """

    buffer_ms: float
    short_ms: float


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
        samples: number of packets behind the jitter and the one-way delay; if the link jitters, only those that did not
            wait for the one before them.
        sent, arrived: pings, in this direction alone.
        reordered: number of pings that overtook another (node.probe.pings).
        goodput_mbyte_s: payload that the receiver's program read from one TCP connection; None if not measured.
        loaded_rtt_ms: median round trip while that connection filled the link's queue; None if no ping came back.
        rate: by datagrams, which no congestion control slows down; None if not measured.
        twice: number of pings of which a second copy arrived.
        gaps: number of runs of pings that did not arrive, except a run at the end; None if it is not to be judged.
        late_ms: how late these pings were sent, on average.
        early_rtt_ms: first decile of the round trips, or the sum of both directions' first deciles if that is less,
            without the host's own share: what the link does while the host delays nothing; infinite if no ping came
            back.
        delay_ms: typical one-way delay, less half of the host's own share; infinite if no ping arrived, None if it
            cannot be measured: nodes on one host share a clock, nodes on two hosts do not.
        early_delay_ms: first decile of the one-way delays, less the same; infinite or None as `delay_ms`.
        queue: how long the link's full queue takes to drain; None if not measured.
        drop_count: the wire's own count, on impaired links; None if not read.
        rtt_samples: number of packets behind the round trip: the smaller of both directions' `samples`.
        early_wait_ms, early_rtt_wait_ms: by how much packets that waited for the one before them raise `early_delay_ms`
            and `early_rtt_ms`, if the links jitter as asked.
        share_ms, early_share_ms: the host's own share of a round trip, which `rtt_ms` and `early_rtt_ms` are without:
            median and first decile of other pings, so it may have been less at these. Half of it of a one-way delay.
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
    gaps: int | None = 0
    late_ms: float = 0.0
    early_rtt_ms: float = math.inf
    delay_ms: float | None = math.inf
    early_delay_ms: float | None = math.inf
    drop_count: DropCount | None = None
    queue: Queue | None = None
    rtt_samples: int = 0
    early_wait_ms: float = 0.0
    early_rtt_wait_ms: float = 0.0
    share_ms: float = 0.0
    early_share_ms: float = 0.0

    def with_speeds_of(self, other: "Measured") -> "Measured":
        """Return a copy with the speeds of another measurement."""
        return replace(
            self,
            goodput_mbyte_s=other.goodput_mbyte_s,
            loaded_rtt_ms=other.loaded_rtt_ms,
            rate=other.rate,
            queue=other.queue,
        )

    def with_losses_of(self, other: "Measured") -> "Measured":
        """Return a copy with the losses of another measurement, which sent more pings.

        Where losses left too few pings for the delays, these are also the other's.
        """
        is_enough = min(self.samples, self.rtt_samples) >= FEWEST_SAMPLES
        return replace(
            self if is_enough or other.rtt_samples <= self.rtt_samples else other,
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
            gaps=None if self.gaps is None or earlier.gaps is None else self.gaps + earlier.gaps,
            drop_count=_sum_counts(self.drop_count, earlier.drop_count),
        )

    def with_delays_and(self, earlier: "Measured") -> "Measured":
        """Return a copy with delays and jitter pooled over this pass and an earlier one, for links that jitter."""
        samples = self.samples + earlier.samples
        if not (self.samples and earlier.samples):
            return self
        share = self.samples / samples

        def pooled(one: float, other: float) -> float:
            return share * one + (1 - share) * other

        def pooled_if_known(one: float | None, other: float | None) -> float | None:
            return None if one is None or other is None else pooled(one, other)

        return replace(
            self,
            samples=samples,
            rtt_samples=self.rtt_samples + earlier.rtt_samples,
            rtt_ms=pooled(self.rtt_ms, earlier.rtt_ms),
            early_rtt_ms=pooled(self.early_rtt_ms, earlier.early_rtt_ms),
            early_rtt_wait_ms=pooled(self.early_rtt_wait_ms, earlier.early_rtt_wait_ms),
            delay_ms=pooled_if_known(self.delay_ms, earlier.delay_ms),
            early_delay_ms=pooled_if_known(self.early_delay_ms, earlier.early_delay_ms),
            early_wait_ms=pooled(self.early_wait_ms, earlier.early_wait_ms),
            jitter_ms=math.sqrt(share * self.jitter_ms**2 + (1 - share) * earlier.jitter_ms**2),
            share_ms=pooled(self.share_ms, earlier.share_ms),
            early_share_ms=pooled(self.early_share_ms, earlier.early_share_ms),
        )

    def without_delays(self) -> "Measured":
        """Return a copy without one-way delays, which contain the clocks' offset if nodes have no common clock."""
        return replace(self, delay_ms=None, early_delay_ms=None)

    @property
    def rate_mbyte_s(self) -> float | None:
        """The rate measured by a flood, in bytes on the wire; None if not measured."""
        return self.rate.mbyte_s if self.rate else None

    @property
    def buffer_ms(self) -> float | None:
        """How long the link's full queue takes to drain; None if not measured."""
        return self.queue.buffer_ms if self.queue else None

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
    there: Link | None = None,
    back: Link | None = None,
) -> tuple[Measured, Measured]:
    """Return the measurements of both directions, there and back, less the host's own share.

    Args:
        ping: the results of the pings to a peer.
        arrivals: what had arrived at the peer, as the peer itself reports.
        host_ms: round trips without a link.
        there: the link asked for, to the peer. If one of the two jitters or reorders, the round trip is the sum of the
            mean delays of both directions (if two clocks differ, one is as much too long as the other is too short);
            else it is the median, which a stall of the host does not move.
        back: the link asked for, from the peer.
    """
    ways, links = (arrivals, ping.back), (there, back)
    taken = [_without_skips(way, link) for way, link in zip(ways, links, strict=True)]
    jitter = any(link.jitter_ms for link in links if link)
    is_summed = jitter or any(link.reorder_pct for link in links if link)
    host_rtt_ms, early_host_ms = statistics.median(host_ms), _early(host_ms)
    fits = [_fit(some, jitter=jitter) for some in taken]
    round_trips = _summed(fits, taken) if is_summed else _typical(ping.rtt_ms, taken)
    rtt_ms, early_rtt_ms = round_trips if ping.rtt_ms else (math.inf, math.inf)
    sent = (ping.sent, arrivals.arrived + arrivals.twice)  # each copy is sent back
    waits_ms = [_wait_ms(*way) for way in zip(taken, links, sent, strict=True)]
    first, second = (
        Measured(
            rtt_ms - host_rtt_ms,
            fit.sd_ms,
            fit.free if is_summed else len(ping.rtt_ms),
            count,
            way.arrived,
            way.reordered,
            twice=way.twice,
            gaps=way.gaps,
            late_ms=ping.late_ms,
            early_rtt_ms=early_rtt_ms - early_host_ms,
            delay_ms=fit.mean_ms - host_rtt_ms / 2,
            early_delay_ms=_early(some.one_way_ms) - early_host_ms / 2,
            rtt_samples=min(one.free for one in fits) if is_summed else len(ping.rtt_ms),
            early_wait_ms=wait_ms,
            early_rtt_wait_ms=sum(waits_ms),
            share_ms=host_rtt_ms,
            early_share_ms=early_host_ms,
        )
        for fit, count, way, some, wait_ms in zip(fits, sent, ways, taken, waits_ms, strict=True)
    )
    return first, second


def _typical(rtt_ms: Sequence[float], ways: Sequence[Arrivals]) -> tuple[float, float]:
    """Return the median and the first decile of the round trips.

    On a crowded host few pings are on time in both directions; then the sum of these directions' first deciles is less.
    """
    median_ms = statistics.median(rtt_ms) if rtt_ms else math.inf
    return median_ms, min(_early(rtt_ms), _early_sum(ways))


def _summed(fits: Sequence[Delays], ways: Sequence[Arrivals]) -> tuple[float, float]:
    """Return the same from both directions' own delays."""
    return sum(fit.mean_ms for fit in fits), _early_sum(ways)


def _early_sum(ways: Sequence[Arrivals]) -> float:
    return sum(_early(way.one_way_ms) for way in ways)


def _wait_ms(way: Arrivals, link: Link | None, sent: int) -> float:
    """Return by how much the first decile of one direction's delays is raised by packets that waited."""
    return early_wait_ms(way.sent_ms, link.jitter_ms, way.arrived / sent) if link and sent else 0.0


def _without_skips(way: Arrivals, link: Link | None) -> Arrivals:
    """Leave out the pings that skipped the delay, but had no other to overtake, where they can be told from the rest.

    Clocks may differ: the limit is relative to the upper quartile, which is one of the others.
    """
    if link is None or not link.reorder_pct or not way.one_way_ms:
        return way
    room_ms = link.delay_ms - FARTHEST * link.jitter_ms
    if room_ms <= 0:
        return way
    upper_ms = sorted(way.one_way_ms)[3 * len(way.one_way_ms) // 4]
    limit_ms = upper_ms - link.delay_ms + room_ms / 2
    kept = [pair for pair in zip(way.sent_ms, way.one_way_ms, strict=True) if pair[1] >= limit_ms]
    return way._replace(sent_ms=[at for at, _ in kept], one_way_ms=[took for _, took in kept])


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
