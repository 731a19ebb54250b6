"""Processes of this machine: run with a timeout, ended with their parent, told apart although PIDs are reused."""

import ctypes
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.base.errors import ClusterError

# Generous: it is only for a program, or an engine behind it, that hangs.
TIMEOUT_S = 120.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PRCTL = ctypes.CDLL(None).prctl  # loaded here, because nothing may be loaded between fork and exec


class HangingProgram(ClusterError):
    """A program of ours has not ended in time."""


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its exit code, standard output and standard error.

    With `stdin`, that is its standard input; without, it has ours.

    Raises:
        HangingProgram: it has not ended within TIMEOUT_S.
    """
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise HangingProgram(
            f"`{shlex.join(argv)}` has not answered for {TIMEOUT_S:.0f} s",
            "run it by hand; if it is docker: python -m cluster.doctor",
        ) from error


def end_with_parent() -> None:
    """Have the kernel send the child SIGTERM when the thread that started it ends, even if we are killed.

    For `preexec_fn`.
    """
    PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)


def process_started(pid: int) -> str:
    """Return when a process started, in the kernel's clock ticks since boot; '' if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def signal_name(number: int) -> str:
    """Return a signal's name: SIGKILL for 9, SIGRTMIN+N for a real-time signal, which has no other name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = signal.SIGRTMIN.value
        is_real_time = first < number <= signal.SIGRTMAX
        return f"SIGRTMIN+{number - first}" if is_real_time else f"signal {number}"
