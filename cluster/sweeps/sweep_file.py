"""Reads a sweep, like an experiment with lists: single values apply to all of its runs. Pure, but for reading the file.

    kind: sweep                      # may be left out
    nodes: 4
    profile: [mobile, wan]
    seed: [1, 2, 3]                  # repetitions: runs of one seed are compared with each other
    options:                         # of node.train, each --KEY VALUE, or --KEY NAME=VALUE
      steps: 200
      eval-every: 20
    variants:                        # what is compared, each with options of its own
      ddp: {strategy: ddp}
      diloco: {strategy: diloco, set: {H: [20, 50]}}
    target: {test_accuracy: 0.85}    # ranked by the seconds until a test says so; left out: by the seconds of training
    predict: [poor]                  # rank the same runs on these profiles' links, too, as predicted

`program: [train.py, --epochs, "2"]` runs a script of your own instead, from `folder` if that is not the script's own;
`options` and `seed` are then its arguments. The same keys are flags of `python -m cluster.sweep`, lists with commas,
and override the file's. Unlike an experiment's, paths are relative to the current folder, as on the command line;
`verify` is true or false; and there is no key but those of KEYS (no hosts, gpus, schedule, …).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.yaml_file import read_yaml_and_words
from cluster.reporting.values import number
from protocol.link import WIRE_CHOICES

KIND, SWEEP = "kind", "sweep"
MOST_CELLS = 10_000
NOT_OPTIONS = ("seed", "dry-run", "resume", "run-dir")
HIGHER = {
    **dict.fromkeys(("test_accuracy", "test_return", "test_success"), True),
    **dict.fromkeys(("test_loss", "validation_loss", "validation_bits"), False),
}
"""Figures of tests that can be a target -> whether higher is better."""
Scalar = str | int | float | bool
Options = Mapping[tuple[str, str], Sequence[Scalar]]
"""(flag without dashes, name in front of `=` or '') -> the values to compare."""


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, as its user describes them.

    Attributes:
        nodes: number of nodes of the cluster.
        nproc_per_node: number of ranks on each node.
        image: image of the nodes; None: gradwire-node.
        cpus: processors that a node may use; None: as it is.
        memory: memory that a node may use; None: as it is.
        profiles, topologies, wires, link_seeds: those of the links, to compare.
        isolated: whether nodes without a link cannot reach each other.
        seeds: those of the training; empty for programs that get none.
        program: a script of the user's and its arguments; empty: node.train.
        folder: the folder sent with it, or with a strategy or task of the user's; None: its own.
        options: those of all runs.
        variants: name -> options that override those of all runs; {"": {}} without names.
        targets: figure -> value to reach.
        verify: whether the links are verified before each run.
        predict: profiles on whose links the runs are predicted.
    """

    nodes: int = 3
    nproc_per_node: int = 1
    image: str | None = None
    cpus: str | None = None
    memory: str | None = None
    profiles: Sequence[str] = ()
    topologies: Sequence[str] = ("full",)
    wires: Sequence[str] = ("auto",)
    link_seeds: Sequence[int] = (1,)
    isolated: bool = False
    seeds: Sequence[int] = ()
    program: Sequence[str] = ()
    folder: str | None = None
    options: Options = field(default_factory=dict)
    variants: Mapping[str, Options] = field(default_factory=lambda: {"": {}})
    targets: Mapping[str, float] = field(default_factory=dict)
    verify: bool = True
    predict: Sequence[str] = ()


KEYS: dict[str, str] = {
    "nodes": "nodes",
    "nproc_per_node": "nproc_per_node",
    "image": "image",
    "cpus": "cpus",
    "memory": "memory",
    "profile": "profiles",
    "topology": "topologies",
    "wire": "wires",
    "seed": "seeds",
    "link_seed": "link_seeds",
    "isolated": "isolated",
    "program": "program",
    "folder": "folder",
    "options": "options",
    "variants": "variants",
    "target": "targets",
    "verify": "verify",
    "predict": "predict",
}
"""Every key of the file but `kind` -> attribute of Sweep."""
AS_WORDS = {
    *("image", "cpus", "memory", "profile", "topology", "program", "folder", "options", "variants"),
    "predict",
}
"""Keys whose numbers are used as they stand in the file: 010, not 8."""


def load_document(path: Path) -> dict[str, object]:
    """Load a sweep file without parsing its values; words of a command are kept as its user typed them.

    Raises:
        UsageError: the file is missing, no YAML or no mapping, of another kind, or a key is unknown.
    """
    document, words = read_yaml_and_words(path, "write it like examples/sweeps/strategies.yml")
    if not isinstance(document, dict) or not isinstance(words, dict):
        raise UsageError(f"{path}: a sweep is a mapping of keys to values or lists", "profile: wan")
    if (kind := document.pop(KIND, SWEEP)) != SWEEP:
        raise UsageError(
            f"{path}: {KIND} is {shown(kind)}",
            f"{KIND}: {SWEEP}, or leave it out; to run an experiment: python -m cluster.launch -f FILE",
        )
    for key in document:
        if key not in KEYS:
            raise unknown(f"key in {path}:", str(key), (KIND, *KEYS))
    return {key: words[key] if key in AS_WORDS else document[key] for key in document}


def parse_sweep(document: Mapping[str, object]) -> Sweep:
    """Parse a sweep from its mapping, whose keys must be known.

    Raises:
        UsageError: a value is invalid or `profile` missing; names the key.
    """
    if "profile" not in document:
        raise UsageError("a sweep without profile", "profile: [mobile, wan]")
    values = {KEYS[key]: _PARSERS[key](value, key) for key, value in document.items()}
    if not values.get("program"):
        values.setdefault("seeds", (1,))
    return Sweep(**values)  # type: ignore[arg-type]


def _integers(value: object, key: str) -> tuple[int, ...]:
    found = []
    for one in _list(value, key):
        if not _is_whole(one):
            raise UsageError(f"{key}: {shown(one)} is no whole number", f"{key}: [1, 2, 3]")
        found.append(one)
    return tuple(found)


def _integer(value: object, key: str) -> int:
    if not _is_whole(value) or value == 0:
        raise UsageError(f"{key} is {shown(value)}", f"{key}: 3, one for all runs")
    return value


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _words(value: object, key: str) -> tuple[str, ...]:
    found = _list(value, key)
    for one in found:
        if isinstance(one, bool) or not isinstance(one, str | int | float) or one == "":
            raise UsageError(f"{key}: {shown(one)} is no word", f"{key}: a word, or a list of them")
    return tuple(str(one) for one in found)


def _word(value: object, key: str) -> str:
    if isinstance(value, list):
        raise UsageError(f"{key} is {shown(value)}", f"{key}: one for all runs")
    return _words(value, key)[0]


def _wires(value: object, key: str) -> tuple[str, ...]:
    found = _words(value, key)
    for one in found:
        if one not in WIRE_CHOICES:
            raise unknown("wire", one, WIRE_CHOICES)
    return found


def _list(value: object, key: str) -> list[object]:
    """Return one value, or several, as a list; refuse duplicates."""
    found = value if isinstance(value, list) else [value]
    if not found:
        raise UsageError(f"{key} is an empty list", "leave it out, or give a value")
    if any(one in found[:index] for index, one in enumerate(found)):
        raise UsageError(f"{key} has a value twice: {shown(found)}", "leave one of them out")
    return found


def _program(value: object, key: str) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise UsageError(f"{key} is {shown(value)}", "program: [train.py, --epochs, '2']")
    return tuple(_word(word, key) for word in words)


def _options(value: object, key: str) -> Options:
    if not isinstance(value, dict):
        raise UsageError(f"{key} is {shown(value)}", f"{key}: {{strategy: ddp, steps: 200}}")
    _refuse_twice([str(flag).lstrip("-") for flag in value], key)
    found: dict[tuple[str, str], Sequence[Scalar]] = {}
    for flag, said in value.items():
        name = str(flag).lstrip("-")
        if not name or name in NOT_OPTIONS:
            raise UsageError(f"{key}: {flag} cannot be an option of a sweep", "seed: [1, 2, 3]")
        named = said.items() if isinstance(said, dict) else [("", said)]
        _refuse_twice([f"{name} {inner}" for inner, _ in named], key)
        for inner, one in named:
            found[name, str(inner)] = _scalars(one, f"{key}: {name} {inner}".rstrip())
    return found


def _refuse_twice(names: Sequence[str], key: str) -> None:
    """Refuse keys of a mapping that are the same as text: 1 and "1", lr and --lr.

    Raises:
        UsageError: names the key.
    """
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"{key}: {name} is there twice", "leave one of them out")


def _scalars(value: object, key: str) -> tuple[Scalar, ...]:
    found: list[Scalar] = []
    for one in _list(value, key):
        if not isinstance(one, str | int | float) or one == "":
            raise UsageError(f"{key} is {shown(one)}", "a word, a number, true or false")
        found.append(one)
    return tuple(found)


def _variants(value: object, key: str) -> dict[str, Options]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"{key} is {shown(value)}", f"{key}: {{fast: {{lr: 0.01}}}}")
    _refuse_twice([str(name) for name in value], key)
    return {
        str(name): {} if own is None else _options(own, f"{key}: {name}")
        for name, own in value.items()
    }


def _targets(value: object, key: str) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"{key} is {shown(value)}", f"{key}: {{test_accuracy: 0.85}}")
    for figure, one in value.items():
        if figure not in HIGHER:
            raise unknown("figure of a target", figure, HIGHER)
        if number(one) is None:
            raise UsageError(f"{key}: {figure} is {shown(one)}", "a number")
    return {figure: float(one) for figure, one in value.items()}


def _flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key} is {shown(value)}", "true or false")
    return value


_PARSERS = {
    "nodes": _integer,
    "nproc_per_node": _integer,
    "image": _word,
    "cpus": _word,
    "memory": _word,
    "profile": _words,
    "topology": _words,
    "wire": _wires,
    "seed": _integers,
    "link_seed": _integers,
    "isolated": _flag,
    "program": _program,
    "folder": _word,
    "options": _options,
    "variants": _variants,
    "target": _targets,
    "verify": _flag,
    "predict": _words,
}
