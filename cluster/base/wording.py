"""Counts, ratios and lists of names, as sentences have them."""

from collections.abc import Sequence


def counted(count: int, what: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def times_as_long(ratio: float) -> str:
    """Return `1.04 times as long`; with more than two decimals where these would make 1.00 of what is not 1."""
    digits = next((digits for digits in range(2, 7) if round(ratio, digits) != 1.0), 2)
    return f"{ratio:.{digits}f} times as long"


def first_names(names: Sequence[str], most: int, what: str = "") -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`, or with a word, `… 3 more ranks`."""
    more = f" and {len(names) - most} more{f' {what}' if what else ''}"
    return ", ".join(names[:most]) + (more if len(names) > most else "")
