"""All events of a run that `tracker` handles."""

from dataclasses import dataclass

from cluster.accounting.clocks import Clocks
from cluster.live.sample import Sample


@dataclass(frozen=True)
class Phase:
    """The run has entered another phase: one of `state.PHASES`."""

    name: str


@dataclass(frozen=True)
class Measured:
    """A node has sent a line of telemetry."""

    node: str
    sample: Sample


@dataclass(frozen=True)
class RankEnded:
    """A rank has ended for good; the exit code is -n for signal n, `LOST` if unknown."""

    name: str
    exit_code: int


@dataclass(frozen=True)
class RankRestarted:
    """A rank is started again; `restarts` counts this start, too."""

    name: str
    restarts: int


@dataclass(frozen=True)
class Happened:
    """The schedule has done something."""

    after_s: float
    what: str


@dataclass(frozen=True)
class ClocksMeasured:
    """The clocks of nodes on other hosts, by node."""

    clocks: Clocks


@dataclass(frozen=True)
class Noted:
    """A note for those who watch the run."""

    words: str


News = Phase | Measured | RankEnded | RankRestarted | Happened | ClocksMeasured | Noted
