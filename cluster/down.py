"""Remove a cluster: containers, network, keys. Runs and the image stay.

    python -m cluster.down
    python -m cluster.down --name second
    python -m cluster.down --all

Clusters of other names stay.
"""

import sys
from argparse import Namespace

from cluster.cli import add_name, make_parser, run_verb
from cluster.engine import Engine
from cluster.testbed import Cluster


def main(argv: list[str] | None = None) -> int:
    """Take a cluster down."""
    parser = make_parser("cluster.down", __doc__)
    add_name(parser)
    parser.add_argument("--all", action="store_true", help="every cluster of this machine")
    return run_verb(parser, down, argv)


def down(args: Namespace) -> dict[str, object]:
    """The verb. Nothing to remove is no error."""
    names = [spec.name for spec in Engine().clusters()] if args.all else [args.name]
    removed = {name: Cluster(name).down() for name in names}
    if not args.json:
        for name, things in removed.items():
            print(f"{name}: removed {', '.join(things)}" if things else f"{name}: nothing was up")
    return {"removed": removed}


if __name__ == "__main__":
    sys.exit(main())
