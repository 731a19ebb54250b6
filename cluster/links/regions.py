"""Regions of the world, with measured links between them instead of ranges.

regions: [oregon, virginia, ohio]                                    # node1 is in the first, node4 again
between:
  - {ends: [oregon, virginia], rtt_ms: 67, rate_mbyte_s: 98.75}      # every pair, once
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.spec import MAX_NODES
from cluster.base.yaml_file import number_within
from protocol.link import LIMITS as LINK_LIMITS

KEYS = ("ends", "rtt_ms", "rate_mbyte_s")
REGION_LIMITS = {
    "rtt_ms": (0.0, 2 * LINK_LIMITS["delay_ms"][1]),
    "rate_mbyte_s": LINK_LIMITS["rate_mbyte_s"],
}


@dataclass(frozen=True)
class RegionPair:
    """Two regions: the round trip between them, as ping shows it, and the rate in each direction."""

    ends: tuple[str, str]
    rtt_ms: float
    rate_mbyte_s: float


def parse_regions(
    regions: object, between: object, source: str
) -> tuple[tuple[str, ...], tuple[RegionPair, ...]]:
    """Return the values of the two keys of a profile's YAML mapping; `source` is named in errors.

    Raises:
        UsageError: a pair is missing, unknown or given twice, or a value is invalid.
    """
    names = regions or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{source}: regions is {shown(regions)}", "regions: [oregon, virginia]")
    if len(names) > MAX_NODES:
        raise UsageError(f"{source}: {len(names)} regions", f"at most {MAX_NODES}, one a node")
    rows = between or []
    if not isinstance(rows, list | tuple):
        raise UsageError(f"{source}: between is {shown(between)}", "a list of pairs")
    pairs = tuple(_parse_pair(row, names, f"{source}: between[{i}]") for i, row in enumerate(rows))
    _check_complete(names, [frozenset(pair.ends) for pair in pairs], source)
    return tuple(names), pairs


def pair_of(between: Sequence[RegionPair], one: str, other: str) -> RegionPair | None:
    """Return the entry of two regions; None if they are the same."""
    return next((pair for pair in between if set(pair.ends) == {one, other}), None)


def _parse_pair(row: object, names: Sequence[str], place: str) -> RegionPair:
    if not isinstance(row, Mapping) or set(row) != set(KEYS):
        raise UsageError(
            f"{place} is {shown(row)}", "{ends: [oregon, ohio], rtt_ms: 49, rate_mbyte_s: 137.5}"
        )
    ends = row["ends"]
    if not isinstance(ends, list | tuple) or not all(isinstance(name, str) for name in ends):
        raise UsageError(f"{place}: ends is {shown(ends)}", "two regions")
    if len(ends) != 2 or ends[0] == ends[1]:
        raise UsageError(f"{place}: ends is {shown(ends)}", "two regions")
    for name in ends:
        if name not in names:
            raise unknown(f"region in {place}:", name, names)
    numbers = {
        key: number_within(row[key], REGION_LIMITS[key], f"{place}: {key}") for key in REGION_LIMITS
    }
    return RegionPair((ends[0], ends[1]), **numbers)


def _check_complete(names: Sequence[str], pairs: Sequence[frozenset[str]], source: str) -> None:
    every = list(dict.fromkeys(names))  # two nodes may be in one region
    times = Counter(pairs)
    for number, one in enumerate(every):
        for other in every[:number]:
            found = times[frozenset((one, other))]
            if found != 1:
                raise UsageError(
                    f"{source}: between has {other} and {one} {found} times", "list every pair once"
                )
