"""Backend `local`: ranks as processes on this machine, with torchrun's environment. No Docker.

It does not use torchrun itself: Debian's asks torch for a libuv that Debian's torch lacks, and after the error of one
rank it prints a page of its own.
"""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from node.base.options import OptionError
from node.supervisor.error_file import is_bystander, read_error
from protocol.fit_order import ATTACHED
from protocol.places import error_file
from protocol.rank import EXIT_USAGE, GRACE_S, guilt
from protocol.rank_variables import ERROR_FILE, RUN_DIR

PROJECT_DIR = Path(__file__).resolve().parents[2]
LOOK_S = 0.02
LAST_WORDS_S = 1.0  # for the other ranks to notice a failure and report it
WITH_A_VALUE = ("-W", "-X")  # options of Python whose values are words of their own


def _folder_now() -> Path:
    """Return the working folder; the root if it has been removed, where nothing relative is found either."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep)


STARTED_IN = _folder_now()
"""The folder at the import: a script may change to another before it calls fit."""


class RankEnd(NamedTuple):
    """How a rank ended."""

    exit_code: int
    """-n for signal n; 0 also if it still ran."""
    time: float
    """When its end was noticed, Unix time."""


def run_ranks(order: Path, words: Sequence[str], num_nodes: int, run_dir: Path) -> None:
    """Run a script again on `num_nodes` ranks, in the folder where it was started, until all have trained.

    Args:
        order: the folder that tells them what to do (node/exogym/fit_order.py).
        words: the script and its arguments, or `-m` and a module.
        num_nodes: number of ranks.
        run_dir: folder for metrics, checkpoints and the model.

    Raises:
        OptionError: a rank found a mistake of the user's.
        RuntimeError: a rank failed; the others are stopped.
    """
    command = [sys.executable, "-m", "node.exogym.script_rank", ATTACHED, str(order), *words]
    port = _free_port()
    ranks = []
    try:
        for rank in range(num_nodes):
            environ = os.environ | _environment(rank, num_nodes, port, run_dir)
            # In sessions of their own, so that Ctrl-C reaches only this process, which stops them. Their standard
            # input stays open until then, or until this process is killed: they end when it closes.
            ranks.append(
                subprocess.Popen(
                    command,
                    cwd=STARTED_IN,
                    env=environ,
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        ended = _wait(ranks)
    finally:
        _stop(ranks)
    if any(end.exit_code for end in ended):
        raise _failure(ended, run_dir)


def own_words() -> list[str]:
    """Return what Python was started with: the script and its arguments, or `-m` and a module and its own.

    Raises:
        OptionError: this is a prompt or a notebook, so there is no file to start again.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        module = spec.name.removesuffix(".__main__")
        names = (module, spec.name, f"-m{module}")
        return ["-m", module, *_arguments(lambda word: word in names)]
    file = getattr(main, "__file__", None)
    if file is None or not Path(STARTED_IN, file).is_file():
        raise OptionError(
            "fit starts your script again on every rank, and at a prompt or in a notebook there is "
            "none: put it into a file, and start that"
        )
    path = STARTED_IN / file
    return [str(path), *_arguments(lambda word: STARTED_IN / word == path)]


def _arguments(is_main: Callable[[str], bool]) -> list[str]:
    """Return the words behind the script or module as Python was started: scripts take some out of sys.argv."""
    for place, (before, word) in enumerate(itertools.pairwise(sys.orig_argv), 2):
        if is_main(word) and before not in WITH_A_VALUE:
            return sys.orig_argv[place:]
    return sys.argv[1:]  # another program has started the script


def new_run_folder(strategy: str) -> Path:
    """Create a new folder under runs/, named after the time and the strategy."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-local-{Path(strategy).name.rpartition(':')[2]}"
    for number in itertools.count(1):
        folder = Path("runs", stem if number == 1 else f"{stem}-{number}").resolve()
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def project_path(environ: Mapping[str, str]) -> str:
    """Return a PYTHONPATH with which this project's packages are found from any folder."""
    return os.pathsep.join(filter(None, [str(PROJECT_DIR), environ.get("PYTHONPATH", "")]))


def _environment(rank: int, size: int, port: int, run_dir: Path) -> dict[str, str]:
    environ = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        ERROR_FILE: str(_error_file(run_dir, rank)),
        RUN_DIR: str(run_dir.resolve()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or "1",
        "PYTHONPATH": project_path(os.environ),
        "PYTHONUNBUFFERED": "1",
    }
    # Otherwise gloo takes the address that this machine's name resolves to, and there may be none.
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if loopback and "GLOO_SOCKET_IFNAME" not in os.environ:
        environ["GLOO_SOCKET_IFNAME"] = loopback[0]
    return environ


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(ranks: Sequence["subprocess.Popen[bytes]"]) -> list[RankEnd]:
    """Wait until all have ended, or until shortly after one failed; those still running count as without a failure."""
    deadline, times = float("inf"), dict.fromkeys(range(len(ranks)), float("inf"))
    while time.monotonic() < deadline and any(rank.poll() is None for rank in ranks):
        for number, rank in enumerate(ranks):
            if rank.poll():
                times[number] = min(times[number], time.time())
                deadline = min(deadline, time.monotonic() + LAST_WORDS_S)
        time.sleep(LOOK_S)
    return [RankEnd(rank.poll() or 0, min(times[n], time.time())) for n, rank in enumerate(ranks)]


def _stop(ranks: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Stop the ranks that still run: SIGTERM, ten seconds, SIGKILL."""
    for rank in ranks:
        rank.terminate()  # no effect if it has ended
    deadline = time.monotonic() + GRACE_S
    for rank in ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
        if rank.stdin is not None:
            rank.stdin.close()


def _failure(ended: Sequence[RankEnd], run_dir: Path) -> Exception:
    """Return the error to raise: of the root cause, which is found as in a cluster (cluster/run/root_cause.py)."""
    failed = [rank for rank, end in enumerate(ended) if end.exit_code]
    errors = {rank: read_error(_error_file(run_dir, rank)) for rank in failed}

    def guilt_of(rank: int) -> tuple[bool, float]:
        error = errors[rank]
        at = min(error.time, ended[rank].time)
        return guilt(is_bystander=is_bystander(error.words), time=at)

    first = min(failed, key=guilt_of)
    message, code = errors[first].words, ended[first].exit_code
    if code == EXIT_USAGE and message:
        return OptionError(message.removeprefix("OptionError: "))
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return RuntimeError(
        f"rank {first} of {len(ended)} failed: {message or how}; its words are above, its files in "
        f"{run_dir.resolve()}"
    )


def _error_file(run_dir: Path, rank: int) -> Path:
    return run_dir.resolve() / error_file(rank)
