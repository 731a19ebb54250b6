"""Writes a report to the run folder after every launch. A failure here never harms the run.

The report is made in a separate process with a timeout, so that a renderer that crashes, hangs or exhausts memory does
not affect the launcher.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cluster.base.errors import ClusterError
from cluster.base.paths import CODE_DIR
from cluster.base.processes import run_bounded


def report_run(folder: Path, say: Callable[[str], None], *, is_named: bool = False) -> None:
    """Write the report of a run, however it ended; if that fails, say why in one line.

    Args:
        folder: the run folder.
        say: receives that line.
        is_named: whether to say where the report is, because the caller does not.
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
    """Return the most readable report of a run; None if it has none."""
    files = (folder / f"report.{ending}" for ending in ("html", "md"))
    return next((path for path in files if path.is_file()), None)
