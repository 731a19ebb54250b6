"""Checks, resolves and packs the program that a launch runs: `node.train`, or any program of the user's.

The program's folder is sent to every node, without secrets and what no node needs (not_sent); the program runs in that
copy.
"""

import argparse
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cluster.base.errors import ClusterError, UsageError
from cluster.base.paths import CODE_DIR
from cluster.base.processes import run_bounded
from cluster.base.secrets import without_secret_options
from cluster.base.yaml_file import is_file
from cluster.run.checkpoints import find_checkpoints
from cluster.run.command_words import Words, checked_words, refuse_interpreter
from cluster.run.not_sent import is_left_out, is_secret, refuse_home, refuse_secret
from protocol.fit_order import ORDER_FILE, FitOrder
from protocol.places import FIT_FOLDER, RESUME_FOLDER
from protocol.rank import EXIT_USAGE
from protocol.reader import FormatError, parse
from protocol.training import Training, read_training

NODE_TRAIN = ("python3", "-m", "node.train")
NO_STRATEGY = "none"
SET_BY_LAUNCHER = {
    "--run-dir": "leave it out: what ranks leave is fetched to the run folder, runs/NAME",
    "--nnodes": "--nodes N",
    "--node-rank": "--rank-order NODE,NODE,…",
    **dict.fromkeys(
        ("--master-addr", "--master-port"), "leave it out: the launcher takes the first rank's node"
    ),
}
"""Flags of node.train that the launcher decides -> what to say instead."""
NOT_ON_NODES = ("LOCAL_", "GRADWIRE_", "OMP_NUM_THREADS")
"""Variables of this shell that a node does not have, by their beginnings; the configuration is the one of a node."""
OWN_FLAGS = ("--strategy", "--task")  # their value may be FILE.py:NAME
MAX_FOLDER_BYTES = 200 * 10**6


@dataclass(frozen=True)
class Program:
    """What every rank runs.

    Attributes:
        name: name for the run folder: the strategy, or the script.
        argv: the command on a node.
        folder: the folder sent to every node, and the current folder there; None: nothing is sent.
        config: the complete resolved configuration of node.train, without secrets; empty for other programs.
        resume: folder of the run whose checkpoints are sent to RESUME_FOLDER on the nodes.
        order: folder of Trainer.fit's order to its ranks (protocol/fit_order.py), sent to FIT_FOLDER on the nodes.
        essential_ranks: the ranks without which the run cannot go on; None: all.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    resume: Path | None = None
    order: Path | None = None
    essential_ranks: frozenset[int] | None = None

    @property
    def sends(self) -> bool:
        """Whether anything is sent to the nodes before the start."""
        return self.folder is not None or self.resume is not None

    @property
    def training(self) -> Training:
        """The part of its configuration that a launcher needs; the defaults for a program of the user's own.

        Raises:
            UsageError: the configuration is invalid; it may come from an arbitrary run.yml.
        """
        try:
            return read_training(self.config)
        except FormatError as error:
            raise UsageError(f"the configuration of the training: {error}") from None

    @property
    def needed_packages(self) -> Mapping[str, str]:
        """Python packages that not every node image has -> what needs them."""
        return self.training.needed_packages


def training(args: Words, folder: Path | None = None, ranks: int = 1) -> Program:
    """Return `python -m node.train` with these arguments, checked before anything starts.

    If the strategy or task is the user's own (`--strategy ./mine.py:Mine`), its folder, or `folder`, is sent. Some
    tasks (ppo) need the number of ranks.

    Raises:
        UsageError: an option, strategy or task does not exist, or the folder is too large to send.
    """
    words = checked_words(args, folder)
    _refuse_launcher_flags(words)
    own, rest = _split_own(words)
    if not own:
        if folder is not None:
            raise UsageError(
                "--folder without a program, strategy or task of your own", "leave it out"
            )
        return _trained((*NODE_TRAIN, *words), _resolve(words, ranks))
    here = [word for flag, (file, name) in own.items() for word in (flag, f"{file}:{name}")]
    config = _resolve([*rest, *here], ranks)
    folder = folder or _own_folder(_common_folder([file for file, _ in own.values()]))
    there = []
    for flag, (file, name) in own.items():
        folder, place = _place(file, folder)
        there += [flag, f"{place}:{name}"]
    return _trained((*NODE_TRAIN, *rest, *there), config, folder)


def _name(training: Training) -> str:
    """Return the name for the run folder: the strategy, or the task if one rank learns alone."""
    name = training.task if training.strategy == NO_STRATEGY else training.strategy
    return name.rpartition(":")[2]


def _trained(
    argv: tuple[str, ...], config: Mapping[str, object], folder: Path | None = None
) -> Program:
    """Return a training with its essential ranks, and with the checkpoints that --resume names.

    Raises:
        UsageError: there are no such checkpoints, or they are too large to send.
    """
    program = Program("", argv, folder, config)
    training = program.training
    program = replace(program, name=_name(training))
    if training.essential_ranks is not None:
        program = replace(program, essential_ranks=frozenset(training.essential_ranks))
    if not training.resume:
        return program
    resume = _checkpoints(training.resume)
    return replace(program, argv=(*argv, "--resume", RESUME_FOLDER), resume=resume)


def _checkpoints(run: str) -> Path:
    """Return the folder of a run that has checkpoints on this machine.

    Raises:
        UsageError: there are none, or they are too large to send.
    """
    folder = Path(run).resolve()
    if not find_checkpoints(folder):
        raise UsageError(
            f"no checkpoints in {folder}",
            "name the folder of a run with --checkpoint-every N",
        )
    return folder


def user_program(
    words: Words,
    folder: Path | None = None,
    essential_ranks: Collection[int] | None = None,
) -> Program:
    """Return the program given behind `--`: `train.py ARGS…` or `-m package.module ARGS…`.

    Args:
        words: the words behind `--`.
        folder: the folder to send; None: the script's own, or for a module the current one.
        essential_ranks: the ranks without which it cannot go on; others are restarted if they fail; None: all.

    Raises:
        UsageError: there are no words, there is no such script or module, or the folder is too large to send.
    """
    argv = checked_words(words, folder)
    if not argv:
        raise UsageError("no words are no program", '["train.py", "--epochs", 2]')
    program = _module(argv, folder) if argv[0] == "-m" else _script(argv, folder)
    if essential_ranks is None:
        return program
    return replace(program, essential_ranks=frozenset(essential_ranks))


def fit_program(words: Sequence[str], folder: Path | None, order: Path) -> Program:
    """Return a user's script that has called Trainer.fit, to be run again as its ranks (node.exogym.script_rank).

    Raises:
        UsageError: see user_program; or the order is missing or invalid, or its checkpoints are missing.
    """
    file, hint = order / ORDER_FILE, "leave --fit out: Trainer.fit of node.exogym passes it"
    if not file.is_file():
        raise UsageError(f"no {ORDER_FILE} in {order}", hint)
    program = user_program(words, folder)
    argv = ("python3", "-m", "node.exogym.script_rank", FIT_FOLDER, *program.argv[1:])
    try:
        resume = parse(FitOrder, file.read_bytes(), str(file)).resume
    except FormatError as error:
        raise UsageError(str(error), hint) from None
    return replace(program, argv=argv, order=order, resume=_checkpoints(resume) if resume else None)


def pack(folder: Path) -> bytes:
    """Return the folder as a tar archive, without secrets and what no node needs.

    Raises:
        ClusterError: a file cannot be read, or vanishes while it is packed.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        for path in _files(folder):
            try:
                tar.add(path, arcname=str(path.relative_to(folder)), recursive=False)
            except (OSError, tarfile.TarError) as error:  # the file changed while it was read
                words = error.strerror if isinstance(error, OSError) else str(error)
                raise ClusterError(
                    f"{path} could not be sent: {words}", "wait until nobody writes there"
                ) from error
    return archive.getvalue()


def folder_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files that would be sent.

    Raises:
        ClusterError: a file cannot be read.
    """
    found = hashlib.sha256()
    for path in _files(folder):
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise _unreadable(path) from error
        found.update(f"{path.relative_to(folder)}\0{content}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def _split_own(args: Sequence[str]) -> tuple[dict[str, tuple[Path, str]], list[str]]:
    """Return the user's own strategy and task, by flag, as file and name; and all other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in OWN_FLAGS:
        parser.add_argument(flag, nargs="?", default="", const="")
    found, rest = parser.parse_known_args(list(args))
    own = {}
    for flag in OWN_FLAGS:
        word = getattr(found, flag.strip("-"))
        file, _, name = word.rpartition(":")
        if file.endswith(".py"):
            own[flag] = (Path(file).resolve(), name)
        elif flag in args or word:
            rest += [flag, word] if word else [flag]
    return own, rest


def _common_folder(files: Sequence[Path]) -> Path:
    """Return the folder that all files are in.

    Raises:
        UsageError: they are in different folders; a common parent might be large.
    """
    folders = {file.parent for file in files}
    if len(folders) > 1:
        raise UsageError(
            f"{' and '.join(map(str, files))} are in different folders",
            "name one that holds both: --folder FOLDER",
        )
    return folders.pop()


def _own_folder(folder: Path) -> Path:
    """Return the folder that is sent if none is named."""
    refuse_home(folder)
    return folder


def _resolve(args: Sequence[str], ranks: int) -> dict[str, object]:
    """Return the configuration that node.train makes of these arguments, on rank 0, without secrets."""
    command = [sys.executable, *NODE_TRAIN[1:], *args, "--dry-run"]
    own = {
        "RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "not yet known",
        "MASTER_PORT": "1",
    }
    environ = {k: v for k, v in os.environ.items() if not k.startswith(NOT_ON_NODES)} | own
    check = run_bounded(command, cwd=CODE_DIR, env=environ)
    if check.returncode == EXIT_USAGE:
        words = check.stderr.strip().removeprefix("node.train: error: ")
        raise UsageError(words, "list strategies and options: python -m node.train --help")
    if check.returncode != 0:
        raise ClusterError(f"node.train --dry-run failed:\n{check.stderr}")
    return without_secret_options(json.loads(check.stdout))


def _refuse_launcher_flags(args: Sequence[str]) -> None:
    """Refuse flags of node.train whose values the launcher decides.

    Raises:
        UsageError: names the flag, and what to say instead.
    """
    for flag in (word.partition("=")[0].replace("_", "-") for word in args):
        if flag in SET_BY_LAUNCHER:
            raise UsageError(
                f"{flag} is for node.train without the launcher", SET_BY_LAUNCHER[flag]
            )


def _place(file: Path, folder: Path | None) -> tuple[Path, PurePosixPath]:
    """Return the folder to send with a file, and the path of the file in it.

    Raises:
        UsageError: the file is not in the folder, or the folder is too large.
    """
    file = file.resolve()
    folder = (folder or _own_folder(file.parent)).resolve()
    if not file.is_relative_to(folder):
        raise UsageError(f"{file} is not in {folder}", "name one that holds it: --folder FOLDER")
    _check_folder(folder)
    return folder, PurePosixPath(file.relative_to(folder))


def _script(words: Sequence[str], folder: Path | None) -> Program:
    refuse_interpreter(words)
    script = Path(words[0])
    if not is_file(script):
        raise UsageError(
            f"no script {words[0]} in {Path.cwd()}", "for a module: -- -m package.module"
        )
    folder, place = _place(script, folder)
    return Program(script.stem, ("python3", str(place), *words[1:]), folder)


def _module(words: Sequence[str], folder: Path | None) -> Program:
    if len(words) < 2:
        raise UsageError("-m without a module", "-- -m package.module ARGS")
    folder = (folder or _own_folder(Path.cwd())).resolve()
    parts = words[1].split(".")
    is_name = all(parts) and os.sep not in words[1]
    place = folder.joinpath(*parts) if is_name else folder
    is_folder = is_name and os.path.isdir(place)  # noqa: PTH112 - Path.is_dir raises for invalid names
    if not is_name or not (is_folder or is_file(place.with_suffix(".py"))):
        raise UsageError(
            f"no module {words[1]} in {folder}",
            "start in its folder, or name that: --folder FOLDER",
        )
    _check_folder(folder)
    return Program(words[1].rsplit(".", 1)[-1], ("python3", *words), folder)


def _check_folder(folder: Path) -> None:
    size = 0
    for path in _files(folder):
        if not os.access(path, os.R_OK):
            raise _unreadable(path)
        size += path.stat().st_size
        if size > MAX_FOLDER_BYTES:
            raise UsageError(
                f"{folder} holds more than {MAX_FOLDER_BYTES / 1e6:.0f} MB, too much to send to every node",
                "put the program in a folder of its own, or name a smaller one: --folder FOLDER",
            )


def _files(folder: Path) -> Iterable[Path]:
    """Yield all files to send, also those behind links, whose targets are not on the nodes."""
    refuse_secret(folder)
    for top, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        parent = Path(top).resolve()  # by a link, we may be in another folder than top says
        below = (Path(top, name) for name in sorted(folders))
        folders[:] = [path.name for path in below if not is_left_out(path, parent)]
        paths = (Path(top, name) for name in sorted(names))
        yield from (path for path in paths if is_file(path) and not is_secret(path, parent))


def _refuse(error: OSError) -> None:
    raise _unreadable(Path(error.filename)) from error


def _unreadable(path: Path) -> UsageError:
    return UsageError(
        f"{path} cannot be read, and would be sent to every node",
        "put the program in a folder of its own, or name another: --folder FOLDER",
    )
