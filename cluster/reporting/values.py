"""Reads what may be anything: JSON values of whatever type, numbers that are none, words of any length. Pure."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.base.stdout import plain
from protocol.reader import LARGEST

MOST_JSON_BYTES = 1 << 25
MOST_WORD = 200
Record = Mapping[str, object]


def read_json(path: Path) -> object:
    """What a JSON file says; None where there is none, or it was cut short, or is too large to be ours."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_JSON_BYTES:
            return None
        found: object = json.loads(path.read_bytes())
        return found
    except (OSError, ValueError, RecursionError):
        return None


def number(value: object) -> float | None:
    """A finite number that sums of it leave finite, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None  # NaN is not less, either


def count(value: object) -> int | None:
    """A whole number, not below 0, or None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def word(value: object, most: int = MOST_WORD) -> str:
    """Words in one line: nothing in it moves a cursor, turns the direction of writing, or is without end."""
    return " ".join(lines(value if isinstance(value, str) else "", most).split())


def lines(text: str, most: int) -> str:
    """Text of several lines, cut short, with what would harm a reader made visible."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return "".join(map(_shown, plain(cut)))


def _shown(letter: str) -> str:
    """Surrogates are no text; format characters hide letters, or turn their order."""
    if letter in "\n\t" or unicodedata.category(letter) not in ("Cs", "Cf", "Co", "Zl", "Zp"):
        return letter
    return f"\\u{ord(letter):04x}"


def record(value: object) -> Record:
    """A mapping by names; an empty one where it is none."""
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}


def records(value: object, most: int = 10_000) -> list[Record]:
    """Those of a list that are mappings."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [record(item) for item in value[:most] if isinstance(item, Mapping)]


def words(value: object, most: int = 100) -> tuple[str, ...]:
    """Those of a list that are words."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return ()
    return tuple(word(item) for item in value[:most] if isinstance(item, str))


def numbers(value: object, most: int = 10_000) -> dict[str, float]:
    """Name -> number: those of a mapping that are numbers."""
    found = {word(key, 64): number(item) for key, item in list(record(value).items())[:most]}
    return {key: item for key, item in found.items() if item is not None}
