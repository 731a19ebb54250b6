"""How one rank ended: what its node.rank reports of it, and how that is said. Pure."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from signal import SIGKILL

from cluster.base.signal_names import signal_name
from cluster.run.placement import RankPlacement
from protocol.rank import LOST, RankReport
from protocol.reader import FormatError, parse


@dataclass(frozen=True)
class RankExit:
    """How one rank ended.

    Attributes:
        place: where it ran.
        exit_code: -n for signal n; LOST where nobody knows.
        time: when it failed or ended, by its node's own clock.
        error: what it says itself of why it failed (`@record`), in one line; empty where it says nothing.
        is_bystander: whether it failed by the failure of another: its connection was closed, its wait took too long.
        out_of_memory: whether the kernel killed it, or a process of its node, for lack of memory.
        was_stopped: whether it ended after it had been told to.
        stall: why it held the others up, where it did.
        refusal: why its node did not take it: another run has it; empty where it ran.
        restarts: how often it had been started again by then.
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

    @property
    def has_never_run(self) -> bool:
        """Whether its node has refused it from the start."""
        return bool(self.refusal) and self.restarts == 0


def read_report(place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
    """How a rank ended, by the last line of its node.rank; a rank may have written something else there, or killed it.

    Args:
        place: of the rank.
        exit_code: of node.rank.
        stderr: what node.rank said.
    """
    *_, last = ["", *stderr.strip().splitlines()]
    try:
        report = parse(RankReport, last)
    except FormatError:
        return RankExit(place, exit_code if exit_code else LOST, time.time())
    return RankExit(
        place,
        report.exit_code,
        report.time,
        report.error,
        is_bystander=report.bystander,
        out_of_memory=report.out_of_memory,
    )


def how_it_ended(end: RankExit, fates: Mapping[str, str]) -> str:
    """How a rank ended, for a user: what follows its name.

    Args:
        end: of the rank.
        fates: of the nodes that were lost, why, where that is known.
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
