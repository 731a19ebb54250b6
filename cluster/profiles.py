"""Link profiles: YAML files of ranges, one file a profile.

    python -m cluster.profiles              # what there is
    python -m cluster.profiles mobile       # one of them

A profile says how fast, how far and how clean the links of a cluster may be; `cluster.links` draws the links from it.
Your own is a file anywhere: `--profile ./mine.yml`.
"""

import sys
from argparse import Namespace
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import yaml

from cluster.errors import UsageError, unknown
from cluster.regions import RegionPair, parse_regions
from cluster.spec import PROJECT_DIR

PROFILES_DIR = PROJECT_DIR / "compose" / "profiles"
TCP_ALGORITHMS = ("cubic", "bbr", "reno")

Range = tuple[float, float]


@dataclass(frozen=True)
class Profile:
    """Ranges for the links of a cluster; a single number is a range of one.

    Attributes:
        name: the file's name without its ending.
        rate_mbyte_s: bytes on the wire, in 10^6 a second.
        delay_ms: one way.
        jitter_pct: standard deviation of the delay, in per cent of it.
        loss_pct: packets lost at random, in per cent.
        buffer_ms: the queue in front of the rate limit; None is one bandwidth-delay product, the link's own RTT.
        uplink_mbyte_s: what a node can send on all its links together; None is as much as they carry.
        tcp: congestion control on the links.
        regions: where the nodes are, in their order, and from the first again; empty where it does not matter.
        between: rate and distance of each pair of regions; the ranges above are for nodes of one region.
    """

    name: str
    rate_mbyte_s: Range
    delay_ms: Range
    jitter_pct: Range = (0.0, 0.0)
    loss_pct: Range = (0.0, 0.0)
    buffer_ms: Range | None = None
    uplink_mbyte_s: Range | None = None
    tcp: str = "cubic"
    regions: tuple[str, ...] = ()
    between: tuple[RegionPair, ...] = ()


LIMITS: dict[str, Range] = {
    "rate_mbyte_s": (0.01, 10_000),
    "delay_ms": (0, 10_000),
    "jitter_pct": (0, 50),
    "loss_pct": (0, 100),
    "buffer_ms": (1, 60_000),
    "uplink_mbyte_s": (0.01, 10_000),
}


def profile_names() -> list[str]:
    """The shipped profiles, by name."""
    return sorted(path.stem for path in PROFILES_DIR.glob("*.yml"))


def load_profile(name: str) -> Profile:
    """Read a shipped profile by name, or a user's own by path.

    Raises:
        UsageError: no such profile, no YAML, or a key or value that is not one; the message names file and key.
    """
    path = _profile_path(name)
    try:
        document = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a profile is a mapping of keys to ranges")
    return parse_profile(path.stem, document, str(path))


def parse_profile(name: str, document: dict[str, object], source: str) -> Profile:
    """A profile from its YAML mapping; `source` is named in errors."""
    keys = {field.name for field in fields(Profile)} - {"name"}
    for key in document:
        if key not in keys:
            raise unknown(f"key in {source}:", str(key), keys)
    for key in ("rate_mbyte_s", "delay_ms"):
        if key not in document:
            raise UsageError(f"{source}: {key} is missing", f"{key}: [low, high]")
    tcp = document.get("tcp", "cubic")
    if tcp not in TCP_ALGORITHMS:
        raise unknown(f"tcp in {source}:", str(tcp), TCP_ALGORITHMS)
    ranges = {k: _parse_range(v, k, source) for k, v in document.items() if k in LIMITS}
    regions, between = parse_regions(document.get("regions"), document.get("between"), source)
    return Profile(
        name=name,
        rate_mbyte_s=ranges["rate_mbyte_s"],
        delay_ms=ranges["delay_ms"],
        jitter_pct=ranges.get("jitter_pct", (0.0, 0.0)),
        loss_pct=ranges.get("loss_pct", (0.0, 0.0)),
        buffer_ms=ranges.get("buffer_ms"),
        uplink_mbyte_s=ranges.get("uplink_mbyte_s"),
        tcp=str(tcp),
        regions=regions,
        between=between,
    )


def _profile_path(name: str) -> Path:
    if name.endswith((".yml", ".yaml")) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"no profile file {name}", "python -m cluster.profiles lists those shipped"
            )
        return path
    if name not in profile_names():
        raise unknown("profile", name, profile_names())
    return PROFILES_DIR / f"{name}.yml"


def _parse_range(value: object, key: str, source: str) -> Range:
    pair = value if isinstance(value, list) else [value, value]
    numbers = [n for n in pair if isinstance(n, int | float) and not isinstance(n, bool)]
    if len(pair) != 2 or len(numbers) != 2:
        raise UsageError(f"{source}: {key} is {value!r}", "a number, or [low, high]")
    low, high = float(numbers[0]), float(numbers[1])
    least, most = LIMITS[key]
    if not least <= low <= high <= most:
        raise UsageError(
            f"{source}: {key} is {value!r}", f"low <= high, within {least:g} to {most:g}"
        )
    return low, high


def main(argv: list[str] | None = None) -> int:
    """List the profiles, or print the named ones."""
    from cluster.cli import make_parser, run_verb

    parser = make_parser("cluster.profiles", __doc__)
    parser.add_argument("names", nargs="*", metavar="PROFILE", help="default: all")
    return run_verb(parser, show_profiles, argv)


def show_profiles(args: Namespace) -> list[dict[str, object]]:
    """The verb: prints a table, returns the profiles as JSON values."""
    from cluster.console import print_table

    profiles = [load_profile(name) for name in args.names or profile_names()]
    if not args.json:
        rows = [
            [
                p.name,
                _text(p.rate_mbyte_s),
                _text(p.delay_ms),
                _text(p.jitter_pct),
                _text(p.loss_pct),
                p.tcp,
            ]
            for p in profiles
        ]
        print_table(["PROFILE", "RATE MB/s", "DELAY ms", "JITTER %", "LOSS %", "TCP"], rows)
    return [asdict(p) for p in profiles]


def _text(values: Range) -> str:
    low, high = values
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


if __name__ == "__main__":
    sys.exit(main())
