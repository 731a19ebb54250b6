"""Names in one word what a rank is doing, from looks at it and at the other ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.base.wording import first_names
from cluster.live.sample import NO_STATE, RankSample
from protocol.rank import LOST

RANK_STATES = (
    *("starting", "computing", "collective", "waiting", "stopped", "silent"),
    *("restarting", "ended", "failed", "lost"),
)
BUSY_SHARE = 0.5  # of a processor
MOST_NAMES = 3


@dataclass(frozen=True)
class Seen:
    """A rank as seen at its last two looks.

    Attributes:
        sample: the last look.
        time: the time of the last look, by the node's clock.
        cpu_share: CPU use of all its processes between the two looks, as a share of one processor.
        main_share: the same of the thread that runs the program.
        ahead_s: how far the node's clock is ahead of this machine's.
    """

    sample: RankSample
    time: float
    cpu_share: float = 0.0
    main_share: float = 0.0
    ahead_s: float = 0.0

    @property
    def is_in_collective(self) -> bool:
        """Whether a collective is in progress."""
        return self.sample.collective is not None and bool(self.sample.collective.words)

    @property
    def is_computing(self) -> bool:
        """Whether the rank computes; other threads than the program's may run a collective at the same time."""
        if self.is_in_collective:
            return self.main_share >= BUSY_SHARE
        return self.sample.state == "R" or self.cpu_share >= BUSY_SHARE


def judge(
    seen: Seen,
    others: Mapping[str, Seen],
    exit_code: int | None,
    silent_s: float,
    *,
    is_running: bool,
    restarts: int = 0,
) -> tuple[str, str]:
    """Return what a rank is doing: one of RANK_STATES, and details, which may be empty.

    Args:
        seen: the looks at the rank.
        others: the ranks that its collective waits for, by name.
        exit_code: its exit code if it has ended for good.
        silent_s: how long its node has been silent; 0 if that is not unusual.
        is_running: whether ranks have been started.
        restarts: how often the rank has been restarted.
    """
    if exit_code is not None:
        return _ended(exit_code)
    if silent_s:
        return "silent", f"for {silent_s:.0f} s"
    sample = seen.sample
    if sample.state == NO_STATE:
        return ("restarting" if is_running and restarts else "starting"), ""
    if sample.state in "Tt":
        return "stopped", "kill -CONT lets it go on" if sample.state == "T" else "by a debugger"
    words = sample.collective.words if sample.collective else ""
    if seen.is_computing:
        return "computing", words
    if words:
        late = _late(seen, others)
        return ("waiting", f"for {late}: {words}") if late else ("collective", words)
    return "waiting", "for a disk or a device" if sample.state == "D" else ""


def _ended(exit_code: int) -> tuple[str, str]:
    if exit_code == LOST:
        return "lost", ""
    return ("ended", "") if exit_code == 0 else ("failed", f"exit code {exit_code}")


def _late(seen: Seen, others: Mapping[str, Seen]) -> str:
    """Return the ranks that had not begun this rank's collective at a last look taken after this rank began it."""
    mine = seen.sample.collective
    if mine is None:
        return ""
    began_at = mine.began_at - seen.ahead_s
    late = [
        name
        for name, other in others.items()
        if (theirs := other.sample.collective) is not None
        and theirs.begun < mine.begun
        and other.time - other.ahead_s >= began_at
    ]
    return first_names(late, MOST_NAMES)
