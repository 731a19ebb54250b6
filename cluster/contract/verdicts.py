"""The verdict on each link and on all of them: asked, expected, measured, and whether that holds.

Pure functions; `cluster.contract.measure` measures, `cluster.links.expected` computes the expected values.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from cluster.base.spec import name_flag
from cluster.contract.checks import CERTAIN, check_link, check_speed, hides_queue
from cluster.contract.doubt import Strain, of_the_host, queued_ms, too_slow
from cluster.contract.impairments import expected_lost_pct
from cluster.contract.measured import Measured, Rate
from cluster.contract.power import detectable_errors
from cluster.links.expected import Access, Expected, all_reduce_mbyte_s
from protocol.link import Link

SPEEDS = frozenset({"rate", "goodput", "buffer"})  # and what is measured with them
LEAST_SHARE = 0.1  # a machine that carries less than this seems to have stood still for a moment
SLOW_SENDER = "senders were too slow to fill the queues of their links"


@dataclass(frozen=True)
class Verdict:
    """One link: asked, expected and measured values, and the checks that failed.

    For a pair of nodes without a link, `link` is the path over the links between them, and `via` the nodes on it.

    Attributes:
        broken: the names of the checks that failed because of the link.
        undecided: the names of the failed checks that the host may have caused (`cluster.contract.doubt`).
        limits: how the host was the limit, if something is undecided.
    """

    link: Link
    expected_rtt_ms: float
    expected_goodput_mbyte_s: float
    expected_rate_mbyte_s: float
    expected_lost_pct: float
    measured: Measured
    broken: tuple[str, ...]
    clipped: bool = False
    via: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of all checks that failed, whether the link or the host is the cause."""
        return self.broken + self.undecided

    @property
    def speed_holds(self) -> bool:
        """Whether rate, goodput and buffer were as asked."""
        return SPEEDS.isdisjoint(self.failed)

    def said(self, failed: tuple[str, ...]) -> str:
        """Return the link, with these failed checks, for a message."""
        return f"{self.link.src} -> {self.link.dst} ({', '.join(failed)})"


@dataclass(frozen=True)
class AccessVerdict:
    """The verdict on an uplink or downlink (`kind`): what a node may carry on all its links together, and what it did.

    If it is `undecided`, it does not hold, and the host may be the cause: `limits` says how.
    """

    kind: str
    node: str
    asked_mbyte_s: float
    measured_mbyte_s: float
    holds: bool
    clipped: bool
    undecided: bool = False
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contract:
    """The verdicts on all links, uplinks and downlinks.

    Attributes:
        verdicts: one per link, and one for each pair of nodes without a link.
        accesses: one per uplink and downlink.
        seconds, planned_s: actual and planned duration of the measurement.
        measured_again: number of doubtful links, which were measured again.
        notes: remarks for the user.
        overloaded: whether the host, and not the links, limited the measurement.
        settings: other settings of the nodes' kernels, as in docs/run-folder.md.
        changed: what changed of the links, or of what else decides how they behave, while they were measured: then the
            figures are not of the links now in force.
    """

    verdicts: tuple[Verdict, ...]
    accesses: tuple[AccessVerdict, ...] = ()
    seconds: float = 0.0
    planned_s: float = 0.0
    measured_again: int = 0
    notes: tuple[str, ...] = ()
    overloaded: bool = False
    settings: Sequence[Mapping[str, object]] = ()
    changed: str = ""

    @property
    def holds(self) -> bool:
        """Whether everything is as asked: nothing broken, nothing undecided, and nothing changed meanwhile."""
        failed = self.changed or any(v.failed for v in self.verdicts)
        return not failed and all(a.holds for a in self.accesses)

    @property
    def is_broken(self) -> bool:
        """Whether something is not as asked and the host is not the cause."""
        wrong = any(not (a.holds or a.undecided) for a in self.accesses)
        return bool(self.changed) or wrong or any(v.broken for v in self.verdicts)

    @property
    def decided(self) -> bool:
        """Whether nothing is undecided."""
        unsure = any(a.undecided for a in self.accesses)
        return not unsure and not any(v.undecided for v in self.verdicts)

    @property
    def has_all_speeds(self) -> bool:
        """Whether the speed of every link was measured; where one direction is cut, there is none to measure."""
        cut = {frozenset(v.link.ends) for v in self.verdicts if v.link.lost_pct == 100}
        return all(
            v.via or v.measured.speed_by or frozenset(v.link.ends) in cut for v in self.verdicts
        )

    @property
    def limits(self) -> tuple[str, ...]:
        """How the host limited what is undecided, each sentence once."""
        of_links = [words for verdict in self.verdicts for words in verdict.limits]
        of_nodes = [words for access in self.accesses for words in access.limits]
        return tuple(dict.fromkeys(of_links + of_nodes))

    def verdict(self) -> str:
        """Return one sentence: what is broken and what is undecided, by link."""
        broken = [v.said(v.broken) for v in self.verdicts if v.broken]
        broken += [f"{a.node} ({a.kind})" for a in self.accesses if not (a.holds or a.undecided)]
        said = [f"changed while the links were measured: {self.changed}"] if self.changed else []
        said += ["broken: " + "; ".join(broken)] if broken else []
        if not self.decided:
            said.append(self._undecided())
        return "; ".join(said) or self._all_hold()

    def _undecided(self) -> str:
        links = [v.said(v.undecided) for v in self.verdicts if v.undecided]
        accesses = [f"{a.node} ({a.kind})" for a in self.accesses if a.undecided]
        count = f"{len(links)} of {len(self.verdicts)} links " if links else ""
        return f"{count}undecided: {'; '.join(links + accesses)}"

    def _all_hold(self) -> str:
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
        """Return what the user may try if the contract does not hold."""
        if self.changed:
            again = f"python -m cluster.up{name_flag(cluster)}"
            return f"let nothing else change the cluster meanwhile; this restores links: {again}"
        if self.is_broken:
            again = f"python -m cluster.shape{name_flag(cluster)} --profile NAME"
            return (
                f"shape them again, with the topology and seed that cluster.status shows: {again}"
            )
        quiet = "use a quieter machine, or fewer nodes at once"
        slow = any(a.undecided for a in self.accesses) or any(
            not v.speed_holds for v in self.verdicts
        )
        if not slow:
            return quiet
        cheaper = f"python -m cluster.verify{name_flag(cluster)} --budget 1"
        return f"{quiet}; or measure speeds by datagrams, which cost it less than TCP: {cheaper}"

    def _told_by(self) -> str:
        """Return how the speeds of links were measured."""
        counts = Counter(v.measured.speed_by or "not measured" for v in self.verdicts if not v.via)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"of {count} {how}" for how, count in counts.most_common())

    def document(self) -> dict[str, object]:
        """Return the content of contract.json."""
        return {
            "holds": self.holds,
            "broken": self.is_broken,
            "decided": self.decided,
            "verdict": self.verdict(),
            "seconds": round(self.seconds, 2),
            "planned_s": round(self.planned_s, 1),
            "measured_again": self.measured_again,
            "overloaded": self.overloaded,
            "notes": list(self.notes),
            "settings": list(self.settings),
            "changed": self.changed,
            "links": [_verdict_document(v) for v in self.verdicts if not v.via],
            "paths": [_verdict_document(v) | {"via": list(v.via)} for v in self.verdicts if v.via],
            "uplinks": self._access_documents("uplink"),
            "downlinks": self._access_documents("downlink"),
        }

    def _access_documents(self, kind: str) -> list[dict[str, object]]:
        rows = [asdict(access) for access in self.accesses if access.kind == kind]
        return [{key: value for key, value in row.items() if key != "kind"} for row in rows]


def judge(link: Link, asked: Expected, measured: Measured, strain: Strain | None = None) -> Verdict:
    """Compare one link's measurement with what was asked; `strain` is the host's overload meanwhile, if any."""
    checked = check_link(link, asked, measured)
    excused = of_the_host(link, asked, measured, strain) if strain else frozenset()
    limits = strain.limits if strain else ()
    if measured.queue is not None and hides_queue(link, measured.queue):
        excused, limits = excused | {"buffer"}, (*limits, SLOW_SENDER)
    undecided = tuple(name for name in checked.failed if name in excused)
    return Verdict(
        link=link,
        expected_rtt_ms=asked.rtt_ms(link),
        expected_goodput_mbyte_s=asked.goodput_mbyte_s(link),
        expected_rate_mbyte_s=asked.rate_mbyte_s(link),
        expected_lost_pct=expected_lost_pct(link, asked.hops.get(link.ends, ())),
        measured=measured,
        broken=tuple(name for name in checked.failed if name not in excused),
        clipped=checked.clipped,
        undecided=undecided,
        limits=limits if undecided else (),
    )


def judge_access(
    access: Access,
    asked_mbyte_s: float,
    rate: Rate,
    strain: Strain | None = None,
    error: float = 0.0,
) -> AccessVerdict:
    """Compare what a node's links carried at once with their limit, or with their sum if that is less; as `judge`.

    Args:
        access: the uplink or downlink.
        asked_mbyte_s: what it must carry.
        rate: what it carried.
        strain: the host's overload meanwhile, if any.
        error: standard error of the rate, as a share of it (`cluster.contract.floods.access_error`).
    """
    measured_mbyte_s = rate.mbyte_s
    # No sender sees a downlink's queue, which is at the receiver: there, what is missing tells that it was full.
    is_machine = rate.is_machine and (rate.is_all or access.kind == "uplink")
    holds, clipped = check_speed(
        measured_mbyte_s, asked_mbyte_s, is_machine=is_machine, chance=CERTAIN * error
    )
    missing_pct = strain.missing_pct(queued_ms(access.links)) if strain else 0.0
    undecided = not holds and too_slow(measured_mbyte_s, asked_mbyte_s, missing_pct)
    return AccessVerdict(
        access.kind,
        access.node,
        asked_mbyte_s,
        measured_mbyte_s,
        holds,
        clipped,
        undecided,
        strain.limits if strain and undecided else (),
    )


def carried_share(verdicts: Iterable[Verdict]) -> float:
    """Return which share of a link's rate the machine carried in the median; 1 of a link whose sender kept it busy."""
    shares = [
        rate.mbyte_s / verdict.expected_rate_mbyte_s if rate.is_machine else 1.0
        for verdict in verdicts
        if (rate := verdict.measured.rate) is not None
    ]
    return min(1.0, max(LEAST_SHARE, statistics.median(shares))) if shares else 1.0


def _verdict_document(verdict: Verdict) -> dict[str, object]:
    measured = verdict.measured
    limited = verdict.link._replace(rate_mbyte_s=verdict.expected_rate_mbyte_s)
    return {
        "link": verdict.link._asdict(),
        "expected": {
            "delay_ms": verdict.link.delay_ms,
            "rtt_ms": round(verdict.expected_rtt_ms, 3),
            "jitter_ms": verdict.link.jitter_ms,
            "loss_pct": round(verdict.expected_lost_pct, 4),
            "goodput_mbyte_s": round(verdict.expected_goodput_mbyte_s, 4),
            "rate_mbyte_s": round(verdict.expected_rate_mbyte_s, 4),
            "buffer_ms": verdict.link.buffer_ms,
        },
        "measured": {
            "delay_ms": _rounded(measured.delay_ms),
            "rtt_ms": _rounded(measured.rtt_ms),
            "jitter_ms": round(measured.jitter_ms, 3),
            "loss_pct": _rounded(measured.lost_pct),
            "goodput_mbyte_s": _rounded(measured.goodput_mbyte_s),
            "rate_mbyte_s": _rounded(measured.rate_mbyte_s),
            "loaded_rtt_ms": _rounded(measured.loaded_rtt_ms),
            "packets": measured.sent,
            "buffer_ms": _rounded(measured.buffer_ms),
            "burst_short_ms": _rounded(measured.queue.short_ms) if measured.queue else None,
            "drop_count": asdict(measured.drop_count) if measured.drop_count else None,
            "reordered": measured.reordered,
            "twice": measured.twice,
            "gaps": measured.gaps,
            "late_ms": measured.late_ms,
            "early_rtt_ms": _rounded(measured.early_rtt_ms),
            "early_delay_ms": _rounded(measured.early_delay_ms),
            "full_pct": measured.rate.full_pct if measured.rate else None,
        },
        "gloo_mbyte_s": round(
            all_reduce_mbyte_s(verdict.expected_goodput_mbyte_s, verdict.expected_rtt_ms), 4
        ),
        "detectable": detectable_errors(limited, measured, clipped=verdict.clipped).document(),
        "speed_by": measured.speed_by,
        "broken": list(verdict.broken),
        "undecided": list(verdict.undecided),
        "limits": list(verdict.limits),
        "clipped": verdict.clipped,
    }


def _rounded(value: float | None) -> float | None:
    """Return a number that JSON can hold, else None."""
    return round(value, 4) if value is not None and math.isfinite(value) else None
