"""How one rank ended, from the report of its node.rank, and the words for it. Pure."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from signal import SIGKILL

from cluster.base.processes import signal_name
from cluster.run.rank_placement import RankPlacement
from protocol.rank import LOST, RankReport
from protocol.reader import FormatError, parse

# A report takes less than this. Ranks that fail together are told apart by milliseconds of one clock.
CLOCKS_APART_S = 5.0


@dataclass(frozen=True)
class RankExit:
    """How one rank ended.

    Attributes:
        place: where it ran.
        exit_code: -n for signal n; LOST if unknown.
        time: Unix time of its failure or end, by its node's clock; by ours if that is wrong, or as `on_our_clock` says,
            or if there is no report.
        error: its own explanation of the failure (`@record`), in one line; empty if there is none.
        is_bystander: whether another rank's failure made it fail: a connection was closed, or a wait timed out.
        out_of_memory: whether the kernel killed it, or another process of its node, for lack of memory.
        was_stopped: whether it ended after it had been told to.
        stall: why it held up the others; empty if it did not.
        refusal: why its node refused it (another run has the node); empty if it ran.
        restarts: how often it had been restarted by then.
        behind_s: how far its node's clock seemed to be behind ours: the way of its report is a part of that.
    """

    place: RankPlacement
    exit_code: int
    time: float
    error: str = ""
    is_bystander: bool = False
    out_of_memory: bool = False
    was_stopped: bool = False
    stall: str = ""
    refusal: str = ""
    restarts: int = 0
    behind_s: float = field(default=0.0, compare=False)

    @property
    def has_never_run(self) -> bool:
        """Whether its node refused its first start."""
        return bool(self.refusal) and self.restarts == 0


def read_report(place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
    """Return how a rank ended, from the last line of its node.rank; a rank may garble that, or kill node.rank.

    Args:
        place: placement of the rank.
        exit_code: exit code of node.rank.
        stderr: standard error of node.rank.
    """
    *_, last = ["", *stderr.strip().splitlines()]
    try:
        report = parse(RankReport, last)
    except FormatError:
        return RankExit(place, exit_code if exit_code else LOST, time.time())
    end = RankExit(
        place,
        report.exit_code,
        report.time,
        report.error,
        is_bystander=report.bystander,
        out_of_memory=report.out_of_memory,
        behind_s=time.time() - report.reported,
    )
    return on_our_clock(end) if abs(end.behind_s) > CLOCKS_APART_S else end


def on_our_clock(end: RankExit) -> RankExit:
    """Return the end of a rank on another machine with its time by our clock, to which the way of its report adds."""
    return replace(end, time=end.time + end.behind_s, behind_s=0.0)


def how_it_ended(end: RankExit, fates: Mapping[str, str]) -> str:
    """Return how a rank ended, as words for a user that follow its name.

    Args:
        end: the end of the rank.
        fates: why nodes were lost, by node, as far as known.
    """
    if end.stall:
        return f"stalled: {end.stall}"
    if end.refusal:
        return f"was refused ({end.refusal})"
    if end.exit_code == LOST:
        return f"was lost ({fates.get(end.place.node) or 'its connection broke'})"
    if end.out_of_memory and end.exit_code == -SIGKILL:
        return "was killed for lack of memory (SIGKILL by the kernel)"
    how = (
        f"was killed by {signal_name(-end.exit_code)}"
        if end.exit_code < 0
        else f"ended with exit code {end.exit_code}"
    )
    lack = "; the kernel killed a process of it for lack of memory" if end.out_of_memory else ""
    return how + lack
