"""Turns the answers of probes into measurements of a link: round trip, jitter, loss. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.contract.delays import fit_delays, spread
from protocol.probe import Arrivals, Pings


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
        rate_mbyte_s: bytes on the wire, by datagrams that ask nobody how fast they may be sent; None: not measured.
        twice: pings of which a second copy came.
        gaps: runs of pings that did not arrive.
        late_ms: how late these pings were sent, on average: so late may whatever else waits for a timer be.
        early_rtt_ms: a tenth of the round trips took no longer, less the host's own share: what the link does while
            the host holds nothing up; infinite where no ping came back.
    """

    rtt_ms: float
    jitter_ms: float
    samples: int
    sent: int
    arrived: int
    reordered: int
    goodput_mbyte_s: float | None = None
    loaded_rtt_ms: float | None = None
    rate_mbyte_s: float | None = None
    twice: int = 0
    gaps: int = 0
    late_ms: float = 0.0
    early_rtt_ms: float = math.inf

    def with_speeds_of(self, other: "Measured") -> "Measured":
        """The same pings, and what another measurement found of speeds."""
        return replace(
            self,
            goodput_mbyte_s=other.goodput_mbyte_s,
            loaded_rtt_ms=other.loaded_rtt_ms,
            rate_mbyte_s=other.rate_mbyte_s,
        )

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
    there, back = arrivals, ping.back
    early_rtt_ms = _early(ping.rtt_ms) - _early(host_ms)
    if not ping.rtt_ms:
        rtt_ms, jitters, samples = math.inf, (0.0, 0.0), (0, 0)
    elif jitter:
        fits = [fit_delays(way.sent_ms, way.one_way_ms) for way in (there, back)]
        rtt_ms = sum(fit.mean_ms for fit in fits)
        jitters, samples = (fits[0].sd_ms, fits[1].sd_ms), (fits[0].free, fits[1].free)
    else:
        rtt_ms = statistics.median(ping.rtt_ms)
        jitters = (spread(there.one_way_ms), spread(back.one_way_ms))
        samples = (len(ping.rtt_ms),) * 2
    sent = (ping.sent, there.arrived + there.twice)  # each copy is sent back
    first, second = (
        Measured(
            rtt_ms - statistics.median(host_ms),
            jitter_ms,
            free,
            count,
            way.arrived,
            way.reordered,
            twice=way.twice,
            gaps=way.gaps,
            late_ms=ping.late_ms,
            early_rtt_ms=early_rtt_ms,
        )
        for jitter_ms, free, count, way in zip(jitters, samples, sent, (there, back), strict=True)
    )
    return first, second


def _early(values: Sequence[float]) -> float:
    """A tenth of them are no larger."""
    return sorted(values)[len(values) // 10] if values else math.inf
