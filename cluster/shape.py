"""Change the links of a running cluster, without a restart.

    python -m cluster.shape --profile wan
    python -m cluster.shape --profile mobile --topology ring --seed 7
    python -m cluster.shape --link node1:node3 --delay 80 --loss 2 --for 10s
    python -m cluster.shape --link node2:node1 --both --loss 100      # cut, until the next --loss
    python -m cluster.shape --link node1:node3 --trace lte.csv --for 60s
    python -m cluster.shape --clear

Links change in place: packets in flight are not lost. A link has one direction, from the first node to the second;
--both also changes the reverse link. With --for, links get their old values back after that time, or on Ctrl-C. A
trace ends by itself, unless --loop repeats it.
"""

import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from pathlib import Path

from cluster.api import Cluster
from cluster.base.console import Console
from cluster.base.errors import UsageError
from cluster.cli.command_line import (
    add_force,
    add_name,
    add_shape,
    make_parser,
    run_verb,
    typed_flags,
)
from cluster.links.changes import make_changes, make_pairs, parse_seconds
from cluster.links.link_spec import make_link_spec
from cluster.links.traces import Playback, load_trace
from cluster.shaping.link_state import LinkState
from cluster.status import print_shape

FIELDS = {
    "rate": ("rate_mbyte_s", "MBYTE_S", "rate on the wire, in 10^6 bytes/s"),
    "delay": ("delay_ms", "MS", "one-way delay"),
    "jitter": ("jitter_ms", "MS", "standard deviation of the delay"),
    "loss": ("loss_pct", "PCT", "packets lost at random"),
    "buffer": ("buffer_ms", "MS", "queue in front of the rate limit"),
    "loss-burst": ("loss_burst", "PACKETS", "mean length of a loss burst; 1: single losses"),
    "duplicate": ("duplicate_pct", "PCT", "packets that arrive twice"),
    "corrupt": ("corrupt_pct", "PCT", "packets with one bit flipped"),
    "reorder": ("reorder_pct", "PCT", "packets that skip the delay and overtake others"),
}
OF_LINK = (*(f"--{name}" for name in FIELDS), "--both", "--for")
OF_PROFILE = ("--topology", "--link-seed", "--seed", "--wire", "--isolated")


def main(argv: list[str] | None = None) -> int:
    """Change the links of a cluster."""
    parser = make_parser("cluster.shape", __doc__)
    add_name(parser)
    add_shape(parser)
    _add_link(parser)
    add_force(parser)
    parser.add_argument("--clear", action="store_true", help="remove all shaping")
    typed = typed_flags(argv)
    return run_verb(parser, lambda args: shape(args, typed), argv)


def shape(args: Namespace, typed: Sequence[str]) -> dict[str, object]:
    """Run the verb; return the links in force and, with --trace, the replay's record.

    Options about a profile that are not among the `typed` flags came from the environment, and may not apply.
    """
    if (args.link or args.clear) and "--profile" not in typed:
        args.profile = None
    if [bool(args.profile), bool(args.link), args.clear].count(True) != 1:
        raise UsageError(
            "exactly one of --profile NAME, --link SRC:DST and --clear is needed",
            "list the profiles: python -m cluster.profiles",
        )
    if not args.profile and (unused := [flag for flag in OF_PROFILE if flag in typed]):
        raise UsageError(f"{unused[0]} is for --profile NAME", f"{unused[0]} … --profile wan")
    cluster = Cluster(args.name, console=Console(), force=args.force)
    try:
        if args.trace:
            link_state, played = _replay(cluster, args)
        else:
            link_state, played = _shape(cluster, args, typed), {}
    finally:
        cluster.close()
    if not args.json:
        print_shape(link_state, args.name)
    return link_state.document() | played


def _add_link(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="SRC:DST",
        help="change this link (repeatable)",
    )
    parser.add_argument("--both", action="store_true", help="also change the reverse link")
    for name, (field, metavar, words) in FIELDS.items():
        parser.add_argument(
            f"--{name}", dest=field, type=float, metavar=metavar, help=f"with --link: {words}"
        )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="with --link: values over time, as CSV or in mahimahi's format (cluster/links/traces.py)",
    )
    parser.add_argument(
        "--loop", action=BooleanOptionalAction, help="with --trace: restart it when it ends"
    )
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        help="with --link: undo the change after this time: 10s, 500ms, 2m",
    )


def _shape(cluster: Cluster, args: Namespace, typed: Sequence[str]) -> LinkState:
    values = {field: getattr(args, field) for field, _, _ in FIELDS.values()}
    if args.loop is not None:
        raise UsageError("--loop is for --trace FILE", "--link node1:node3 --trace lte.csv --loop")
    if args.link:
        seconds = parse_seconds(args.duration) if args.duration else None
        changes = make_changes(args.link, values, both=args.both)
        return cluster.change(changes) if seconds is None else cluster.change_for(changes, seconds)
    if unused := [flag for flag in OF_LINK if flag in typed]:
        raise UsageError(
            f"{unused[0]} is for --link SRC:DST", "--link node1:node3 --delay 80 --for 10s"
        )
    if args.clear:
        return cluster.shape(None)
    link_spec = make_link_spec(
        args.profile, args.topology, args.link_seed, args.wire, isolated=args.isolated
    )
    return cluster.shape(link_spec)


def _replay(cluster: Cluster, args: Namespace) -> tuple[LinkState, dict[str, object]]:
    """Play a trace to its end; return the links after it, and the trace's part of the --json document."""
    if not args.link or any(getattr(args, field) is not None for field, _, _ in FIELDS.values()):
        raise UsageError(
            "a trace is for --link SRC:DST, and has all its values", "--link node1:node3 --trace F"
        )
    trace = load_trace(args.trace)
    playback = Playback(
        trace,
        tuple(make_pairs(args.link, both=args.both)),
        trace.repeats if args.loop is None else args.loop,
        parse_seconds(args.duration) if args.duration else None,
    )
    ended = cluster.replay(playback)
    cluster.console.say(
        f"{trace.name}: {ended.changes} changes, {ended.late} late or never, the latest by {ended.worst_ms:g} ms"
    )
    return cluster.links(), {"trace": playback.record() | ended.record()}


if __name__ == "__main__":
    sys.exit(main())
