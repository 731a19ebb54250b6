"""All that can happen to a run, as `tracker` is told of it."""

from dataclasses import dataclass

from cluster.live.sample import Sample


@dataclass(frozen=True)
class Phase:
    """The run has come to another part: one of `state.PHASES`."""

    name: str


@dataclass(frozen=True)
class Measured:
    """A node has sent a line of telemetry."""

    node: str
    sample: Sample


@dataclass(frozen=True)
class RankEnded:
    """A rank has ended for good; -n for signal n, `LOST` where nobody knows."""

    name: str
    exit_code: int


@dataclass(frozen=True)
class RankRestarted:
    """A rank is started again, for the so many-th time."""

    name: str
    restarts: int


@dataclass(frozen=True)
class Happened:
    """The schedule has done something."""

    after_s: float
    what: str


@dataclass(frozen=True)
class Noted:
    """Something that whoever looks on should know."""

    words: str


News = Phase | Measured | RankEnded | RankRestarted | Happened | Noted
