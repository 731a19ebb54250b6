"""Builds the mapping of a sweep file from flags, in which lists are separated by commas. Pure."""

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
    "predict": str,
}
"""Flags that are keys of a sweep file -> the type of their values."""


def with_flags(
    document: Mapping[str, object], args: Namespace, rest: Sequence[str]
) -> dict[str, object]:
    """Return the file's mapping, overridden by flags.

    Args:
        document: the file's mapping; empty if there is no file.
        args: the values of ONE_VALUE and LISTS by name, None if not given; target, no_verify, isolated.
        rest: options of node.train, or of the program.

    Raises:
        UsageError: the value of a flag is invalid.
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
    """Convert node.train's flags to the `options` of a file: --set H=20,50 becomes {set: {H: [20, 50]}}.

    Raises:
        UsageError: a word belongs to no flag, or a flag is given both with and without a name.
    """
    found: dict[str, object] = {}
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        if not flag.startswith("--"):
            raise UsageError(f"{flag} belongs to no option", "put FILE first, and options after it")
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else ""
        name, inner, values = value.partition("=")
        if inner:
            own = found.setdefault(flag[2:], {})
            if not isinstance(own, dict):
                raise _nameless(flag, own)
            own[name] = values.split(",")
        elif isinstance(found.get(flag[2:]), dict):
            raise _nameless(flag, [value])
        else:
            found[flag[2:]] = value.split(",") if value else True
    return found


def merged(document: object, over: Mapping[str, object]) -> dict[str, object]:
    """Return a file's options, overridden by others; if both values are mappings, these are merged.

    Raises:
        UsageError: the file's options are not a mapping.
    """
    if not isinstance(document, dict):
        raise UsageError("options is no mapping", "options: {strategy: ddp, steps: 200}")
    found = dict(document)
    spelt = {str(flag).lstrip("-"): flag for flag in document}
    for name, value in over.items():
        flag = spelt.get(name, name)
        both = isinstance(value, dict) and isinstance(found.get(flag), dict)
        found[flag] = found[flag] | value if both else value
    return found


def _nameless(flag: str, said: object) -> UsageError:
    words = ",".join(said) if isinstance(said, list) else ""
    return UsageError(f"{f'{flag} {words}'.rstrip()}: write NAME=VALUE")


def _value(word: str, key: str, kind: type) -> str | int:
    try:
        return kind(word)  # type: ignore[no-any-return]
    except ValueError:
        hint = "1,2,3" if key in LISTS else "3, one for all runs"
        raise UsageError(f"--{key.replace('_', '-')}: {word!r} is no number", hint) from None


def _target(word: str) -> tuple[str, float]:
    figure, _, value = word.partition("=")
    try:
        return figure, float(value)
    except ValueError:
        raise UsageError(f"--target {word}", "--target test_accuracy=0.85") from None
