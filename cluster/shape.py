"""Change the links of a running cluster, without a restart.

    python -m cluster.shape --profile wan
    python -m cluster.shape --profile mobile --seed 7 --wire nfqueue
    python -m cluster.shape --clear

Links change in place: what is under way on them is not lost.
"""

import sys
from argparse import Namespace

from cluster.cli import add_name, add_shape, make_parser, run_verb
from cluster.console import Console
from cluster.errors import UsageError
from cluster.shaping import make_wanted
from cluster.status import print_shape
from cluster.testbed import Cluster


def main(argv: list[str] | None = None) -> int:
    """Shape the links of a cluster."""
    parser = make_parser("cluster.shape", __doc__)
    add_name(parser)
    add_shape(parser)
    parser.add_argument("--clear", action="store_true", help="take all shaping off")
    return run_verb(parser, shape, argv)


def shape(args: Namespace) -> dict[str, object]:
    """The verb."""
    if args.clear == bool(args.profile):
        raise UsageError(
            "either --profile NAME or --clear", "python -m cluster.profiles lists the profiles"
        )
    wanted = None if args.clear else make_wanted(args.profile, args.topology, args.seed, args.wire)
    cluster = Cluster(args.name, console=Console())
    try:
        document = cluster.shape(wanted).document()
    finally:
        cluster.close()
    if not args.json:
        print_shape(document)
    return document


if __name__ == "__main__":
    sys.exit(main())
