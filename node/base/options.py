"""Typed options with ranges; a misspelt option is refused, with the nearest spelling.

Nothing here imports torch: a mistyped option is reported at once, and `--dry-run` works on a machine without torch.
"""

import dataclasses
import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

Value = bool | int | float | str
T = TypeVar("T", bool, int, float, str)

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
BOUNDS = {
    "at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}
# How similar two words must be, by difflib; the dashes of flags alone make --force similar to --lr.
ALIKE, ALIKE_FLAGS = 0.5, 0.75
BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class OptionError(ValueError):
    """What the user asked for does not exist or is impossible: one line, no traceback, exit 2."""


def option(
    default: T,
    help: str,
    *,
    at_least: T | None = None,
    above: T | None = None,
    at_most: T | None = None,
    below: T | None = None,
    choices: Sequence[T] = (),
) -> T:
    """Define one option of a strategy or a task: a dataclass field with what `--help` and the checks need.

    Args:
        default: its value when nothing is set; its type is the option's type.
        help: one line, lower case, for `--help`.
        at_least: the smallest value that makes sense.
        above: a limit that the value must exceed.
        at_most: the largest value that makes sense.
        below: a limit that the value must stay under.
        choices: the only values allowed.

    Returns:
        A dataclass field, typed as its value: a class body reads `H: int = option(20, "...")`.
    """
    limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    bounds = {word: limit for word, limit in limits.items() if limit is not None}
    metadata = {"help": help, "bounds": bounds, "choices": choices}
    field: Any = dataclasses.field(default=default, metadata=metadata)
    return field  # type: ignore[no-any-return]


def unknown(kind: str, word: str, known: Iterable[object]) -> OptionError:
    """Return the error for a `word` that is not a known `kind`; it names the nearest known word, or all of them."""
    words = sorted(map(str, known))
    near = _nearest(word, words)
    # difflib is case-sensitive, and a one-letter option (H) has no other near match.
    near = near or [w for w in words if w.lower() == word.lower()]
    if near:
        return OptionError(f"unknown {kind} {word!r}: did you mean {near[0]!r}?")
    return OptionError(f"unknown {kind} {word!r}: there is {', '.join(words) or 'none'}")


def _nearest(word: str, words: Sequence[str]) -> list[str]:
    """Return the words that were probably meant, best first: flags that begin so, that end so, a similar word."""
    flags = [one for one in words if one.startswith("--")]
    begin = [one for one in flags if word.startswith("--") and one.startswith(word)]
    end = [one for one in flags if word.startswith("--") and one.endswith(word[1:])]
    cutoff = ALIKE_FLAGS if flags else ALIKE
    return [*begin, *end, *difflib.get_close_matches(word, words, n=1, cutoff=cutoff)]


def require_options(name: str, cls: type) -> None:
    """Raise OptionError unless a class is a dataclass whose fields all have a default of a type in KINDS."""
    if "__dataclass_fields__" not in vars(cls):
        raise OptionError(f"{name} is no dataclass: write @dataclass above it")
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING:
            raise OptionError(f'{name}: {field.name} has no default: option(20, "what it is")')
        if type(field.default) not in KINDS:
            kinds = ", ".join(KINDS.values())
            raise OptionError(f"{name}: {field.name} must be {kinds}, not {field.default!r}")


def parse_settings(
    owner: str,
    cls: type,
    settings: Sequence[str],
    flag: str = "--set",
    preset: Mapping[str, Value] | None = None,
) -> dict[str, Value]:
    """Turn `--set KEY=VALUE` texts into a value for every option of a dataclass.

    Args:
        owner: the owner of these options, for messages ("strategy fedavg").
        cls: a dataclass, whose fields have defaults.
        settings: the texts, each `KEY=VALUE`; if a key is given twice, the last one counts.
        flag: the flag that gave them, for messages.
        preset: defaults that take precedence over the fields' own.

    Returns:
        Every option by name, set or default.

    Raises:
        OptionError: a text is not `KEY=VALUE`, a key is unknown, or a value has the wrong type or is out of bounds.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    # Any: mypy cannot see that these fields always have a default.
    values: dict[str, Any] = {name: field.default for name, field in fields.items()}
    values |= preset or {}
    for key, word in split_settings(settings, flag).items():
        if key not in fields:
            raise unknown(f"option of {owner}:", key, fields)
        field = fields[key]
        value = parse_value(f"{flag} {key}", word, type(field.default))
        if field.metadata.get("choices") and value not in field.metadata["choices"]:
            raise unknown(f"value of {flag} {key}:", word, field.metadata["choices"])
        check_bounds(f"{flag} {key}", value, field.metadata.get("bounds", {}))
        values[key] = value
    return values


def split_settings(settings: Sequence[str], flag: str = "--set") -> dict[str, str]:
    """Return the texts `KEY=VALUE` as values by key.

    Raises:
        OptionError: one of them has another form.
    """
    values = {}
    for text in settings:
        key, equals, values[key] = text.partition("=")
        if not equals:
            raise OptionError(f"{flag} {text}: write KEY=VALUE, for example H=20")
    return values


def describe_options(cls: type) -> list[str]:
    """Return a line for each option of a dataclass: its default, its meaning, its allowed values."""
    lines = []
    for field in dataclasses.fields(cls):
        limits = [f"{word} {limit}" for word, limit in field.metadata.get("bounds", {}).items()]
        may_be = " | ".join(map(str, field.metadata.get("choices", ()))) or ", ".join(limits)
        what = field.metadata.get("help", "") + (f" ({may_be})" if may_be else "")
        lines.append(f"{f'{field.name}={field.default}':<19} {what}")
    return lines


def parse_value(name: str, word: str, kind: type[Any]) -> Any:  # noqa: ANN401
    """Parse one value of type bool, int, float or str; `name` is for the message.

    Raises:
        OptionError: it is not of that type; infinity and nan are not accepted as numbers.
    """
    try:
        value = BOOLEANS[word.lower()] if kind is bool else kind(word)
        if kind is float and not math.isfinite(value):
            raise ValueError
    except (ValueError, KeyError):
        raise OptionError(f"{name}: {word!r} is not {KINDS[kind]}") from None
    return value


def check_bounds(name: str, value: Any, bounds: Mapping[str, float]) -> None:  # noqa: ANN401
    """Raise OptionError if a value is out of its bounds: keys of BOUNDS, and a limit for each."""
    for word, limit in bounds.items():
        if not BOUNDS[word](value, limit):
            raise OptionError(f"{name} must be {word} {limit}, not {value}")


def parse_environ(environ: Mapping[str, str], key: str, default: T) -> T:
    """Return a variable's value, with the default's type; the default if it is unset or empty."""
    word = environ.get(key)
    value: T = parse_value(key, word, type(default)) if word else default
    return value
