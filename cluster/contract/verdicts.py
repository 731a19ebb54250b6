"""The contract: what each link was asked to be, what it measured, and whether that holds.

Pure functions; `cluster.contract.measure` measures, `cluster.contract.expected` says what must come of it.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from cluster.contract.expected import Access, Asked
from cluster.contract.flaws import judge_flaws
from cluster.contract.floods import flood_error
from cluster.contract.measured import Measured
from cluster.links import Link
from cluster.spec import name_flag

RTT_TOLERANCE_PCT = 1.0
RTT_TOLERANCE_MS = 0.3
JITTER_TOLERANCE_PCT = 10.0
SPEED_TOLERANCE_PCT = 3.0
CERTAIN = 3.0  # standard errors that chance is allowed
# Standard errors of what cluster.contract.delays fits to n packets, in deviations, times the root of n.
MEAN_ERROR, SPREAD_ERROR = 1.1, 0.8
HOST_LIMIT_MBYTE_S = 100.0  # a link that carries this much may ask more than the machine can give


@dataclass(frozen=True)
class Verdict:
    """One link: asked, expected, measured, and what of it does not hold.

    Of a pair of nodes without a link `link` is what the links between them make together, and `via` the nodes between.
    """

    link: Link
    expected_rtt_ms: float
    expected_goodput_mbyte_s: float
    expected_rate_mbyte_s: float
    measured: Measured
    broken: tuple[str, ...]
    clipped: bool = False
    via: tuple[str, ...] = ()

    @property
    def speed_holds(self) -> bool:
        """Whether it is not the speed that is broken."""
        return not {"rate", "goodput"} & set(self.broken)


@dataclass(frozen=True)
class AccessVerdict:
    """What a node may send, or receive, on all its links together, and what it did; `kind`: uplink or downlink."""

    kind: str
    node: str
    asked_mbyte_s: float
    measured_mbyte_s: float
    holds: bool
    clipped: bool


@dataclass(frozen=True)
class Contract:
    """Every link's verdict.

    Attributes:
        verdicts: one a link, and one for each pair of nodes without a link.
        accesses: one for each uplink and downlink.
        seconds, planned_s: what measuring took, and was to take.
        measured_again: how many links were doubtful, and so were measured again.
        notes: what a user should know.
        overloaded: whether the host, and not the links, was the limit of what was measured.
    """

    verdicts: tuple[Verdict, ...]
    accesses: tuple[AccessVerdict, ...] = ()
    seconds: float = 0.0
    planned_s: float = 0.0
    measured_again: int = 0
    notes: tuple[str, ...] = ()
    overloaded: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing is broken."""
        return not any(v.broken for v in self.verdicts) and all(a.holds for a in self.accesses)

    def verdict(self) -> str:
        """One sentence: what is broken, by link."""
        broken = [
            f"{v.link.src} -> {v.link.dst} ({', '.join(v.broken)})"
            for v in self.verdicts
            if v.broken
        ] + [f"{a.node} ({a.kind})" for a in self.accesses if not a.holds]
        if broken:
            return "broken: " + "; ".join(broken)
        clipped = sum(v.clipped for v in self.verdicts) + sum(a.clipped for a in self.accesses)
        paths = sum(bool(v.via) for v in self.verdicts)
        unknown = sum(not v.measured.sent for v in self.verdicts)
        return (
            f"all {len(self.verdicts) - paths} links"
            + (f", {paths} paths over several of them" if paths else "")
            + "".join(
                f", {count} {kind}s"
                for kind, count in Counter(a.kind for a in self.accesses).items()
            )
            + " hold"
            + (f", {clipped} clipped by this machine" if clipped else "")
            + (f", {unknown} not measured" if unknown else "")
            + f"; speeds {self._told_by()}"
        )

    def remedy(self, cluster: str) -> str:
        """What to try where it does not hold."""
        if self.overloaded:
            return (
                "the links may be as asked: measure them again when the machine has time for them"
            )
        return f"python -m cluster.shape{name_flag(cluster)} --profile NAME shapes them anew"

    def _told_by(self) -> str:
        """By what the speeds of links were told."""
        counts = Counter(v.measured.speed_by or "not measured" for v in self.verdicts if not v.via)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"of {count} {how}" for how, count in counts.most_common())

    def document(self) -> dict[str, Any]:
        """contract.json."""
        return {
            "holds": self.holds,
            "verdict": self.verdict(),
            "seconds": round(self.seconds, 2),
            "planned_s": round(self.planned_s, 1),
            "measured_again": self.measured_again,
            "overloaded": self.overloaded,
            "notes": list(self.notes),
            "links": [_verdict_document(v) for v in self.verdicts if not v.via],
            "paths": [_verdict_document(v) | {"via": list(v.via)} for v in self.verdicts if v.via],
            "uplinks": self._access_documents("uplink"),
            "downlinks": self._access_documents("downlink"),
        }

    def _access_documents(self, kind: str) -> list[dict[str, Any]]:
        rows = [asdict(access) for access in self.accesses if access.kind == kind]
        return [{key: value for key, value in row.items() if key != "kind"} for row in rows]


def judge(link: Link, asked: Asked, measured: Measured) -> Verdict:
    """Hold one link's measurement against what was asked."""
    speeds = _judge_speeds(link, asked, measured)
    checks = {
        "rtt": _rtt_holds(link, asked, measured),
        "jitter": _jitter_holds(link, measured),
        **judge_flaws(link, measured),
        **{name: holds for name, (holds, _) in speeds.items()},
    }
    clipped = any(clipped for _, clipped in speeds.values())
    if asked.is_cut(link):
        checks, clipped = {"loss": checks["loss"]}, False
    return Verdict(
        link=link,
        expected_rtt_ms=asked.rtt_ms(link),
        expected_goodput_mbyte_s=asked.goodput_mbyte_s(link),
        expected_rate_mbyte_s=asked.rate_mbyte_s(link),
        measured=measured,
        broken=tuple(name for name, holds in checks.items() if not holds),
        clipped=clipped,
    )


def judge_access(access: Access, asked_mbyte_s: float, measured_mbyte_s: float) -> AccessVerdict:
    """Hold what a node's links carried at once against what it may send or receive, or what they have."""
    holds, clipped = _speed(measured_mbyte_s, asked_mbyte_s)
    return AccessVerdict(access.kind, access.node, asked_mbyte_s, measured_mbyte_s, holds, clipped)


def _judge_speeds(link: Link, asked: Asked, measured: Measured) -> dict[str, tuple[bool, bool]]:
    """What tells of this link's speed: whether that holds, and whether it is the machine that cannot give more."""
    goodput, rate = measured.goodput_mbyte_s, asked.rate_mbyte_s(link)
    speeds = {}
    if measured.rate_mbyte_s is not None:
        speeds["rate"] = _speed(measured.rate_mbyte_s, rate, CERTAIN * flood_error(link))
    if goodput is not None and not link.is_rough:
        speeds["goodput"] = _speed(goodput, asked.goodput_mbyte_s(link))
    elif goodput is not None and not speeds:
        # What TCP makes of loss and jitter is its own affair, unless it is nothing or too much.
        speeds["goodput"] = (goodput > 0 and not _too_fast(goodput, rate), False)
    return speeds


def _speed(
    measured_mbyte_s: float, expected_mbyte_s: float, chance: float = 0.0
) -> tuple[bool, bool]:
    low = expected_mbyte_s * (1 - SPEED_TOLERANCE_PCT / 100 - chance)
    limit = HOST_LIMIT_MBYTE_S * (1 - SPEED_TOLERANCE_PCT / 100)
    clipped = limit <= measured_mbyte_s < low
    holds = clipped or measured_mbyte_s >= low
    return holds and not _too_fast(measured_mbyte_s, expected_mbyte_s * (1 + chance)), clipped


def _too_fast(measured_mbyte_s: float, expected_mbyte_s: float) -> bool:
    """As wrong as too slow."""
    return measured_mbyte_s > expected_mbyte_s * (1 + SPEED_TOLERANCE_PCT / 100)


def _rtt_holds(link: Link, asked: Asked, measured: Measured) -> bool:
    expected_ms = asked.rtt_ms(link)
    back = [other for other in asked.links if (other.src, other.dst) == (link.dst, link.src)]
    spread = math.hypot(link.jitter_ms, *(other.jitter_ms for other in back))
    chance = CERTAIN * MEAN_ERROR * spread / math.sqrt(max(1, measured.samples))
    return (
        abs(measured.rtt_ms - expected_ms)
        <= expected_ms * RTT_TOLERANCE_PCT / 100 + RTT_TOLERANCE_MS + chance
    )


def _jitter_holds(link: Link, measured: Measured) -> bool:
    chance = CERTAIN * SPREAD_ERROR / math.sqrt(max(2, measured.samples))
    allowed = link.jitter_ms * (JITTER_TOLERANCE_PCT / 100 + chance) + RTT_TOLERANCE_MS
    if link.jitter_ms == 0:
        allowed += (link.delay_ms) * RTT_TOLERANCE_PCT / 100
    return abs(measured.jitter_ms - link.jitter_ms) <= allowed


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    measured = verdict.measured
    return {
        "link": asdict(verdict.link),
        "expected": {
            "rtt_ms": round(verdict.expected_rtt_ms, 3),
            "jitter_ms": verdict.link.jitter_ms,
            "loss_pct": round(verdict.link.lost_pct, 4),
            "goodput_mbyte_s": round(verdict.expected_goodput_mbyte_s, 4),
            "rate_mbyte_s": round(verdict.expected_rate_mbyte_s, 4),
        },
        "measured": {
            "rtt_ms": _rounded(measured.rtt_ms),
            "jitter_ms": round(measured.jitter_ms, 3),
            "loss_pct": _rounded(measured.lost_pct),
            "goodput_mbyte_s": _rounded(measured.goodput_mbyte_s),
            "rate_mbyte_s": _rounded(measured.rate_mbyte_s),
            "loaded_rtt_ms": _rounded(measured.loaded_rtt_ms),
            "packets": measured.sent,
            "reordered": measured.reordered,
            "twice": measured.twice,
            "gaps": measured.gaps,
            "late_ms": measured.late_ms,
        },
        "speed_by": measured.speed_by,
        "broken": list(verdict.broken),
        "clipped": verdict.clipped,
    }


def _rounded(value: float | None) -> float | None:
    """A number that JSON knows."""
    return round(value, 4) if value is not None and math.isfinite(value) else None
