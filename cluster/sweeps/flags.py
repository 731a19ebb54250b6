"""A sweep from flags: the same mapping that a file is, lists with commas. Pure."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

from cluster.base.errors import UsageError

ONE_VALUE: dict[str, type] = {
    "nodes": int,
    "nproc_per_node": int,
    "image": str,
    "cpus": str,
    "memory": str,
}
LISTS: dict[str, type] = {
    "profile": str,
    "topology": str,
    "wire": str,
    "link_seed": int,
    "seed": int,
}
"""Flags that are keys of a sweep file, and what their values are."""


def with_flags(
    document: Mapping[str, object], args: Namespace, rest: Sequence[str]
) -> dict[str, object]:
    """The file's mapping with what flags say over it.

    Args:
        document: of the file; empty where there is none.
        args: the values of ONE_VALUE and LISTS by name, None where they were not said; target, no_verify, isolated.
        rest: options that are node.train's, or the program's.

    Raises:
        UsageError: a flag whose value cannot be.
    """
    found = dict(document)
    for key, kind in (ONE_VALUE | LISTS).items():
        if (said := getattr(args, key)) is not None:
            values = [_value(word, key, kind) for word in said.split(",")]
            found[key] = values if key in LISTS else values[0] if len(values) == 1 else values
    if args.target:
        found["target"] = dict(_target(word) for word in args.target)
    if args.no_verify:
        found["verify"] = False
    if args.isolated:
        found["isolated"] = True
    if options := rest_options(rest):
        found["options"] = merged(found.get("options") or {}, options)
    return found


def rest_options(words: Sequence[str]) -> dict[str, object]:
    """node.train's flags as `options` of a file has them: --set H=20,50 is {set: {H: [20, 50]}}.

    Raises:
        UsageError: a word that belongs to no flag.
    """
    found: dict[str, object] = {}
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        if not flag.startswith("--"):
            raise UsageError(f"{flag} belongs to no option", "FILE comes first, options after it")
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else ""
        name, inner, values = value.partition("=")
        if inner:
            own = found.setdefault(flag[2:], {})
            assert isinstance(own, dict)
            own[name] = values.split(",")
        else:
            found[flag[2:]] = value.split(",") if value else True
    return found


def merged(document: object, over: Mapping[str, object]) -> dict[str, object]:
    """Options of a file with others over them, name by name where both name several.

    Raises:
        UsageError: the file's are no mapping.
    """
    if not isinstance(document, dict):
        raise UsageError("options is no mapping", "options: {strategy: ddp, steps: 200}")
    found = dict(document)
    for flag, value in over.items():
        both = isinstance(value, dict) and isinstance(found.get(flag), dict)
        found[flag] = found[flag] | value if both else value
    return found


def _value(word: str, key: str, kind: type) -> str | int:
    try:
        return kind(word)  # type: ignore[no-any-return]
    except ValueError:
        raise UsageError(f"--{key.replace('_', '-')}: {word!r} is no number", "1,2,3") from None


def _target(word: str) -> tuple[str, float]:
    figure, _, value = word.partition("=")
    try:
        return figure, float(value)
    except ValueError:
        raise UsageError(f"--target {word}", "--target test_accuracy=0.85") from None
