"""The data of a report, whatever the run folder contained: plain values of the declared types. None means unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.rank import LOST

GOOD, BAD, UNKNOWN = "good", "bad", "unknown"


@dataclass(frozen=True)
class Rank:
    """One rank.

    Attributes:
        seconds: seconds by bucket, from summary.json.
    """

    name: str
    node: str
    exit_code: int | None
    seconds: Mapping[str, float]
    restarts: int = 0

    @property
    def total_s(self) -> float:
        """The seconds of all buckets together, exactly one of which runs at any time."""
        return self.seconds.get("total") or sum(self.seconds.values())


@dataclass(frozen=True)
class LinkFigures:
    """One link: values asked for, expected from those, and measured, and what it carried in the run.

    Attributes:
        verdict: holds, broken, undecided, or '' if nothing was measured.
        broken: names of the figures that are broken or undecided.
    """

    src: str
    dst: str
    asked_mbyte_s: float | None
    delay_ms: float | None
    loss_pct: float | None
    jitter_ms: float | None
    verdict: str = ""
    broken: Sequence[str] = ()
    expected_goodput_mbyte_s: float | None = None
    goodput_mbyte_s: float | None = None
    expected_rtt_ms: float | None = None
    rtt_ms: float | None = None
    carried_bytes: float | None = None

    @property
    def name(self) -> str:
        """The link's usual name, such as node1->node2."""
        return f"{self.src}->{self.dst}"

    @property
    def speed_ratio(self) -> float | None:
        """Measured goodput over the goodput expected at the rate asked for."""
        if not self.expected_goodput_mbyte_s or self.goodput_mbyte_s is None:
            return None
        return self.goodput_mbyte_s / self.expected_goodput_mbyte_s

    @property
    def rtt_ratio(self) -> float | None:
        """Measured round trip over the expected one."""
        if not self.expected_rtt_ms or self.rtt_ms is None:
            return None
        return self.rtt_ms / self.expected_rtt_ms


@dataclass(frozen=True)
class Proof:
    """What is known about the links as a whole.

    Attributes:
        state: GOOD if all are proved, BAD if one is broken, lost or changed, else UNKNOWN.
        words: the same in a few words.
        sentence: the same as a sentence that names what is not as asked.
    """

    state: str
    words: str
    sentence: str


@dataclass(frozen=True)
class ByteFigures:
    """What the links carried, and how close that is to what collectives need.

    Attributes:
        ratio: carried over expected bytes, between the ranks' own readings of the counters.
        off: the links, and 'total', that are more than 5 % off.
    """

    total: float | None
    ratio: float | None
    off: Sequence[str]


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one kind, purpose and size; seconds are means.

    Attributes:
        sizes_vary: whether they differ in size; `size_bytes` is then their mean.
        gloo_bound_s: gloo's bound.
        links_bound_s: the links' bound.
        ratio: measured over `gloo_bound_s`.
        unbounded: the number of timed ones whose bounds were not computed.
    """

    kind: str
    purpose: str
    size_bytes: int
    count: int
    seconds: float | None
    gloo_bound_s: float | None
    links_bound_s: float | None
    ratio: float | None
    sizes_vary: bool = False
    unbounded: int = 0


@dataclass(frozen=True)
class Attribution:
    """Seconds of collectives by part, in the order in which the model adds the parts.

    Attributes:
        seconds: sums over all collectives.
        rows: the same by collective, the longest first.
    """

    seconds: Mapping[str, float]
    rows: Sequence[tuple[CollectiveRow, Mapping[str, float]]] = ()


@dataclass(frozen=True)
class Cause:
    """Something that was worse than its peers, and the seconds that it cost the run."""

    words: str
    seconds: float


@dataclass(frozen=True)
class WhatIf:
    """One improvement, the seconds that it would have saved, and those that it saved when tried.

    Attributes:
        what: the kind of change: rate, delay, or another word.
        achieved_s: seconds saved when it was tried; None if it was not.
    """

    what: str
    carrier: str
    saves_s: float
    achieved_s: float | None = None


@dataclass(frozen=True)
class PathPart:
    """A part of the critical path.

    Attributes:
        who: a rank, or a carrier: a link, an uplink, a downlink.
        kind: what the rank did; for a carrier, one of delay, bytes and window.
    """

    who: str
    kind: str
    seconds: float
    is_rank: bool


@dataclass(frozen=True)
class CriticalPath:
    """The ranks and links that made the run as long as it was. All seconds add up to `wall_s`."""

    wall_s: float
    parts: Sequence[PathPart]
    not_known_s: float

    def by_who(self) -> dict[str, float]:
        """Return the seconds of each rank and carrier, the largest first."""
        sums: dict[str, float] = {}
        for part in self.parts:
            sums[part.who] = sums.get(part.who, 0.0) + part.seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def carrier(self) -> str:
        """The link, uplink or downlink with the most seconds on the path; '' if there is none."""
        ranks = {part.who for part in self.parts if part.is_rank}
        return next((who for who in self.by_who() if who not in ranks), "")


@dataclass(frozen=True)
class LinkStretch:
    """What a link carried between two looks, in seconds since the run's first event.

    Attributes:
        mbyte_s: mean throughput.
        rate_mbyte_s: the rate asked for at the end; under a trace, its mean.
        backlog_bytes: bytes in its queue at the end; None if nobody looked then.
        dropped: number of packets dropped.
        is_steady: whether the rate was the same at both ends; else it changed at an unknown time.
    """

    start_s: float
    end_s: float
    mbyte_s: float
    rate_mbyte_s: float
    backlog_bytes: float | None
    dropped: float
    is_steady: bool = True


@dataclass(frozen=True)
class StepPoint:
    """One step of the rank with this number.

    Attributes:
        at_s: seconds since the run's first event.
        loss: None if it is missing or not finite.
        not_finite: "NaN" or "infinite" if the loss was that, else ''.
        waiting_s: of `comm_s`, what a learner waited for experience.
    """

    rank: int
    step: int
    at_s: float
    loss: float | None
    compute_s: float
    comm_s: float
    sent_bytes: float
    strategy_s: float = 0.0
    not_finite: str = ""
    waiting_s: float = 0.0


@dataclass(frozen=True)
class Measure:
    """A figure of a test, of environments, or of experience, at one moment."""

    name: str
    rank: int
    step: int
    at_s: float
    value: float


@dataclass(frozen=True)
class Move:
    """One rank's part in a collective. Times are seconds since the run's first event.

    Attributes:
        number: number of the collective, the same for all ranks that took part.
        waited_from_s: when the rank began to do nothing else.
        complete_s: when the last rank had arrived.
        hidden: whether it was done before the rank waited for it, at an unknown time.
        tests: whether it belonged to a test.
        to: payload bytes by receiving rank.
    """

    number: int
    rank: int
    step: int
    kind: str
    purpose: str
    size_bytes: int
    entered_s: float
    waited_from_s: float
    complete_s: float
    ended_s: float
    hidden: bool
    tests: bool
    to: Mapping[int, int]


@dataclass(frozen=True)
class ScheduleEvent:
    """An action of the schedule on links or nodes."""

    at_s: float
    what: str


@dataclass(frozen=True)
class RootCause:
    """What made a run fail: the rank, '' if unknown, and how it ended, in words that follow its name."""

    rank: str
    words: str


@dataclass(frozen=True)
class Tail:
    """The end of a rank's log."""

    rank: str
    how: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Experience:
    """What a learner reports about its actors' work.

    Attributes:
        figures: figures of all actors together, by name.
        actors: figures of each actor, by rank name.
    """

    figures: Mapping[str, float]
    actors: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class RunData:
    """A run as its folder describes it.

    Attributes:
        status: done, failed, or open: it has no recorded end.
        limits: in what ways the host was the limit; None if unknown.
        tested: figures of the last test.
        starts_s: rank -> when it had met the others.
        stretches: link -> what it carried over time.
        facts: how to reproduce the run: name -> value, as text.
        is_training: whether it ran our own training.
        failure: why it failed although its ranks were done; '' if it did not.
        root_cause: None if no rank made it fail, or it is unknown which.
        failed: number of ranks that failed by themselves; `tails` has the first of their logs.
        notes: what could not be read from the folder.
    """

    name: str
    status: str
    wall_s: float | None
    ranks: Sequence[Rank]
    proof: Proof
    links: Sequence[LinkFigures] = ()
    limits: Sequence[str] | None = None
    bytes: ByteFigures = ByteFigures(None, None, ())
    final_loss: float | None = None
    steps_done: int | None = None
    tested: Mapping[str, float] = field(default_factory=dict)
    collectives: Sequence[CollectiveRow] = ()
    bounds: str = ""
    attribution: Attribution | None = None
    what_if: Sequence[WhatIf] = ()
    is_predicted: bool = False
    causes: Sequence[Cause] = ()
    path: CriticalPath | None = None
    steps: Sequence[StepPoint] = ()
    measures: Sequence[Measure] = ()
    moves: Sequence[Move] = ()
    starts_s: Mapping[int, float] = field(default_factory=dict)
    stretches: Mapping[str, Sequence[LinkStretch]] = field(default_factory=dict)
    events: Sequence[ScheduleEvent] = ()
    experience: Experience | None = None
    title: str = ""
    command: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    is_training: bool = False
    failure: str = ""
    root_cause: RootCause | None = None
    failed: int = 0
    tails: Sequence[Tail] = ()
    notes: Sequence[str] = ()
    began_at: float | None = None

    @property
    def nodes(self) -> list[str]:
        """The nodes, in the order of their ranks."""
        return list(dict.fromkeys(rank.node for rank in self.ranks))

    def rank_name(self, rank: int) -> str:
        """Return the name of a rank by its number."""
        return self.ranks[rank].name if 0 <= rank < len(self.ranks) else f"rank {rank}"


def how_it_ended(exit_code: int | None) -> str:
    """Return in words how a rank ended."""
    if exit_code is None:
        return "has no recorded end"
    if exit_code == LOST:
        return "was lost with its node"
    return (
        f"was ended by signal {-exit_code}"
        if exit_code < 0
        else f"ended with exit code {exit_code}"
    )


def exit_word(exit_code: int | None) -> str | int | None:
    """Return an exit code as tables show it."""
    return "lost" if exit_code == LOST else exit_code
