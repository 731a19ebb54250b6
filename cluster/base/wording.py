"""Counts and lists of names, as sentences have them."""

from collections.abc import Sequence


def counted(count: int, what: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def first_names(names: Sequence[str], most: int, what: str = "") -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`, or with a word, `… 3 more ranks`."""
    more = f" and {len(names) - most} more{f' {what}' if what else ''}"
    return ", ".join(names[:most]) + (more if len(names) > most else "")
