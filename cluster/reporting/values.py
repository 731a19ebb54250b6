"""Reads untrusted values: JSON of any type, invalid numbers, text of any length. Pure, except for `read_json`."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.base.stdout import plain
from protocol.reader import LARGEST

MOST_JSON_BYTES = 1 << 25
MOST_CONTRACT_BYTES = 1 << 27  # 2 kB for each of the 39,402 links of 199 nodes
MOST_WORD = 200
# Surrogates, what Unicode has not assigned (XML lacks U+FFFE and U+FFFF), formats, private use, line separators.
HARMFUL = ("Cs", "Cn", "Cf", "Co", "Zl", "Zp")
Record = Mapping[str, object]


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> object:
    """Return the content of a JSON file; None if it is missing, truncated, or too large to be ours."""
    try:
        if not path.is_file() or path.stat().st_size > most_bytes:
            return None
        found: object = json.loads(path.read_bytes())
        return found
    except (OSError, ValueError, RecursionError):
        return None


def number(value: object) -> float | None:
    """Return a finite number, small enough that sums stay finite, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None  # false for NaN, too


def count(value: object) -> int | None:
    """Return a whole number, not below 0, or None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def word(value: object, most: int = MOST_WORD) -> str:
    """Return text as one line of limited length that cannot move a cursor or change the direction of writing."""
    return " ".join(lines(value if isinstance(value, str) else "", most).split())


def lines(text: str, most: int) -> str:
    """Return text of several lines, truncated, with harmful characters made visible."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return "".join(map(_shown, plain(cut)))


def _shown(letter: str) -> str:
    """Escape what is no text, or hides or reorders letters."""
    if letter in "\n\t" or unicodedata.category(letter) not in HARMFUL:
        return letter
    return f"\\u{ord(letter):04x}"


def record(value: object) -> Record:
    """Return a mapping with string keys; empty if the value is no mapping."""
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}


def records(value: object, most: int = 10_000) -> list[Record]:
    """Return the items of a list that are mappings."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [record(item) for item in value[:most] if isinstance(item, Mapping)]


def words(value: object, most: int = 100) -> tuple[str, ...]:
    """Return the items of a list that are strings."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return ()
    return tuple(word(item) for item in value[:most] if isinstance(item, str))


def numbers(value: object, most: int = 10_000) -> dict[str, float]:
    """Return the items of a mapping that are numbers: name -> number."""
    found = {word(key, 64): number(item) for key, item in list(record(value).items())[:most]}
    return {key: item for key, item in found.items() if item is not None}
