"""Makes the ranks of a stalled run on this node print the stack of each thread, and ends them.

    python3 -S -m node.supervisor.stacks hold RUN
    python3 -S -m node.supervisor.stacks end RUN

`hold` stops them (SIGSTOP), so that none sees another one's end; then `end` asks all of them where they stand. Ranks
run with PYTHONFAULTHANDLER: at SIGABRT Python itself writes the stacks to standard error, also of threads that wait
in a library, and ends. Programs that are not Python are left alone.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

from node.supervisor.rank_states import PROC, Process, find_ranks

HOLD = "hold"
MOST_PROCESSES = 16  # of each rank, which may also have data loaders
TIMEOUT_S, LOOK_INTERVAL_S = 3.0, 0.05


def main() -> int:
    """Stop the processes, or end them and wait until they are gone."""
    action, run = sys.argv[1:]
    pids = list(chain.from_iterable(map(_pythons, find_ranks(run).values())))
    if action == HOLD:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return 0
    _end(pids)
    return 0


def _end(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))  # nobody needs a core dump
            os.kill(pid, signal.SIGABRT)
            os.kill(pid, signal.SIGCONT)  # a stopped process gets SIGABRT only then
    deadline = time.monotonic() + TIMEOUT_S
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(LOOK_INTERVAL_S)


def _pythons(processes: list[Process]) -> Iterator[int]:
    """Yield the pids of those that run Python, the first process last: with it all others end."""
    for process in reversed(processes[:MOST_PROCESSES]):
        with suppress(OSError):  # it has ended
            if (PROC / str(process.pid) / "exe").readlink().name.startswith("python"):
                yield process.pid


def _runs(pid: int) -> bool:
    try:
        return " Z " not in (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
