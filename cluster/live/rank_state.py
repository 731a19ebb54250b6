"""Tells in a word what a rank is doing, by what was seen of it and of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.live.sample import NO_STATE, RankSample
from protocol.rank import LOST

STATES = (
    *("starting", "computing", "collective", "waiting", "stopped", "silent"),
    *("restarting", "ended", "failed", "lost"),
)
BUSY_SHARE = 0.5  # of a processor
MOST_NAMES = 3


@dataclass(frozen=True)
class Seen:
    """What was seen of a rank at two looks.

    Attributes:
        sample: the last look.
        time: of it, by the node's clock.
        cpu_share: of one processor, between the two, of all its processes.
        main_share: likewise, of the thread that runs the program.
    """

    sample: RankSample
    time: float
    cpu_share: float = 0.0
    main_share: float = 0.0

    @property
    def is_in_collective(self) -> bool:
        """Whether one is under way."""
        return self.sample.collective is not None and bool(self.sample.collective.words)

    @property
    def is_computing(self) -> bool:
        """Whether it computes; a collective may be under way beside that, in other threads than the program's."""
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
    """What a rank is doing: one of STATES, and more of it, which may be empty.

    Args:
        seen: of the rank.
        others: by name, those whose part its collectives need.
        exit_code: where it has ended for good.
        silent_s: for how long its node has not been heard of, if that is unusual.
        is_running: whether ranks have been started.
        restarts: how often it has been started again.
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
    """Who had not begun this rank's collective when last seen, and was seen since this rank began it."""
    mine = seen.sample.collective
    if mine is None:
        return ""
    late = [
        name
        for name, other in others.items()
        if (theirs := other.sample.collective) is not None
        and theirs.begun < mine.begun
        and other.time >= mine.began_at
    ]
    more = f" and {len(late) - MOST_NAMES} more" if len(late) > MOST_NAMES else ""
    return ", ".join(late[:MOST_NAMES]) + more
