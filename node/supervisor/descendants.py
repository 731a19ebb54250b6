"""Kills all descendants of a rank when its run ends, in whatever session they hide.

Works by Linux alone: whose parent has ended becomes a child of the nearest ancestor that asked for it (prctl(2)).
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
    """From now on all that descends from this process stays so, also when its own parent ends."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Of a new process, before it becomes what it shall be: SIGKILL when the thread that made it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap_orphans(child: int) -> None:
    """Forget the adopted processes that have ended; `child` is somebody else's to wait for."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, options)) and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)


def kill_descendants() -> None:
    """Kill whatever descends from this process, and wait until it is gone; nobody else may wait for it any more."""
    deadline = time.monotonic() + KILL_TIMEOUT_S  # one that the kernel holds (D) may stay
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(LOOK_INTERVAL_S)


def descendants(ancestor: int) -> list[int]:
    """The pids of all that descends from a process."""
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
    """Kill what ranks of other runs left behind whose supervisors were killed; returns the words of their commands.

    Told by their environment, which all that a rank starts inherits, and by living in this very container: a host sees
    the ranks of all its nodes. The caller holds the node for this run.
    """
    killed = []
    here = (PROC / "self" / "ns" / "pid").readlink()
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is none of ours
            is_here = (path / "ns" / "pid").readlink() == here
            if is_here and _run_of((path / "environ").read_bytes()) not in ("", run):
                words = (path / "cmdline").read_bytes().split(b"\0")
                os.kill(int(path.name), signal.SIGKILL)
                killed.append(b" ".join(words).decode(errors="replace").strip())
    return killed


def _run_of(environ: bytes) -> str:
    """Whose rank has this environment; empty where the launcher did not make it."""
    values = dict(word.partition(b"=")[::2] for word in environ.split(b"\0"))
    run = values.get(RUN_ID.encode(), b"").decode(errors="replace")
    return run if values.get(RUN_DIR.encode(), b"").decode(errors="replace") == run_dir(run) else ""


def _parent(stat: str) -> int:
    """proc(5): the second field, the name in brackets, may hold anything; then state and parent."""
    return int(stat.rpartition(")")[2].split()[1])
