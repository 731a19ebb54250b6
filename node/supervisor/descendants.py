"""Kills all descendants of a rank when its run ends, in whatever session they are.

Needs Linux alone: a process whose parent has ended becomes a child of the nearest ancestor that asked for it
(prctl(2)).
"""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from protocol.places import run_dir
from protocol.rank_variables import RUN_DIR, RUN_ID

PROC = Path("/proc")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KILL_TIMEOUT_S = 5.0
LOOK_INTERVAL_S = 0.01
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_descendants() -> None:
    """Keep all descendants of this process its descendants from now on, even if their own parents end."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Make the kernel kill this new process, before it executes a program, when the thread that created it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap_orphans(child: int) -> None:
    """Reap adopted processes that have ended, except `child`, for which another caller waits."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, options)) and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)


def kill_descendants() -> None:
    """Kill all descendants of this process and wait until they are gone; nobody else may wait for them any more."""
    deadline = time.monotonic() + KILL_TIMEOUT_S  # an unkillable process (D) may stay
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(LOOK_INTERVAL_S)


def descendants(ancestor: int) -> list[int]:
    """Return the pids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            children.setdefault(_parent(path.read_text()), []).append(int(path.parent.name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def kill_leftovers(run: str) -> list[str]:
    """Kill what ranks of other runs left behind after their supervisors were killed; returns the command lines.

    They are identified by their environment, which everything that a rank starts inherits, and by living in this very
    container: a host sees the ranks of all its nodes. The caller holds the node for this run.
    """
    killed = []
    here = (PROC / "self" / "ns" / "pid").readlink()
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is not ours
            is_here = (path / "ns" / "pid").readlink() == here
            if is_here and _run_of((path / "environ").read_bytes()) not in ("", run):
                words = (path / "cmdline").read_bytes().split(b"\0")
                os.kill(int(path.name), signal.SIGKILL)
                killed.append(b" ".join(words).decode(errors="replace").strip())
    return killed


def _run_of(environ: bytes) -> str:
    """Return the run whose rank has this environment; empty if the launcher did not create it."""
    values = dict(word.partition(b"=")[::2] for word in environ.split(b"\0"))
    run = values.get(RUN_ID.encode(), b"").decode(errors="replace")
    return run if values.get(RUN_DIR.encode(), b"").decode(errors="replace") == run_dir(run) else ""


def _parent(stat: str) -> int:
    """Parse the parent of a process: the name in brackets may hold anything; state and parent follow (proc(5))."""
    return int(stat.rpartition(")")[2].split()[1])
