"""Reads a JSON value as one of this package's types, strictly: a misspelt key is an error and never a default.

A document is a named tuple; its annotations say what it holds:

    class Peer(NamedTuple):
        address: Annotated[str, ADDRESS]
        mac: Annotated[str, MAC]

    read(Peer, json.loads(text))      # Peer(…), or FormatError: "mac: expected a MAC address, got '02:67'"

A field with a default may be missing. All other keys must be present, and unknown keys are errors, unless
`ignore_unknown` skips them. The supported types are bool, int, float, str, `X | None`, list, dict with keys made from
str, tuple, `object` (any JSON value), named tuples of these, and all of them with checks, as Annotated. Because the
output of a node may be hostile, numbers are finite and limited in size, and an `object` has MOST_LEVELS levels, and
MOST_ITEMS values, at most.

Documents are named tuples, not dataclasses, because `import dataclasses` alone would cost a tenth of the time that
`node.wire apply` takes, on every node at every start.
"""

import json
import socket
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

T = TypeVar("T")
Read = Callable[[object], Any]

LARGEST = 1e20  # a seed has 64 bits; sums and products of such numbers are still finite
MOST_LEVELS = 20
"""The most levels of lists and objects in a value of type `object`: Python cannot write all that it can parse."""
MOST_ITEMS = 600_000
"""The most values in a value of type `object`, lists and objects included: `{"":0}` takes 30 times its bytes of memory.
The largest that is needed is a topology of 199 nodes that states all nine values of every link: 554,000."""


class FormatError(ValueError):
    """A document violates its format; the message names the key.

    Args:
        words: what is wrong.
        path: where it is wrong, for example `links[0].delay_ms`.
    """

    def __init__(self, words: str, path: str = "") -> None:
        super().__init__(words)
        self.words, self.path = words, path

    def __str__(self) -> str:
        return f"{self.path}: {self.words}" if self.path else self.words

    def below(self, name: str) -> "FormatError":
        """Return the same error as seen one level above, where the value that was read has the key `name`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return FormatError(self.words, f"{name}{joint}{self.path}")


class Check(NamedTuple):
    """A condition on a value besides its type; used as Annotated[str, one_of("a", "b")]."""

    words: str
    """Ends the sentence "expected …"."""
    holds: Callable[[Any], bool]


class ReadBy(NamedTuple):
    """A reader that replaces the type's own; used as Annotated[float, ReadBy(figure, "number")].

    For values that differ between JSON and Python, or that accept more than their type does elsewhere.
    """

    reader: Read
    """Takes the parsed JSON value; raises FormatError."""
    words: str
    """What it reads, for docs/formats.md."""


class Bounds(NamedTuple):
    """The bounds of a number, both included."""

    low: float
    high: float


def within(low: float, high: float) -> Bounds:
    """Return the check that a number is between these bounds, both included."""
    return Bounds(low, high)


def one_of(*choices: str) -> Check:
    """Return the check that a text is one of these words."""
    return Check(
        f"one of {', '.join(choice or '(empty)' for choice in choices)}",
        lambda value: value in choices,
    )


def _is_word(value: str) -> bool:
    return value.split() == [value] and value.isprintable()


def _is_address(value: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, value)
    except (OSError, ValueError):  # a null character is a ValueError
        return False
    return True


def _is_mac(value: str) -> bool:
    parts = value.split(":")
    return len(parts) == 6 and all(
        len(part) == 2 and not set(part) - set("0123456789abcdef") for part in parts
    )


WORD = Check("one word", _is_word)
LINE = Check("a printable line", lambda value: value.isprintable() and len(value) <= 200)
ADDRESS = Check("an IPv4 address", _is_address)
MAC = Check("a MAC address such as 02:67:77:00:00:02", _is_mac)
COUNT = Check("no negative number", lambda value: value >= 0)
POSITIVE = Check("a number above 0", lambda value: value > 0)
Count = Annotated[int, COUNT]
Seconds = Annotated[float, COUNT]
NOT_NULL = Check("no null", lambda value: value is not None)
"""For a key that may be missing, but is never null: Annotated[int | None, NOT_NULL] = None."""


def parse(kind: type[T], text: str | bytes, what: str = "", *, ignore_unknown: bool = False) -> T:
    """Parse and read a JSON text.

    Args:
        kind: the type that it must have.
        text: JSON.
        what: names the document in an error.
        ignore_unknown: see `read`.

    Raises:
        FormatError: it is not JSON, or not of this type; the message names the key.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {str(error)[:200]}", what) from None
    return read(kind, value, what, ignore_unknown=ignore_unknown)


def read(kind: type[T], value: object, what: str = "", *, ignore_unknown: bool = False) -> T:
    """Check a parsed JSON value and convert it to this type.

    Args:
        kind: the type that it must have.
        value: what `json.loads` returned.
        what: names the document in an error.
        ignore_unknown: whether to skip keys that the type does not have, at all depths, instead of refusing them: for
            documents that other programs and later versions extend.

    Raises:
        FormatError: it is not of this type; the message names the key.
    """
    try:
        found: T = _reader(cast(Any, kind), ignore_unknown)(value)
    except FormatError as error:
        raise (error.below(what) if what else error) from None
    return found


def document(value: object) -> Any:  # noqa: ANN401 - as json.dumps takes it
    """Return the JSON value of a named tuple and its contents; `read` converts it back."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: document(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: document(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [document(one) for one in value]
    return value


def shown(value: object) -> str:
    """Return a value as text for a message, truncated."""
    try:
        text = repr(value) if not isinstance(value, int) or abs(value) < 1e100 else "a huge number"
    except RecursionError:
        return "what is nested too deeply"
    return text if len(text) <= 80 else f"{text[:77]}..."


@cache
def _reader(kind: Any, lenient: bool) -> Read:  # noqa: ANN401 - a type, or what Annotated and others make of one
    """Return the reader of a type, made once per type because a plan of 64 nodes has thousands of links."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:], lenient)
    if origin in (Union, types.UnionType):
        return _optional(arguments, lenient)
    if origin is list:
        return _sequence(_reader(arguments[0], lenient))
    if origin is tuple:
        return _fixed([_reader(one, lenient) for one in arguments])
    if origin is dict:
        return _mapping(_reader(arguments[0], lenient), _reader(arguments[1], lenient))
    if kind in PLAIN:
        return PLAIN[kind]
    if hasattr(kind, "_fields"):
        return _record(kind, lenient)
    raise TypeError(f"{kind} is no type of a document")


def _annotated(kind: Any, extras: tuple[Any, ...], lenient: bool) -> Read:  # noqa: ANN401
    if isinstance(extras[0], ReadBy):
        own = extras[0].reader
        return _checked(own, extras[1:]) if extras[1:] else own
    return _checked(_reader(kind, lenient), extras)


def _record(kind: Any, lenient: bool) -> Read:  # noqa: ANN401 - a named tuple's class
    readers = {name: _reader(kind.__annotations__[name], lenient) for name in kind._fields}
    optional = kind._field_defaults

    def read_record(value: object) -> Any:  # noqa: ANN401 - an instance of `kind`
        if not isinstance(value, dict):
            raise FormatError(f"expected an object, got {shown(value)}")
        for name in value:  # before missing keys: a misspelt key is both
            if name not in readers and not lenient:
                raise FormatError(f"unknown key{_nearest(name, tuple(readers))}", str(name)[:80])
        found = {}
        for name, reader in readers.items():
            if name in value:
                try:
                    found[name] = reader(value[name])
                except FormatError as error:
                    raise error.below(name) from None
            elif name not in optional:
                raise FormatError("missing", name)
        return kind(**found)

    return read_record


def _checked(plain: Read, checks: tuple[Any, ...]) -> Read:
    def read_checked(value: object) -> Any:  # noqa: ANN401
        found = plain(value)
        for check in checks:
            if isinstance(check, Bounds):
                if not check.low <= found <= check.high:
                    words = f"{found:g} is not between {check.low:g} and {check.high:g}"
                    raise FormatError(words)
            elif not check.holds(found):
                raise FormatError(f"expected {check.words}, got {shown(value)}")
        return found

    return read_checked


def _optional(arguments: tuple[Any, ...], lenient: bool) -> Read:
    [kind] = [one for one in arguments if one is not type(None)]
    reader = _reader(kind, lenient)
    return lambda value: None if value is None else reader(value)


def _sequence(item: Read) -> Read:
    def read_sequence(value: object) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise FormatError(f"expected a list, got {shown(value)}")
        found = []
        for number, one in enumerate(value):
            try:
                found.append(item(one))
            except FormatError as error:
                raise error.below(f"[{number}]") from None
        return found

    return read_sequence


def _fixed(items: list[Read]) -> Read:
    def read_fixed(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise FormatError(f"expected a list of {len(items)}, got {shown(value)}")
        found = []
        for number, (reader, one) in enumerate(zip(items, value, strict=True)):
            try:
                found.append(reader(one))
            except FormatError as error:
                raise error.below(f"[{number}]") from None
        return tuple(found)

    return read_fixed


def _mapping(key: Read, item: Read) -> Read:
    def read_mapping(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise FormatError(f"expected an object, got {shown(value)}")
        found = {}
        for name, one in value.items():
            try:
                found[key(name)] = item(one)
            except FormatError as error:
                raise error.below(str(name)[:80]) from None
        return found

    return read_mapping


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < LARGEST:
        raise FormatError(f"expected a number, got {shown(value)}")
    return float(value)


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not abs(value) < LARGEST:
        raise FormatError(f"expected a whole number, got {shown(value)}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"expected true or false, got {shown(value)}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise FormatError(f"expected a text, got {shown(value)}")
    return value


def _anything(value: object) -> object:
    count, level = 1, [value]
    for _ in range(MOST_LEVELS):
        inside = [_contents(one) for one in level if isinstance(one, dict | list | tuple)]
        if not inside:
            return value
        count += sum(map(len, inside))
        if count > MOST_ITEMS:
            raise FormatError(f"more than {MOST_ITEMS} values")
        level = [one for some in inside for one in some]
    if any(isinstance(one, dict | list | tuple) for one in level):
        raise FormatError(f"nested more than {MOST_LEVELS} levels deep")
    return value


def _contents(value: dict[str, object] | list[object] | tuple[object, ...]) -> Collection[object]:
    return value.values() if isinstance(value, dict) else value


PLAIN: dict[Any, Read] = {
    bool: _flag,
    int: _integer,
    float: _number,
    str: _text,
    object: _anything,
}


def _nearest(name: str, known: tuple[str, ...]) -> str:
    import difflib  # here: only an error needs it, and it would slow every start

    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else ""
