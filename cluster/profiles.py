"""List all link profiles, or some of them.

    python -m cluster.profiles              # all of them
    python -m cluster.profiles mobile       # one of them

Your own profile is a file anywhere: `--profile ./mine.yml`.
"""

import sys
from argparse import Namespace
from dataclasses import asdict

from cluster.base.console import print_table
from cluster.cli.command_line import make_parser, run_verb
from cluster.links.profiles import (
    IMPAIRMENT_WORDS,
    Profile,
    Range,
    describe_impairments,
    load_profile,
    profile_names,
)


def main(argv: list[str] | None = None) -> int:
    """List the profiles, or print the named ones."""
    parser = make_parser("cluster.profiles", __doc__)
    parser.add_argument(
        "names", nargs="*", metavar="PROFILE", help="profiles to list (default: all)"
    )
    return run_verb(parser, show_profiles, argv)


def show_profiles(args: Namespace) -> list[dict[str, object]]:
    """Run the verb: print a table, return the profiles as JSON values."""
    profiles = [load_profile(name) for name in args.names or profile_names()]
    if not args.json:
        rows = [
            [p.name, *map(_text, (p.rate_mbyte_s, p.delay_ms, p.jitter_pct, p.loss_pct))]
            + [p.tcp, _more(p)]
            for p in profiles
        ]
        print_table(["PROFILE", "RATE MB/s", "DELAY ms", "JITTER %", "LOSS %", "TCP", ""], rows)
    return [asdict(p) for p in profiles]


def _more(profile: Profile) -> str:
    """Return the values that few profiles have, as words."""
    access = {"uplinks": profile.uplink_mbyte_s, "downlinks": profile.downlink_mbyte_s}
    said = [f"{what} of {_text(values)} MB/s" for what, values in access.items() if values]
    said += describe_impairments(
        {field: _text(getattr(profile, field)) for field in IMPAIRMENT_WORDS}
    )
    if not profile.slow_start_after_idle:
        said.append("no slow start after idle")
    if profile.regions:
        said.append(f"{len(profile.regions)} regions")
    return ", ".join(said)


def _text(values: Range) -> str:
    low, high = values
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


if __name__ == "__main__":
    sys.exit(main())
