"""Backend `cluster`: runs `cluster.launch` as a command, because node/ never imports cluster/.

How a fit reaches the nodes: `trainer.py` writes its order into a folder (`fit_order.py`); this module starts
`cluster.launch --fit FOLDER -- SCRIPT`, which sends folder and script (`fit_program` in cluster/run/program.py,
cluster/run/staging.py); each rank runs the script again up to its `fit` (`script_rank.py`), which finds the order.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from node.base.options import OptionError
from node.exogym.local import STARTED_IN, project_path
from protocol.fit_order import ATTACHED
from protocol.rank import EXIT_USAGE


class Launched(NamedTuple):
    """How cluster.launch ended."""

    exit_code: int
    folder: Path | None
    """The run's folder, also if the run failed; None if the launcher did not name it."""

    def run_folder(self) -> Path:
        """Return the folder of a run that succeeded.

        Raises:
            OptionError: the launcher refused.
            RuntimeError: the run or the cluster failed; the launcher has printed how.
        """
        if self.exit_code == EXIT_USAGE:
            raise OptionError("cluster.launch refused; its words are above")
        if self.exit_code != 0 or self.folder is None:
            where = f", the run's files in {self.folder}" if self.folder else ""
            raise RuntimeError(
                f"cluster.launch ended with exit code {self.exit_code}; its words are above{where}"
            )
        return self.folder


def launch_ranks(
    order: Path, words: Sequence[str], num_nodes: int, options: Sequence[str]
) -> Launched:
    """Run a script again on the nodes of a cluster; their output goes to standard error.

    Args:
        order: the folder that tells the ranks what to do (node/exogym/fit_order.py).
        words: the script and its arguments, or `-m` and a module.
        num_nodes: number of nodes, one rank each.
        options: further options of cluster.launch.

    Raises:
        OptionError: the launcher is not here.
    """
    path = project_path(os.environ)
    if not _launcher_is_in(path):
        raise OptionError(
            "backend='cluster' needs the package cluster/, and Docker: neither is in a node"
        )
    command = [sys.executable, "-m", "cluster.launch", "--json", "--nodes", str(num_nodes)]
    command += [*options, ATTACHED, "--fit", str(order), "--", *words]
    exit_code, document = _run(command, os.environ | {"PYTHONPATH": path})
    return Launched(exit_code, _folder_in(document))


def _folder_in(document: str) -> Path | None:
    """Return the run's folder; None if the launcher ended without a document, or with that of a broken link."""
    try:
        return Path(json.loads(document)["folder"])
    except (ValueError, KeyError, TypeError):
        return None


def _run(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and standard output. If interrupted, let it stop its ranks first."""
    # In a session of its own, so that Ctrl-C reaches only this process, which passes it on once. Its standard input
    # stays open while it runs, or until this process is killed: it ends when that closes.
    with subprocess.Popen(
        command,
        cwd=STARTED_IN,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launch:
        assert launch.stdout is not None
        try:
            document = launch.stdout.read()
            launch.wait()
        except BaseException:
            launch.terminate()
            launch.wait()
            raise
    return launch.returncode, document


def _launcher_is_in(path: str) -> bool:
    if importlib.util.find_spec("cluster") is not None:
        return True
    return any(
        (Path(folder) / "cluster" / "launch.py").is_file() for folder in path.split(os.pathsep)
    )
