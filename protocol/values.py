"""Types of values that several documents share: numbers as written, figures that may be null or NaN, names, ranks."""

import re
from typing import Annotated

from protocol.reader import COUNT, LARGEST, NOT_NULL, Check, FormatError, ReadBy, shown, within

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
MOST_RANKS = 12_736
"""The most ranks of a run: 64 on each of 199 nodes."""


def read_number(value: object) -> float:
    """Return a finite number as it was written: an integer stays one, so that 3 is not shown as 3.0 later."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < LARGEST:
        raise FormatError(f"expected a number, got {shown(value)}")
    return value


def read_figure(value: object) -> float | None:
    """Return a number or None; NaN and infinity are valid, as losses of a training that diverges."""
    return value if value is None or isinstance(value, float) else read_number(value)


def read_rank(value: object) -> int:
    """Return the rank that a key holds; JSON keys are always strings."""
    text = str(value) if isinstance(value, int) else value
    if not isinstance(text, str) or not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise FormatError(f"expected a rank, got {shown(value)}")
    return int(text)


MaybeCount = Annotated[int | None, NOT_NULL, COUNT]
Number = Annotated[float, ReadBy(read_number, "number")]
MaybeNumber = Annotated[float | None, ReadBy(read_number, "number")]
"""A number that may be missing, but is never null."""
Positive = Annotated[float, ReadBy(read_number, "number"), within(1e-6, LARGEST)]
Figure = Annotated[float | None, ReadBy(read_figure, "number, null or NaN")]
Name = Annotated[str, Check("a name of letters, digits and _.:-", NAME.fullmatch)]
RankKey = Annotated[int, ReadBy(read_rank, "rank")]
Address = Annotated[str, Check("an address", lambda value: len(value) < 64)]
