"""Measure every link and compare it with what was asked for.

    python -m cluster.verify
    python -m cluster.verify --quick         # round trips, jitter and loss only
    python -m cluster.verify --full --json   # more pings, and TCP on every link, however long it takes

Measures round trip, jitter, loss and speed of every directed link, in rounds in which probes do not share a link, and
says first how long that takes. If TCP on every link would take more than --budget, datagrams measure the rates of all
links, and TCP runs on one link out of each node or fewer. A link that seems broken is measured up to three times before
it is called broken; if a busy host may be the cause, it is called undecided instead: verifying it needs a quieter
machine, or fewer nodes at once. Exit 0: every link is as asked; exit 1: the table says which are broken or undecided.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence

from cluster.api import Cluster
from cluster.cli.command_line import add_force, add_name, make_parser, run_verb, typed_flags
from cluster.contract.refusal import refusal
from cluster.contract.table import print_contract

EFFORTS = {
    "quick": "round trips, jitter and loss only",
    "full": "more pings, and TCP on every link, however long it takes",
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
        help="time limit for TCP on every link (default: 58; up to 3 nodes: 14.5; --full: none)",
    )
    typed = typed_flags(argv)
    return run_verb(parser, lambda args: verify(args, typed), argv)


def verify(args: Namespace, typed: Sequence[str]) -> dict[str, object]:
    """Run the verb; return the contract as --json prints it.

    A budget that is not among the `typed` flags came from the environment, and does not apply to --quick.
    """
    has_budget = args.effort != "quick" or "--budget" in typed
    cluster = Cluster(args.name, force=args.force)
    try:
        contract = cluster.verify(args.effort, args.budget if has_budget else None)
    finally:
        cluster.close()
    if not args.json:
        print_contract(contract, sys.stdout)
    if not contract.holds:
        raise refusal(contract, args.name)
    return contract.document()


if __name__ == "__main__":
    sys.exit(main())
