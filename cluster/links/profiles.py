"""Link profiles: YAML files of ranges, one file per profile.

A profile gives the ranges of rate, delay and impairments of a cluster's links; `cluster.links.link` draws links from
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.paths import PROFILES_DIR
from cluster.base.yaml_file import is_file, is_file_name, read_yaml
from cluster.links.regions import RegionPair, parse_regions
from protocol.link import ACCESS_LIMITS
from protocol.link import LIMITS as LINK_LIMITS

Range = tuple[float, float]


@dataclass(frozen=True)
class Profile:
    """Ranges for the links of a cluster; a single number is a range of one value.

    Attributes:
        name: the file's name without its ending.
        rate_mbyte_s: rate in 10^6 bytes a second, on the wire.
        delay_ms: one-way delay.
        jitter_pct: standard deviation of the delay, in percent of it.
        loss_pct: packets lost at random, in percent.
        buffer_ms: queue before the rate limit; left out: one bandwidth-delay product (the link's RTT), at least 10 ms.
        uplink_mbyte_s: what a node can send on all its links together; left out: as much as they carry.
        downlink_mbyte_s: what a node can receive on all its links together; left out: as much as they carry.
        loss_burst: how many packets are lost in a row, on average; 1: each is lost independently.
        duplicate_pct: packets that arrive twice, in percent.
        corrupt_pct: packets that arrive with one bit wrong, in percent.
        reorder_pct: packets that skip the delay, and so overtake those before them, in percent.
        distribution: distribution of the delay, if it jitters: normal or uniform.
        tcp: congestion control on the links.
        slow_start_after_idle: whether an idle connection starts again with slow start, as is Linux's default.
        regions: where the nodes are, in node order, repeated from the first; empty if it does not matter.
        between: rate and round trip of each pair of regions; the ranges above are for nodes of one region.
    """

    name: str
    rate_mbyte_s: Range
    delay_ms: Range
    jitter_pct: Range = (0.0, 0.0)
    loss_pct: Range = (0.0, 0.0)
    buffer_ms: Range | None = None
    uplink_mbyte_s: Range | None = None
    downlink_mbyte_s: Range | None = None
    loss_burst: Range = (1.0, 1.0)
    duplicate_pct: Range = (0.0, 0.0)
    corrupt_pct: Range = (0.0, 0.0)
    reorder_pct: Range = (0.0, 0.0)
    distribution: str = "normal"
    tcp: str = "cubic"
    slow_start_after_idle: bool = True
    regions: tuple[str, ...] = ()
    between: tuple[RegionPair, ...] = ()


LIMITS: dict[str, Range] = {
    **{field: limits for field, limits in LINK_LIMITS.items() if field != "jitter_ms"},
    **ACCESS_LIMITS,
    "jitter_pct": (0, 50),
}
IMPAIRMENT_WORDS = {
    "loss_burst": ("1", "{} lost in a row"),
    "duplicate_pct": ("0", "{} % twice"),
    "corrupt_pct": ("0", "{} % corrupt"),
    "reorder_pct": ("0", "{} % overtake"),
}
"""Impairments that few links have: field -> the usual value, and the words for any other."""
WORDS = {"tcp": ("cubic", "bbr", "reno"), "distribution": ("normal", "uniform")}
FLAGS = ("slow_start_after_idle",)


def profile_names() -> list[str]:
    """Return the names of the shipped profiles."""
    return sorted(path.stem for path in PROFILES_DIR.glob("*.yml"))


def load_profile(name: str) -> Profile:
    """Read a shipped profile by name, or a user's own by path.

    Raises:
        UsageError: no such profile, no valid YAML, or an invalid key or value; the message names file and key.
    """
    path = _profile_path(name)
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise UsageError(
            f"{path}: a profile is a mapping of keys to ranges", "rate_mbyte_s: [2, 8]"
        )
    return parse_profile(path.stem, document, str(path))


def parse_profile(name: str, document: dict[str, object], source: str) -> Profile:
    """Return the profile of a YAML mapping; `source` is named in errors."""
    keys = {field.name for field in fields(Profile)} - {"name"}
    for key in document:
        if key not in keys:
            raise unknown(f"key in {source}:", str(key), keys)
    for key in ("rate_mbyte_s", "delay_ms"):
        if key not in document:
            raise UsageError(f"{source}: {key} is missing", f"{key}: [low, high]")
    ranges = {k: _parse_range(v, k, source) for k, v in document.items() if k in LIMITS}
    words = {k: _parse_word(v, k, source) for k, v in document.items() if k in WORDS}
    flags = {k: _parse_flag(v, k, source) for k, v in document.items() if k in FLAGS}
    regions, between = parse_regions(document.get("regions"), document.get("between"), source)
    return Profile(name, regions=regions, between=between, **ranges, **words, **flags)  # type: ignore[arg-type]


def _parse_flag(value: object, key: str, source: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{source}: {key} is {shown(value)}", "true or false")
    return value


def _parse_word(value: object, key: str, source: str) -> str:
    if value not in WORDS[key]:
        raise unknown(f"{key} in {source}:", value, WORDS[key])
    return str(value)


def _profile_path(name: str) -> Path:
    if is_file_name(name):
        path = Path(name)
        if not is_file(path):
            raise UsageError(
                f"no profile file {name}", "list the shipped ones: python -m cluster.profiles"
            )
        return path
    if name not in profile_names():
        raise unknown("profile", name, profile_names())
    return PROFILES_DIR / f"{name}.yml"


def _parse_range(value: object, key: str, source: str) -> Range:
    pair = value if isinstance(value, list) else [value, value]
    numbers = [n for n in pair if isinstance(n, int | float) and not isinstance(n, bool)]
    if len(pair) != 2 or len(numbers) != 2:
        raise UsageError(f"{source}: {key} is {shown(value)}", "a number, or [low, high]")
    low, high = float(numbers[0]), float(numbers[1])
    least, most = LIMITS[key]
    if not least <= low <= high <= most:
        raise UsageError(
            f"{source}: {key} is {shown(value)}", f"low <= high, within {least:g} to {most:g}"
        )
    return low, high


def describe_impairments(texts: Mapping[str, str]) -> list[str]:
    """Return words for the values that are not the usual ones of IMPAIRMENT_WORDS; `texts`: field -> value as text."""
    return [
        words.format(texts[f])
        for f, (usual, words) in IMPAIRMENT_WORDS.items()
        if texts[f] != usual
    ]
