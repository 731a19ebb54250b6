"""The program that a launch runs, `node.train` or any of the user's: checked, resolved, packed.

The program's folder is sent to every node, whole; there the program runs in its copy of it.
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
from cluster.base.subprocesses import run_bounded
from cluster.base.yaml_file import is_file
from cluster.run.checkpoints import find_checkpoints
from protocol.fit_order import ORDER_FILE, FitOrder
from protocol.places import FIT_FOLDER, RESUME_FOLDER
from protocol.rank import EXIT_USAGE
from protocol.reader import FormatError, parse
from protocol.training import Training, read_training

NODE_TRAIN = ("python3", "-m", "node.train")
NO_STRATEGY = "none"
OWN_FLAGS = ("--strategy", "--task")  # whose value may be FILE.py:NAME
MAX_FOLDER_BYTES = 200 * 10**6
NOT_SENT = {
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradwire",
    "runs",
}
# Keys and passwords: files or folders, also where a link leads to one.
SECRETS = {".ssh", ".aws", ".gnupg", ".env", ".netrc"}


@dataclass(frozen=True)
class Program:
    """What every rank runs.

    Attributes:
        name: for the run folder: the strategy, or the script.
        argv: the command on a node.
        folder: what is sent to every node, and the current folder there; None sends nothing.
        config: the training's resolved configuration, all of it, where it is ours.
        resume: the folder of a run whose checkpoints go back to the nodes, to RESUME_FOLDER there.
        order: the folder of what Trainer.fit tells its ranks (protocol/fit_order.py), which goes to FIT_FOLDER there.
        essential_ranks: those without which the run cannot go on; None: all.
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
        """Whether anything goes to the nodes first."""
        return self.folder is not None or self.resume is not None

    @property
    def training(self) -> Training:
        """What its configuration says to a launcher; the defaults, where it is a program of the user's own.

        Raises:
            UsageError: it is none: a run.yml may say anything.
        """
        try:
            return read_training(self.config)
        except FormatError as error:
            raise UsageError(f"the configuration of the training: {error}") from None

    @property
    def needed_packages(self) -> Mapping[str, str]:
        """Python packages that not every node image has, each with what needs it."""
        return self.training.needed_packages


def training(args: Sequence[str], folder: Path | None = None, ranks: int = 1) -> Program:
    """`python -m node.train` with these arguments, checked before anything is started.

    With a strategy or a task of the user's own (`--strategy ./mine.py:Mine`) its folder, or `folder`, is sent. Some
    tasks (ppo) want to know how many ranks there will be.

    Raises:
        UsageError: an option, strategy or task that does not exist, a folder that is too large to send.
    """
    _check_words(args, folder)
    own, rest = _split_own(args)
    if not own:
        if folder is not None:
            raise UsageError(
                "--folder without a program, strategy or task of your own", "leave it out"
            )
        config = _resolve(args, ranks)
        return _trained((*NODE_TRAIN, *args), config)
    here = [word for flag, (file, name) in own.items() for word in (flag, f"{file}:{name}")]
    config = _resolve([*rest, *here], ranks)
    folder = folder or _common_folder([file for file, _ in own.values()])
    there = []
    for flag, (file, name) in own.items():
        folder, place = _place(file, folder)
        there += [flag, f"{place}:{name}"]
    return _trained((*NODE_TRAIN, *rest, *there), config, folder)


def _name(training: Training) -> str:
    """What a run folder is called by: the strategy; the task where one rank learns alone."""
    name = training.task if training.strategy == NO_STRATEGY else training.strategy
    return name.rpartition(":")[2]


def _trained(
    argv: tuple[str, ...], config: Mapping[str, object], folder: Path | None = None
) -> Program:
    """A training, with the ranks that it names essential, and the checkpoints that --resume names.

    Raises:
        UsageError: there are none.
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
    """The folder of a run that has left checkpoints here.

    Raises:
        UsageError: there are none, or they are too large to send.
    """
    folder = Path(run).resolve()
    if not find_checkpoints(folder):
        raise UsageError(
            f"no checkpoints in {folder}",
            "a run with --checkpoint-every N leaves them in its folder",
        )
    return folder


def user_program(
    words: Sequence[str],
    folder: Path | None = None,
    essential_ranks: Collection[int] | None = None,
) -> Program:
    """What stands behind `--`: `train.py ARGS…` or `-m package.module ARGS…`.

    Args:
        words: as they stand there.
        folder: to be sent; None: the script's own, or the current one.
        essential_ranks: those without which it cannot go on, while others are started again where they fail; None: all.

    Raises:
        UsageError: no such script or module, a folder that is too large to send.
    """
    _check_words(words, folder)
    program = _module(words, folder) if words[0] == "-m" else _script(words, folder)
    if essential_ranks is None:
        return program
    return replace(program, essential_ranks=frozenset(essential_ranks))


def fit_program(words: Sequence[str], folder: Path | None, order: Path) -> Program:
    """A script of the user's that has called Trainer.fit, to be run again as its ranks (node.exogym.script_rank).

    Raises:
        UsageError: see user_program; or there is no such order, or none of the checkpoints that it names.
    """
    file, hint = order / ORDER_FILE, "--fit is for Trainer.fit of node.exogym"
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
    """The folder as a tar archive, without what no node needs.

    Raises:
        ClusterError: a file cannot be read, or vanishes meanwhile.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        for path in _files(folder):
            try:
                tar.add(path, arcname=str(path.relative_to(folder)), recursive=False)
            except (OSError, tarfile.TarError) as error:  # it changes while we read it
                words = error.strerror if isinstance(error, OSError) else str(error)
                raise ClusterError(
                    f"{path} could not be sent: {words}", "wait until nobody writes there"
                ) from error
    return archive.getvalue()


def folder_digest(folder: Path) -> str:
    """By what is in it, of what would be sent: names and contents.

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
    """What is the user's own, by flag: a file and a name in it; and all other arguments."""
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
    """The folder that holds all files, each in it or below.

    Raises:
        UsageError: they have little in common, so that it would be a large one.
    """
    folders = {file.parent for file in files}
    if len(folders) > 1:
        raise UsageError(
            f"{' and '.join(map(str, files))} are in different folders",
            "--folder names one that holds both",
        )
    return folders.pop()


def _resolve(args: Sequence[str], ranks: int) -> dict[str, object]:
    """The configuration that these arguments of node.train make, on the first of so many ranks."""
    command = [sys.executable, *NODE_TRAIN[1:], *args, "--dry-run"]
    own = {
        "RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "not yet known",
        "MASTER_PORT": "1",
    }
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith("LOCAL_")
    } | own
    check = run_bounded(command, cwd=CODE_DIR, env=environ)
    if check.returncode == EXIT_USAGE:
        words = check.stderr.strip().removeprefix("node.train: error: ")
        raise UsageError(words, "python -m node.train --help lists strategies and options")
    if check.returncode != 0:
        raise ClusterError(f"node.train --dry-run failed:\n{check.stderr}")
    config: dict[str, object] = json.loads(check.stdout)
    return config


def _check_words(words: Sequence[str], folder: Path | None) -> None:
    """Refuse what no argument and no path can be here: a file of YAML may have letters that the locale has not.

    Raises:
        UsageError: names the word.
    """
    for word in [*words, str(folder or "")]:
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise UsageError(
                f"{ascii(word)} has a letter that this locale lacks", "export LC_ALL=C.UTF-8"
            ) from None


def _place(file: Path, folder: Path | None) -> tuple[Path, PurePosixPath]:
    """The folder to send with a file, and where the file is in it.

    Raises:
        UsageError: the file is not in it, or the folder is too large.
    """
    file = file.resolve()
    folder = (folder or file.parent).resolve()
    if not file.is_relative_to(folder):
        raise UsageError(f"{file} is not in {folder}", "--folder names one that holds it")
    _check_folder(folder)
    return folder, PurePosixPath(file.relative_to(folder))


def _script(words: Sequence[str], folder: Path | None) -> Program:
    script = Path(words[0])
    if not is_file(script):
        raise UsageError(
            f"no script {words[0]} in {Path.cwd()}", "a module is `-- -m package.module`"
        )
    folder, place = _place(script, folder)
    return Program(script.stem, ("python3", str(place), *words[1:]), folder)


def _module(words: Sequence[str], folder: Path | None) -> Program:
    if len(words) < 2:
        raise UsageError("-m without a module", "-- -m package.module ARGS")
    folder = (folder or Path.cwd()).resolve()
    parts = words[1].split(".")
    is_name = all(parts) and os.sep not in words[1]
    place = folder.joinpath(*parts) if is_name else folder
    if not is_name or not (is_file(place.with_suffix(".py")) or _is_folder(place)):
        raise UsageError(f"no module {words[1]} in {folder}", "start there, or --folder FOLDER")
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
    """All files to send, also those behind links: what a link points to is not on the nodes."""
    for top, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        below = (Path(top, name) for name in sorted(set(folders) - NOT_SENT))
        folders[:] = [path.name for path in below if not _is_left_out(path)]
        paths = (Path(top, name) for name in sorted(names))
        yield from (path for path in paths if is_file(path) and not _is_secret(path))


def _is_left_out(folder: Path) -> bool:
    """Whether a folder stays here: a loop, a secret, or a virtual environment, by whatever name."""
    return _is_loop(folder) or _is_secret(folder) or is_file(folder / "pyvenv.cfg")


def _is_secret(path: Path) -> bool:
    """Whether it is what must never reach a node, by its own name or by those on the way that a link takes."""
    parts = path.resolve().parts if path.is_symlink() else ()
    return not SECRETS.isdisjoint({path.name, *parts})


def _refuse(error: OSError) -> None:
    raise _unreadable(Path(error.filename)) from error


def _unreadable(path: Path) -> UsageError:
    return UsageError(
        f"{path} cannot be read, and would be sent to every node",
        "put the program in a folder of its own, or name another: --folder FOLDER",
    )


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for names that none can have


def _is_loop(folder: Path) -> bool:
    """Whether a link leads back to a folder on the way to it."""
    if not folder.is_symlink():
        return False
    target = folder.resolve()
    return any(parent.resolve() == target for parent in folder.parents)
