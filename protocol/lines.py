"""Orders and answers of a process on a node: one JSON object per line, on its standard input and output.

The key `do` of an order names the order; the other keys are its own. `node.probe` and `node.wire replay` are such
processes: `probe` and `trace` define their orders and answers.
"""

import json
from collections.abc import Collection, Mapping
from typing import TypeVar

from protocol.reader import FormatError, document, read, shown

T = TypeVar("T")

WHICH = "do"


def encode_line(value: object) -> bytes:
    """Return a named tuple, or a mapping of named tuples, as a line of JSON."""
    return json.dumps(document(value)).encode() + b"\n"


def encode_order(kinds: Mapping[str, type[T]], order: T) -> bytes:
    """Return an order as a line of JSON.

    Args:
        kinds: the types of all orders that the process knows, by the value of `do`.
        order: an instance of one of these types.
    """
    word = next(word for word, kind in kinds.items() if type(order) is kind)
    return encode_line({WHICH: word, **document(order)})


def parse_order(kinds: Mapping[str, type[T]], line: str | bytes) -> T:
    """Read an order.

    Args:
        kinds: as for `encode_order`.
        line: JSON.

    Raises:
        FormatError: it is not a valid order; the message names the key.
    """
    given = parse_object(line)
    if WHICH not in given:
        raise FormatError("missing", WHICH)
    word = given.pop(WHICH)
    if not isinstance(word, str) or word not in kinds:
        raise FormatError(f"expected one of {', '.join(kinds)}, got {shown(word)}", WHICH)
    return read(kinds[word], given)


def parse_object(line: str | bytes) -> dict[str, object]:
    """Parse a line of JSON that holds an object.

    Raises:
        FormatError: it is not JSON, or not an object.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {str(error)[:200]}") from None
    return _object(value)


def read_either(kinds: Mapping[str, type[T]], value: object) -> T:
    """Read an answer of one of several types.

    Args:
        kinds: the types, each by a key that the others do not have.
        value: parsed JSON.

    Raises:
        FormatError: it has none of these types; the message names the key.
    """
    given = _object(value)
    for key, kind in kinds.items():
        if key in given:
            return read(kind, value)
    raise FormatError(f"expected one of the keys {', '.join(kinds)}, got {shown(value)}")


def read_each(kind: type[T], names: Collection[str], value: object) -> dict[str, T]:
    """Read an object whose keys are exactly these names, each with a value of this type.

    Raises:
        FormatError: a name is missing or was not asked for, or a value is wrong; the message names the key.
    """
    given = _object(value)
    for name in given:
        if name not in names:
            raise FormatError("nobody asked for it", name[:80])
    for name in names:
        if name not in given:
            raise FormatError("missing", name)
    return {name: read(kind, given[name], name) for name in names}


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise FormatError(f"expected an object, got {shown(value)}")
    return value
