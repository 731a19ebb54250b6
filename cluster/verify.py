"""Measure every link and hold it against what was asked of it.

    python -m cluster.verify
    python -m cluster.verify --quick         # round trips, jitter and loss only
    python -m cluster.verify --full --json   # more pings, and TCP on every link, whatever it takes

Round trip, jitter, loss and speed of every directed link, in rounds so that probes do not share a link. How long that
takes is said first. Where TCP on every link would take more than --budget, datagrams tell the rates of all, and TCP is
tried on one link out of each node or fewer. A link that seems broken is measured up to three times before it is called
so, and where what is wrong with it may be a busy host's doing it is called undecided: that needs a quieter machine, or
fewer nodes at once. Exit 0: every link is what was asked for; exit 1: the table says which is broken, and which
undecided.
"""

import sys
from argparse import Namespace

from cluster.api import Cluster
from cluster.cli.command_line import add_force, add_name, make_parser, run_verb
from cluster.contract.refusal import refusal
from cluster.contract.table import print_contract

EFFORTS = {
    "quick": "round trips, jitter and loss only",
    "full": "more pings, and TCP on every link, whatever it takes",
}


def main(argv: list[str] | None = None) -> int:
    """Verify the links of a cluster."""
    parser = make_parser("cluster.verify", __doc__)
    add_name(parser)
    add_force(parser)
    effort = parser.add_mutually_exclusive_group()
    for name, words in EFFORTS.items():
        effort.add_argument(
            f"--{name}",
            dest="effort",
            action="store_const",
            const=name,
            default="normal",
            help=words,
        )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="time for TCP on every link (default: 58, of three nodes 14.5; none with --full)",
    )
    return run_verb(parser, verify, argv)


def verify(args: Namespace) -> dict[str, object]:
    """Run the verb; return the contract as --json prints it."""
    cluster = Cluster(args.name, force=args.force)
    try:
        contract = cluster.verify(args.effort, args.budget)
    finally:
        cluster.close()
    if not args.json:
        print_contract(contract, sys.stdout)
    if not contract.holds:
        raise refusal(contract, args.name)
    return contract.document()


if __name__ == "__main__":
    sys.exit(main())
