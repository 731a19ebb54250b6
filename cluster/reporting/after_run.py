"""Has every launch leave a report in its run folder. Nothing that happens here harms the run.

In a process of its own, with a timeout: a renderer that crashes, hangs or takes all memory is not the launcher's.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cluster.base.errors import ClusterError
from cluster.base.paths import CODE_DIR
from cluster.base.subprocesses import run_bounded


def report_run(folder: Path, say: Callable[[str], None], *, is_named: bool = False) -> None:
    """Write the report of a run that has ended, however it did; where there is none one line says why.

    Args:
        folder: the run's.
        say: takes that line.
        is_named: whether to say where the report is: nobody else will.
    """
    command = [sys.executable, "-m", "cluster.report", str(folder.resolve())]
    try:
        done = run_bounded(command, cwd=CODE_DIR)
    except (ClusterError, OSError, ValueError) as error:
        say(f"no report: {str(error).splitlines()[0]}")
        return
    found = report_file(folder)
    said = done.stderr.strip().splitlines()
    if done.returncode != 0 or found is None:
        say(f"no report: {said[0].removeprefix('error: ') if said else f'exit {done.returncode}'}")
        return
    for line in said[:1]:
        say(line)
    if is_named:
        say(f"report {found}")


def report_file(folder: Path) -> Path | None:
    """The most readable one that a run has; None where it has none."""
    files = (folder / f"report.{ending}" for ending in ("html", "md"))
    return next((path for path in files if path.is_file()), None)
