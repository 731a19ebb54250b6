"""Turns the answers of probes into measurements of a link: round trip, jitter, loss. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.contract.delays import Delays, fit_delays, spread
from protocol.probe import Arrivals, Pings

# Of a flood's sends. Measured on two busy processors: 22 and more where the link is the limit, 0.0 where the
# machine is.
EMPTY_PCT = 5.0


@dataclass(frozen=True)
class Rate:
    """What a flood of datagrams found of a link.

    Attributes:
        mbyte_s: carried, in bytes on the wire.
        full_pct: of the sends, how many found the link's queue full.
    """

    mbyte_s: float
    full_pct: float

    @property
    def is_machine(self) -> bool:
        """Whether the machine could not send what the link would take: its queue was empty most of the time."""
        return self.full_pct < EMPTY_PCT


@dataclass(frozen=True)
class DropCount:
    """What the wire at a link's end counted: packets that came, and those that it dropped as asked.

    Attributes:
        packets, lost: while the pings that tell loss were under way, and nothing else.
        all_packets, all_lost: during the whole look, with what told the speeds.
    """

    packets: int
    lost: int
    all_packets: int
    all_lost: int


@dataclass(frozen=True)
class Measured:
    """What one directed link did.

    Attributes:
        rtt_ms: typical round trip, less the host's own share; infinite where no ping came back.
        jitter_ms: standard deviation of the one-way delay.
        samples: packets that tell of both: those that did not wait for the one before them.
        sent, arrived: pings, in this direction alone.
        reordered: how many overtook another.
        goodput_mbyte_s: payload that the receiver's program read of one TCP connection; None: not measured.
        loaded_rtt_ms: median round trip while that connection filled the link's queue; None: no ping came back.
        rate: by datagrams that ask nobody how fast they may be sent; None: not measured.
        twice: pings of which a second copy came.
        gaps: runs of pings that did not arrive.
        late_ms: how late these pings were sent, on average.
        early_rtt_ms: a tenth of the round trips took no longer, less the host's own share: what the link does while
            the host holds nothing up; infinite where no ping came back.
        delay_ms: typical one-way delay, less half of the host's own share; infinite where no ping arrived, None where
            nobody can tell: nodes of one host share a clock, those of two do not.
        early_delay_ms: a tenth of the one-way delays were no longer, less the same; likewise.
        buffer_ms: how long the link's full queue takes to run empty; None: not measured.
        drop_count: by the wire, of a link that is asked to lose packets; None: not read.
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
        """The same pings, and what another measurement found of speeds."""
        return replace(
            self,
            goodput_mbyte_s=other.goodput_mbyte_s,
            loaded_rtt_ms=other.loaded_rtt_ms,
            rate=other.rate,
            buffer_ms=other.buffer_ms,
        )

    def with_losses_of(self, other: "Measured") -> "Measured":
        """The same delays, and what more pings found of losses."""
        return replace(
            self,
            sent=other.sent,
            arrived=other.arrived,
            reordered=other.reordered,
            twice=other.twice,
            gaps=other.gaps,
        )

    def with_losses_and(self, earlier: "Measured") -> "Measured":
        """The losses of this look and of an earlier one, counted together.

        Were each look judged by itself, a link on which they are wrong would have one more chance with each.
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
        """Likewise the delays, and how far they scatter, of links that are asked to jitter."""
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
        """The same, of nodes that have no common clock: how far what they say differs is their clocks' doing."""
        return replace(self, delay_ms=None, early_delay_ms=None)

    @property
    def rate_mbyte_s(self) -> float | None:
        """What the flood found, in bytes on the wire; None: not measured."""
        return self.rate.mbyte_s if self.rate else None

    @property
    def speed_by(self) -> str:
        """What told of the link's speed; '' where it was not measured."""
        told = {"TCP": self.goodput_mbyte_s, "datagrams": self.rate_mbyte_s}
        names = [name for name, value in told.items() if value is not None]
        return "by " + " and ".join(names) if names else ""

    @property
    def lost_pct(self) -> float | None:
        """Pings that did not arrive; None where there was none to send back."""
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
    """What pings say of both directions, there and back, less what the host itself costs.

    Args:
        ping: what came of the pings to a peer.
        arrivals: what of them had arrived there, as the peer itself says.
        host_ms: round trips without a link.
        jitter: whether the links are asked to jitter. Then the round trip is the sum of what is fitted to both
            directions (where two clocks differ, one is as much too long as the other is too short); else it is the
            median, which no stall of the host moves.
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
    """One direction's delays: fitted where it is asked to jitter, else by median and outer deciles."""
    if not way.one_way_ms:
        return Delays(math.inf, 0.0, 0)
    if jitter:
        return fit_delays(way.sent_ms, way.one_way_ms)
    middle_ms = statistics.median(way.one_way_ms)
    return Delays(middle_ms, spread(way.one_way_ms), len(way.one_way_ms))


def _early(values: Sequence[float]) -> float:
    """A tenth of them are no larger."""
    return sorted(values)[len(values) // 10] if values else math.inf
