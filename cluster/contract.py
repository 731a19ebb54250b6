"""The contract: what each link must measure, and whether it does. Pure functions; `cluster.measure` measures.

What is expected follows from what was asked: the round trip is the sum of both directions' delays; goodput is
the payload's share of the rate (headers take 4 % at MTU 1500); loss lies within its binomial interval for the
packets sent.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster.links import Link, rtt_ms

ETHERNET_BYTES = 14
TCP_IP_BYTES = 52  # IPv4 20, TCP 20, timestamps 12
RTT_TOLERANCE_PCT = 1.0
RTT_TOLERANCE_MS = 0.3
JITTER_TOLERANCE_PCT = 10.0
GOODPUT_TOLERANCE_PCT = 5.0
LOSS_CONFIDENCE = 0.999  # six links at 0.99 would cry wolf every sixteenth time
HOST_LIMIT_MBYTE_S = 100.0  # a link that carries this much may ask more than the machine can give

OUTER_DECILES = (
    2.5631  # from a normal distribution's first decile to its ninth, in standard deviations
)
SPREAD_ERROR = 0.89  # standard error of a deviation found so from n values, times the root of n


@dataclass(frozen=True)
class Measured:
    """What one directed link did.

    Attributes:
        rtt_ms: median round trip, less the host's own share; infinite where no ping came back.
        jitter_ms: standard deviation of the one-way delay, from its outer deciles.
        samples: round trips behind the first; at least as many pings are behind the second.
        sent, arrived, reordered: pings, in this direction alone.
        goodput_mbyte_s: payload that the receiver's program read; None where it was not measured.
    """

    rtt_ms: float
    jitter_ms: float
    samples: int
    sent: int
    arrived: int
    reordered: int
    goodput_mbyte_s: float | None = None

    @property
    def lost_pct(self) -> float:
        """Pings that did not arrive; all of them where there was none to send back."""
        return 100 * (1 - self.arrived / self.sent) if self.sent else 100.0


@dataclass(frozen=True)
class Verdict:
    """One link: asked, expected, measured, and what of it does not hold.

    Of a pair of nodes without a link `link` is what the links between them make together, and `via` the nodes between.
    """

    link: Link
    expected_rtt_ms: float
    expected_goodput_mbyte_s: float
    measured: Measured
    broken: tuple[str, ...]
    clipped: bool = False
    via: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contract:
    """Every link's verdict.

    Attributes:
        verdicts: one a link.
        seconds: what measuring took.
        measured_again: how many links were doubtful, and so were measured again.
        notes: what a user should know.
    """

    verdicts: tuple[Verdict, ...]
    seconds: float = 0.0
    measured_again: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether no link is broken."""
        return not any(v.broken for v in self.verdicts)

    def verdict(self) -> str:
        """One sentence: what is broken, by link."""
        broken = [
            f"{v.link.src} -> {v.link.dst} ({', '.join(v.broken)})"
            for v in self.verdicts
            if v.broken
        ]
        if broken:
            return "broken: " + "; ".join(broken)
        clipped = sum(v.clipped for v in self.verdicts)
        paths = sum(bool(v.via) for v in self.verdicts)
        return (
            f"all {len(self.verdicts) - paths} links"
            + (f" and {paths} paths over several of them" if paths else "")
            + " hold"
            + (f", {clipped} clipped by this machine" if clipped else "")
        )

    def document(self) -> dict[str, Any]:
        """contract.json."""
        return {
            "holds": self.holds,
            "verdict": self.verdict(),
            "seconds": round(self.seconds, 2),
            "measured_again": self.measured_again,
            "notes": list(self.notes),
            "links": [_verdict_document(v) for v in self.verdicts if not v.via],
            "paths": [_verdict_document(v) | {"via": list(v.via)} for v in self.verdicts if v.via],
        }


def expected_goodput(link: Link, mtu: int) -> float:
    """Payload MB/s of one TCP connection that fills the link: full frames, headers taken off."""
    return link.rate_mbyte_s * (mtu - TCP_IP_BYTES) / (mtu + ETHERNET_BYTES)


def judge(link: Link, links: Sequence[Link], mtu: int, measured: Measured) -> Verdict:
    """Hold one link's measurement against what was asked."""
    rtt, goodput = rtt_ms(links, link.src, link.dst), expected_goodput(link, mtu)
    reached = goodput if measured.goodput_mbyte_s is None else measured.goodput_mbyte_s
    off_pct = (reached / goodput - 1) * 100
    # Under loss or jitter TCP reaches less than the rate; how much less is its own affair.
    clean = not link.loss_pct and not link.jitter_ms
    slow = off_pct < -GOODPUT_TOLERANCE_PCT and clean
    clipped = slow and reached >= HOST_LIMIT_MBYTE_S * (1 - GOODPUT_TOLERANCE_PCT / 100)
    checks = {
        "rtt": _rtt_holds(link, links, rtt, measured),
        "jitter": _jitter_holds(link, measured),
        "loss": _loss_holds(link, measured),
        "reordering": measured.reordered == 0,
        "goodput": (clipped or not slow) and reached > 0 and off_pct <= GOODPUT_TOLERANCE_PCT,
    }
    broken = tuple(name for name, holds in checks.items() if not holds)
    return Verdict(link, rtt, goodput, measured, broken, clipped)


def summarise_pings(
    ping: Mapping[str, Any], arrivals: Mapping[str, Any], host_ms: float
) -> tuple[Measured, Measured]:
    """What pings say of both directions, there and back, less what the host itself costs.

    Args:
        ping: one peer's part of node.probe's answer to `ping`.
        arrivals: that peer's own answer to `arrivals`.
        host_ms: a round trip without a link.
    """
    trips = ping["rtt_ms"]
    rtt_ms = statistics.median(trips) - host_ms if trips else math.inf
    there = _summarise_direction(ping["sent"], arrivals, rtt_ms, len(trips))
    back = _summarise_direction(arrivals["arrived"], ping["back"], rtt_ms, len(trips))
    return there, back


def loss_interval(
    packets: int, loss_pct: float, confidence: float = LOSS_CONFIDENCE
) -> tuple[int, int]:
    """The fewest and the most of `packets` that random loss takes, with this confidence (exact binomial tails)."""
    chance = loss_pct / 100
    if chance == 0:
        return 0, 0
    tail, below = (1 - confidence) / 2, 0.0
    low: int | None = None
    for lost in range(packets + 1):
        below += _binomial(packets, lost, chance)
        if low is None and below > tail:
            low = lost
        if below >= 1 - tail:
            return low or 0, lost
    return low or 0, packets


def _summarise_direction(
    sent: int, arrivals: Mapping[str, Any], rtt_ms: float, trips: int
) -> Measured:
    return Measured(
        rtt_ms=rtt_ms,
        jitter_ms=_spread(arrivals["one_way_ms"]),
        samples=trips,
        sent=sent,
        arrived=arrivals["arrived"],
        reordered=arrivals["reordered"],
    )


def _spread(values: Sequence[float]) -> float:
    """A normal distribution's standard deviation, from the distance between its outer deciles.

    One stall of the host, which is late for one ping in a hundred, must not look like a link that jitters; a link that
    is late for one in five must.
    """
    if len(values) < 2:
        return 0.0
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return (deciles[-1] - deciles[0]) / OUTER_DECILES


def _rtt_holds(link: Link, links: Sequence[Link], expected_ms: float, measured: Measured) -> bool:
    back = [other for other in links if (other.src, other.dst) == (link.dst, link.src)]
    spread = math.hypot(link.jitter_ms, *(other.jitter_ms for other in back))
    chance = (
        3 * 1.2533 * spread / math.sqrt(max(1, measured.samples))
    )  # a median's standard error, three times
    return (
        abs(measured.rtt_ms - expected_ms)
        <= expected_ms * RTT_TOLERANCE_PCT / 100 + RTT_TOLERANCE_MS + chance
    )


def _jitter_holds(link: Link, measured: Measured) -> bool:
    chance = 3 * SPREAD_ERROR / math.sqrt(max(2, measured.samples))
    allowed = link.jitter_ms * (JITTER_TOLERANCE_PCT / 100 + chance) + RTT_TOLERANCE_MS
    if link.jitter_ms == 0:
        allowed += (link.delay_ms) * RTT_TOLERANCE_PCT / 100
    return abs(measured.jitter_ms - link.jitter_ms) <= allowed


def _loss_holds(link: Link, measured: Measured) -> bool:
    low, high = loss_interval(measured.sent, link.loss_pct)
    return low <= measured.sent - measured.arrived <= high


def _binomial(packets: int, lost: int, chance: float) -> float:
    if chance == 1:
        return float(lost == packets)
    ways = math.lgamma(packets + 1) - math.lgamma(lost + 1) - math.lgamma(packets - lost + 1)
    return math.exp(ways + lost * math.log(chance) + (packets - lost) * math.log1p(-chance))


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    measured = verdict.measured
    return {
        "link": asdict(verdict.link),
        "expected": {
            "rtt_ms": round(verdict.expected_rtt_ms, 3),
            "jitter_ms": verdict.link.jitter_ms,
            "loss_pct": verdict.link.loss_pct,
            "goodput_mbyte_s": round(verdict.expected_goodput_mbyte_s, 4),
        },
        "measured": {
            "rtt_ms": _rounded(measured.rtt_ms),
            "jitter_ms": round(measured.jitter_ms, 3),
            "loss_pct": round(measured.lost_pct, 3),
            "goodput_mbyte_s": _rounded(measured.goodput_mbyte_s),
            "packets": measured.sent,
            "reordered": measured.reordered,
        },
        "broken": list(verdict.broken),
        "clipped": verdict.clipped,
    }


def _rounded(value: float | None) -> float | None:
    """A number that JSON knows."""
    return round(value, 4) if value is not None and math.isfinite(value) else None
