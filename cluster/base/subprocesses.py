"""Runs a program on this machine with a timeout."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.base.errors import ClusterError

# Generous: it is only for a program, or an engine behind it, that hangs.
TIMEOUT_S = 120.0


def run_bounded(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its exit code, standard output and standard error.

    Raises:
        ClusterError: it has not ended within TIMEOUT_S.
    """
    try:
        return subprocess.run(
            argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"`{shlex.join(argv)}` has not answered for {TIMEOUT_S:.0f} s",
            "try it by hand; where it is docker: python -m cluster.doctor",
        ) from error
