"""What a report knows of a run, whatever its folder had: plain values, all of their types. None: nobody knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.rank import LOST

GOOD, BAD, UNKNOWN = "good", "bad", "unknown"


@dataclass(frozen=True)
class Rank:
    """One rank.

    Attributes:
        seconds: by bucket, as summary.json has them.
    """

    name: str
    node: str
    exit_code: int | None
    seconds: Mapping[str, float]
    restarts: int = 0

    @property
    def total_s(self) -> float:
        """All buckets together: one of them runs at any time."""
        return self.seconds.get("total") or sum(self.seconds.values())


@dataclass(frozen=True)
class LinkFigures:
    """One link: asked, expected of that, measured, and what it carried in the run.

    Attributes:
        verdict: holds, broken, undecided, or '' where nothing was measured.
        broken: names of what does not hold, or is undecided.
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
        """As everywhere: node1->node2."""
        return f"{self.src}->{self.dst}"

    @property
    def speed_ratio(self) -> float | None:
        """Measured goodput over what was expected of the rate that was asked for."""
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
    """What is known of the links as a whole.

    Attributes:
        state: GOOD where all are proved, BAD where one is broken, else UNKNOWN.
        words: in a few.
    """

    state: str
    words: str


@dataclass(frozen=True)
class ByteFigures:
    """What the links carried, and how near that is to what collectives need.

    Attributes:
        ratio: carried over expected, between the ranks' own readings.
        off: what is more than 5 % off.
    """

    total: float | None
    ratio: float | None
    off: Sequence[str]


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one kind, purpose and size; seconds are means.

    Attributes:
        gloo_bound_s: by gloo's way at best.
        links_bound_s: by any way at best.
        ratio: measured over `gloo_bound_s`.
    """

    kind: str
    purpose: str
    size_bytes: int
    count: int
    seconds: float | None
    gloo_bound_s: float | None
    links_bound_s: float | None
    ratio: float | None


@dataclass(frozen=True)
class Attribution:
    """Seconds of collectives by part, in the order in which each was made real.

    Attributes:
        seconds: of all.
        rows: the same by collective, the longest first.
    """

    seconds: Mapping[str, float]
    rows: Sequence[tuple[CollectiveRow, Mapping[str, float]]] = ()


@dataclass(frozen=True)
class Cause:
    """One thing that was worse than its peers, and the seconds that it cost the run."""

    words: str
    seconds: float


@dataclass(frozen=True)
class WhatIf:
    """One better thing, what it would have saved, and what it did save where it was tried.

    Attributes:
        what: rate, delay, or another word.
        achieved_s: saved when it was tried; None where it was not.
    """

    what: str
    carrier: str
    saves_s: float
    achieved_s: float | None = None


@dataclass(frozen=True)
class PathPart:
    """A part of the critical path.

    Attributes:
        who: a rank, or what carries: a link, an uplink, a downlink.
        kind: what the rank did, or of what carries delay, bytes or window.
    """

    who: str
    kind: str
    seconds: float
    is_rank: bool


@dataclass(frozen=True)
class CriticalPath:
    """Which ranks and links made the run as long as it was. Seconds add up to `wall_s`."""

    wall_s: float
    parts: Sequence[PathPart]
    not_known_s: float

    def by_who(self) -> dict[str, float]:
        """Seconds of each rank and carrier, the most first."""
        sums: dict[str, float] = {}
        for part in self.parts:
            sums[part.who] = sums.get(part.who, 0.0) + part.seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def carrier(self) -> str:
        """The link, uplink or downlink that it led over longest; empty where it led over none."""
        ranks = {part.who for part in self.parts if part.is_rank}
        return next((who for who in self.by_who() if who not in ranks), "")


@dataclass(frozen=True)
class LinkStretch:
    """What a link carried between two looks, in seconds since the run's first event.

    Attributes:
        mbyte_s: carried, in the mean.
        rate_mbyte_s: asked of it at the end.
        backlog_bytes: waiting in its queue at the end.
        dropped: packets.
    """

    start_s: float
    end_s: float
    mbyte_s: float
    rate_mbyte_s: float
    backlog_bytes: float
    dropped: float


@dataclass(frozen=True)
class StepPoint:
    """A step of one rank, by its number. `at_s` counts from the run's first event."""

    rank: int
    step: int
    at_s: float
    loss: float | None
    compute_s: float
    comm_s: float
    sent_bytes: float
    strategy_s: float = 0.0


@dataclass(frozen=True)
class Measure:
    """A figure of a test, of environments, or of experience, at a moment."""

    name: str
    rank: int
    step: int
    at_s: float
    value: float


@dataclass(frozen=True)
class Move:
    """One rank's part in a collective. Times are seconds since the run's first event.

    Attributes:
        number: of the collective, the same for all who took part.
        waited_from_s: from when on it did nothing else.
        complete_s: when the last of all had come.
        hidden: whether it was done before the rank waited for it, at a moment that nobody knows.
        tests: whether it was made for a test.
        to: payload bytes by the rank that they went to.
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
    """What a schedule did to links or nodes."""

    at_s: float
    what: str


@dataclass(frozen=True)
class Tail:
    """The end of a rank's log."""

    rank: str
    how: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Experience:
    """What a learner says of what its actors did.

    Attributes:
        figures: of the whole, by name.
        actors: by the rank's name.
    """

    figures: Mapping[str, float]
    actors: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class RunData:
    """A run, as its folder tells.

    Attributes:
        status: done, failed, or open: it has no end.
        limits: in what way the host was the limit; None where nobody knows.
        tested: figures of the last test.
        starts_s: rank -> when it had met the others.
        stretches: link -> what it carried over time.
        facts: how to make it again: name -> value, for readers.
        notes: what of the folder could not be read.
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
    tails: Sequence[Tail] = ()
    notes: Sequence[str] = ()
    began_at: float | None = None

    @property
    def nodes(self) -> list[str]:
        """In the order of ranks."""
        return list(dict.fromkeys(rank.node for rank in self.ranks))

    def rank_name(self, rank: int) -> str:
        """Of a rank by its number."""
        return self.ranks[rank].name if 0 <= rank < len(self.ranks) else f"rank {rank}"


def how_it_ended(exit_code: int | None) -> str:
    """In words."""
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
    """For tables."""
    return "lost" if exit_code == LOST else exit_code
