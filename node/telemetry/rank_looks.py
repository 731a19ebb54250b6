"""What is seen of the ranks of a run from outside, second by second: state, CPU time, collective in progress.

To find them takes a look at all processes of the node (node/supervisor/rank_states.py). That is done once, again if
one of them is missing, and now and then, because ranks start children. In between only their own files are read.
"""

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node.supervisor.rank_states import PROC, Process, find_note, find_ranks, read_process

FIND_AGAIN_S, MISSING_AGAIN_S = 10.0, 2.0
NOTE_BYTES = 160


class ProcessLook(NamedTuple):
    """What is seen of a rank from outside: see `protocol.telemetry.RankLook`."""

    state: str
    cpu_s: float
    main_s: float
    collective: str


class RankLooks:
    """Looks at the ranks of one run on this node.

    Args:
        run: its name.
        ranks: their numbers.
    """

    def __init__(self, run: str, ranks: Collection[str]) -> None:
        self._run, self._ranks = run, ranks
        self._found: dict[str, list[Process]] = {}
        self._notes: dict[int, int] = {}  # pid of a rank's first process -> descriptor of its note
        self._found_at = -FIND_AGAIN_S

    def look(self) -> dict[str, ProcessLook]:
        """Return what is seen of each rank; a rank without a process is left out."""
        self._find(time.monotonic())
        looks = {rank: self._look_at(found) for rank, found in self._found.items()}
        return {rank: look for rank, look in looks.items() if look}

    def _find(self, now: float) -> None:
        is_missing = any(not self._is_there(rank) for rank in self._ranks)
        if now - self._found_at >= (MISSING_AGAIN_S if is_missing else FIND_AGAIN_S):
            self._found_at = now
            self._found = find_ranks(self._run)
            first = {found[0].pid for found in self._found.values()}
            for pid in self._notes.keys() - first:
                os.close(self._notes.pop(pid))

    def _is_there(self, rank: str) -> bool:
        found = self._found.get(rank, [])
        return bool(found) and _now(found[0]) is not None

    def _look_at(self, found: list[Process]) -> ProcessLook | None:
        there = [now for process in found if (now := _now(process))]
        if not there or there[0].pid != found[0].pid:
            return None
        states = [process.state for process in there]
        stopped = [state for state in states if state in "Tt"]
        return ProcessLook(
            (stopped or (["R"] if "R" in states else states))[0],
            round(sum(process.cpu_s for process in there), 2),
            round(_main_thread_s(found[0].pid), 2),
            self._note(found[0].pid),
        )

    def _note(self, pid: int) -> str:
        """Return what a rank of node.train has noted; empty for other programs."""
        if pid not in self._notes:
            note = find_note(pid)
            if note is None:
                return ""
            with suppress(OSError):
                self._notes[pid] = os.open(note, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(self._notes[pid], NOTE_BYTES, 0).decode(errors="replace").strip()
        except (OSError, KeyError):
            return ""


def _now(process: Process) -> Process | None:
    """Return the same process as it is now; None if it has ended, even if another one has its pid."""
    try:
        now = read_process(PROC / str(process.pid))
    except (OSError, ValueError, IndexError):
        return None
    return now if now.started == process.started and now.state != "Z" else None


def _main_thread_s(pid: int) -> float:
    """Return the CPU time of the main thread, which rests while the rank waits for a collective."""
    try:
        return read_process(Path(f"{PROC}/{pid}/task/{pid}")).cpu_s
    except (OSError, ValueError, IndexError):
        return 0.0
