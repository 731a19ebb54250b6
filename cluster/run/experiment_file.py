"""Reads experiment.yml, a launch written by a user; its keys stand for the flags of `python -m cluster.launch`.

    kind: experiment                 # an earlier run's run.yml has `kind: run`
    nodes: 4
    profile: mobile
    options: {strategy: diloco, set: {H: 20}, steps: 200}      # of node.train, each --KEY VALUE, or --KEY NAME=VALUE
    schedule:
      - {at: step 20, link: node1:node2, loss_pct: 2, for: 10s}

`program: [train.py, --epochs, 2]` runs a script of your own instead of node.train. A number in place of a word is what
stands there (010, 1_000), as on the command line. Paths are relative to the file's folder. A flag beside `-f` overrides
its key; what neither sets has its default. examples/experiment.yml has every key.
`KEYS` defines them all, for the parser and the JSON Schema (`experiment_schema`).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.spec import DEFAULT_NAME, DEFAULT_NODES, MAX_NODES, MAX_SLOTS, ClusterSpec
from cluster.base.yaml_file import is_file, named_from, read_yaml_and_words
from cluster.engine.resources import ALL, NONE, make_resource_request, split_words
from cluster.links.profiles import load_profile
from cluster.links.topology_file import load_topology
from cluster.run.launch_words import (
    VERIFICATIONS,
    parse_essential_ranks,
    parse_stall_timeout_s,
    parse_verify,
)
from cluster.run.program import OWN_FLAGS
from cluster.run.request import Request
from cluster.run.results import parse_max_results
from cluster.schedule.events import Event
from cluster.schedule.schedule_file import load_schedule, parse_schedule
from protocol.link import WIRE_CHOICES

KIND, EXPERIMENT, RUN = "kind", "experiment", "run"
RUN_FILE = "run.yml"
HINT = "write it like examples/experiment.yml"
AGAIN = "to repeat a run, name its folder: runs/NAME"
MOST_COUNT = 2**31 - 1
WITHOUT_KEY = {
    "--file": "it names the file",
    "--no-verify": "verify: none says it",
    "--dry-run": "it says whether to launch at all",
    **dict.fromkeys(
        ("--json", "--plain", "--no-live", "--http"), "it says how a run is shown, not what is run"
    ),
}
"""Flags of launch without a key, and the reason; they are given beside the file."""
NOT_OPTIONS = ("dry-run", "run-dir", "help")
"""Flags of node.train that the launcher sets, or that do not train."""
Schedule = tuple[Event, ...]


@dataclass(frozen=True)
class ExperimentFile:
    """The content of an experiment file.

    Attributes:
        path: the file.
        values: name of a parsed flag -> its value; a schedule is its events.
        options: arguments of node.train.
        program: a script of the user's and its arguments; empty: node.train.
    """

    path: Path
    values: Mapping[str, object]
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    def set_over(self, args: object, said: Sequence[str], *, with_program: bool) -> None:
        """Set the file's values in parsed flags, except for flags given on the command line.

        Args:
            args: the parsed flags; the file overrides values that came from environment variables.
            said: the flags given on the command line.
            with_program: whether the file's program is used, and thus its `folder`.
        """
        for name, key in KEYS.items():
            is_wanted = with_program or name != "folder"
            if key.dest in self.values and key.flag not in said and is_wanted:
                setattr(args, key.dest, self.values[key.dest])


Read = Callable[[Any, Path], object]


@dataclass(frozen=True)
class Key:
    """One key of the file.

    Attributes:
        flag: the equivalent flag of launch; empty if it is the words behind `--` or node.train's own flags.
        kind: the kind of its value.
        meaning: description shown by editors.
        check: the same validation as the flag's; raises UsageError.
        schema: JSON Schema keywords beyond those of its kind.
    """

    flag: str
    kind: "Kind"
    meaning: str
    check: Callable[[Any], object] | None = None
    schema: Mapping[str, object] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        """The name of the parsed flag."""
        return self.flag[2:].replace("-", "_")

    def read(self, value: object, folder: Path) -> object:
        """Return the value in the flag's form; paths are relative to `folder`.

        Raises:
            UsageError: the value is invalid.
        """
        found = self.kind.read(value, folder)
        if self.check is not None:
            self.check(found)
        return found


@dataclass(frozen=True)
class Kind:
    """A kind of value: its JSON Schema, the function that reads it, and whether that gets numbers as words."""

    schema: Mapping[str, object]
    read: Read
    as_words: bool = False


def read_experiment_file(path: Path) -> ExperimentFile | None:
    """Read an experiment; return None if the path is an earlier run: its folder, or its run.yml.

    Raises:
        UsageError: it is neither, or a key or value is invalid; the message names path and key.
    """
    is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for invalid names
    if is_folder or (path.name == RUN_FILE and not is_file(path)):
        return None
    document, words = read_yaml_and_words(path, f"{HINT}; {AGAIN}")
    kind = document.get(KIND) if isinstance(document, dict) else None
    if isinstance(document, dict) and isinstance(words, dict) and kind == EXPERIMENT:
        return _parse(path, _by_name(document), _by_name(words))
    if path.name == RUN_FILE and kind in (RUN, None):  # older runs have no kind
        return None
    raise UsageError(
        f"{path}: {KIND} is {shown(kind)}",
        f"{KIND}: {EXPERIMENT}; a sweep: python -m cluster.sweep FILE; {AGAIN}",
    )


def _by_name(document: Mapping[object, object]) -> dict[str, object]:
    return {str(key): value for key, value in document.items() if key != KIND}


def _parse(
    path: Path, document: Mapping[str, object], words: Mapping[str, object]
) -> ExperimentFile:
    """Return the experiment of a file; `words` is its document with numbers as words."""
    for name in document:
        if name not in KEYS:
            raise unknown(f"key in {path}:", name, (KIND, *KEYS))
    if "program" in document and "options" in document:
        raise UsageError(
            f"{path}: program and options exclude each other", "put arguments into program"
        )
    given = {name: words[name] if KEYS[name].kind.as_words else document[name] for name in document}
    found = {name: _read_key(path, name, value) for name, value in given.items()}
    values = {KEYS[name].dest: value for name, value in found.items() if KEYS[name].flag}
    program: tuple[str, ...] = found.get("program", ())  # type: ignore[assignment]
    if program and program[0] == "-m":
        values.setdefault("folder", path.parent)
    options: tuple[str, ...] = found.get("options", ())  # type: ignore[assignment]
    return ExperimentFile(path, values, options, program)


def _read_key(path: Path, name: str, value: object) -> object:
    try:
        return KEYS[name].read(value, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {name}: {error.message}", error.hint) from error


def _scalar(value: object, _: Path) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{shown(value)} is no word", "a word, or a number")
    return value


def _whole(value: object, _: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_COUNT:
        raise UsageError(f"{shown(value)} is no whole number", "3")
    return value


def _flag(value: object, _: Path) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{shown(value)} is neither true nor false", "true or false")
    return value


def _verify(value: object, _: Path) -> str:
    return parse_verify(value)


def _named(value: object, folder: Path) -> str:
    return named_from(folder, _scalar(value, folder))


def _path(value: object, folder: Path) -> Path:
    return folder / _scalar(value, folder)


def _joined(value: object, folder: Path) -> str:
    """Join a list of words with commas, as a flag takes it; a single word stays as it is."""
    words = value if isinstance(value, list) else [value]
    if not words:
        raise UsageError("an empty list", "leave it out, or give a value")
    return ",".join(_scalar(word, folder) for word in words)


def _limits(value: object, folder: Path) -> list[str]:
    """Return NODE=VALUE for each node, or all=VALUE for a single value; null becomes none."""
    by_node = value if isinstance(value, dict) else {ALL: value}
    if not by_node:
        raise UsageError("an empty mapping", "{node3: 0.5}, or one value for all nodes")
    said = {node: NONE if one is None else _scalar(one, folder) for node, one in by_node.items()}
    return [f"{node}={one}" for node, one in said.items()]


def _schedule(value: object, folder: Path) -> Schedule:
    if not isinstance(value, str):
        return parse_schedule(value, "", folder, folder)
    path = folder / value
    return load_schedule(path, path.parent)


def _program(value: object, folder: Path) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise UsageError(f"{shown(value)} is no program", "[train.py, --epochs, '2']")
    first, *rest = (_scalar(word, folder) for word in words)
    return (first if first == "-m" else str(folder / first), *rest)


def _options(value: object, folder: Path) -> tuple[str, ...]:
    """Return flags of node.train: {steps: 8, set: {H: 20}} is --steps=8 --set=H=20; true is a bare flag, false none."""
    if not isinstance(value, dict):
        raise UsageError(f"{shown(value)} is no mapping", "{strategy: ddp, steps: 200}")
    words: list[str] = []
    for name, said in value.items():
        if name in NOT_OPTIONS or name in KEYS or not isinstance(name, str) or not name:
            where = (
                "make it a key of its own, beside options"
                if name in KEYS
                else "python -m node.train --help"
            )
            raise UsageError(f"{shown(name)} is no option of a training", where)
        if isinstance(said, dict):
            words += [f"--{name}={inner}={_scalar_word(one, name)}" for inner, one in said.items()]
        elif said is True:
            words.append(f"--{name}")
        elif said is not False:
            words.append(f"--{name}={_option(name, _scalar_word(said, name), folder)}")
    return tuple(words)


def _scalar_word(value: object, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or not value:
        raise UsageError(
            f"{name} is {shown(value)}", "one value; for lists of values: python -m cluster.sweep"
        )
    return value


def _option(name: str, word: str, folder: Path) -> str:
    """Return an option's value; a path on this machine is made relative to the folder."""
    is_own = f"--{name}" in OWN_FLAGS and word.rpartition(":")[0].endswith(".py")
    return str(folder / word) if is_own or name == "resume" else word


def _check_limits(key: str) -> Callable[[list[str]], object]:
    return lambda words: make_resource_request(**{key: split_words(words)})


def _check_wire(word: str) -> None:
    if word not in WIRE_CHOICES:
        raise unknown("wire", word, WIRE_CHOICES)


def _check_image(word: str) -> Request:
    return Request(DEFAULT_NAME, None, None, word, None, make_resource_request())


_WORD: dict[str, object] = {"type": ["string", "number"], "not": {"const": ""}}
_WORDS = {"type": "array", "items": _WORD, "minItems": 1}
_SCALAR: dict[str, object] = {"type": ["string", "number", "boolean"], "not": {"const": ""}}
_LIMIT = {"type": ["string", "number", "null"], "not": {"const": ""}}
_BY_NODE = {"type": "object", "minProperties": 1, "additionalProperties": _LIMIT}
_OPTION = {"anyOf": [_SCALAR, {"type": "object", "additionalProperties": _SCALAR}]}
WORD = Kind(_WORD, _scalar, as_words=True)
NAMED = Kind(_WORD, _named, as_words=True)
PATH = Kind(_WORD, _path, as_words=True)
WHOLE = Kind({"type": "integer", "minimum": -MOST_COUNT, "maximum": MOST_COUNT}, _whole)
FLAG = Kind({"type": "boolean"}, _flag)
VERIFY = Kind({"enum": [True, False, *VERIFICATIONS]}, _verify)
JOINED = Kind({"anyOf": [_WORD, _WORDS]}, _joined, as_words=True)
LIMITS_BY_NODE = Kind({"anyOf": [_LIMIT, _BY_NODE]}, _limits, as_words=True)
SCHEDULE = Kind({}, _schedule)  # experiment_schema adds the schema
PROGRAM = Kind({"anyOf": [_WORDS, {"type": "string", "pattern": r"\S"}]}, _program, as_words=True)
# experiment_schema adds which names are refused, as these include KEYS.
OPTIONS = Kind({"type": "object", "additionalProperties": _OPTION}, _options, as_words=True)

KEYS: dict[str, Key] = {
    "name": Key("--name", WORD, "the cluster", ClusterSpec, {"pattern": "^[a-z][a-z0-9-]{0,30}$"}),
    "nodes": Key(
        "--nodes",
        WHOLE,
        f"how many; left out: as many as there are, or {DEFAULT_NODES}",
        lambda size: ClusterSpec(size=size),
        {"minimum": 1, "maximum": MAX_NODES},
    ),
    "slot": Key(
        "--slot",
        WHOLE,
        "decides subnet and ports; left out: the first that is free",
        lambda slot: ClusterSpec(slot=slot),
        {"minimum": 0, "maximum": MAX_SLOTS - 1},
    ),
    "hosts": Key("--hosts", PATH, "a hosts.yml: the machines to place nodes on"),
    "image": Key("--image", WORD, "one of your own, built FROM gradwire-node", _check_image),
    "cpus": Key(
        "--cpus",
        LIMITS_BY_NODE,
        "processors that a node may use: 1, {node3: 0.5}",
        _check_limits("cpus"),
    ),
    "memory": Key(
        "--memory",
        LIMITS_BY_NODE,
        "that a node may use: 1g, {node2: 512m}",
        _check_limits("memory"),
    ),
    "gpus": Key("--gpus", LIMITS_BY_NODE, 'all, or by number: {node1: "0"}', _check_limits("gpus")),
    "profile": Key("--profile", NAMED, "of the links: a shipped one, or a file", load_profile),
    "topology": Key("--topology", NAMED, "full, ring, star, or a file", load_topology),
    "link_seed": Key("--link-seed", WHOLE, "draws the links"),
    "wire": Key(
        "--wire", WORD, "what delays and drops packets", _check_wire, {"enum": list(WIRE_CHOICES)}
    ),
    "isolated": Key("--isolated", FLAG, "nodes without a link cannot reach each other"),
    "options": Key("", OPTIONS, "of node.train: strategy, task, steps, seed, set, …"),
    "program": Key("", PROGRAM, "a script of your own and its arguments, or -m and a module"),
    "folder": Key("--folder", PATH, "what is sent with your program; left out: its own folder"),
    "nproc_per_node": Key("--nproc-per-node", WHOLE, "ranks on each node", None, {"minimum": 1}),
    "rank_order": Key("--rank-order", JOINED, "nodes in rank order, or `best`"),
    "essential_ranks": Key(
        "--essential-ranks",
        JOINED,
        "ranks without which your program cannot go on; left out: all",
        parse_essential_ranks,
    ),
    "max_restarts": Key(
        "--max-restarts", WHOLE, "of each rank that is not essential", None, {"minimum": 0}
    ),
    "max_results": Key(
        "--max-results", WORD, "limit of what is fetched from each node: 500m", parse_max_results
    ),
    "shared": Key("--shared", FLAG, "give all ranks a shared folder, which is fetched at the end"),
    "stall_timeout": Key(
        "--stall-timeout",
        WORD,
        "end the run after this long without activity: 2m; none: never",
        parse_stall_timeout_s,
    ),
    "schedule": Key("--schedule", SCHEDULE, "changes during the run: a file, or a list of events"),
    "verify": Key(
        "--verify",
        VERIFY,
        "whether links are measured first: look (as true), full, or none (as false)",
    ),
    "allow_undecided": Key(
        "--allow-undecided",
        FLAG,
        "run even if the host is too busy to decide whether some links are as requested",
    ),
}
"""Every key of the file but `kind` -> its definition."""
