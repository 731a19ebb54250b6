"""Remove a cluster: containers, volume, network, keys. Runs and the image stay.

    python -m cluster.down
    python -m cluster.down --name second
    python -m cluster.down --all

Other clusters stay. A cluster of another checkout, or one that another command is using, is removed only with --force.
With several hosts, --force also skips those that do not answer, and lists what stays there.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from cluster.api import Cluster
from cluster.base.errors import ClusterError, system_error
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.engine.client import Engine
from cluster.engine.ownership import is_of_checkout
from cluster.hosts.record import clusters_elsewhere

MOST_NAMED = 4  # things of one kind that are listed by name


def main(argv: list[str] | None = None) -> int:
    """Take a cluster down."""
    parser = make_parser("cluster.down", __doc__)
    add_name(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="remove every cluster of this checkout; with --force, of this machine",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="even if in use, of another checkout, or with hosts that do not answer",
    )
    return run_verb(parser, down, argv)


def down(args: Namespace) -> dict[str, object]:
    """Run the verb. Nothing to remove is not an error."""
    if not args.all:
        return {"removed": {args.name: _down(args.name, args)}}
    names = _all_names(force=args.force)
    removed: dict[str, list[str]] = {}
    failed: dict[str, ClusterError] = {}
    for name in names:
        try:
            removed[name] = _down(name, args)
        except (ClusterError, OSError) as error:
            failed[name] = error if isinstance(error, ClusterError) else system_error(error)
    if failed:
        raise _failure(removed, failed)
    return {"removed": removed}


def _down(name: str, args: Namespace) -> list[str]:
    """Remove one cluster, and print and return what was removed."""
    things = Cluster(name, force=args.force).down()
    if not args.json:
        print(f"{name}: removed {in_short(things)}" if things else f"{name}: nothing was up")
    return things


def _failure(
    removed: Mapping[str, Sequence[str]], failed: Mapping[str, ClusterError]
) -> ClusterError:
    """Return one error for the clusters that could not be removed."""
    said = {name: error.message for name, error in failed.items()}
    count = f"{len(failed)} of {len(removed) + len(failed)} clusters were not removed"
    lines = [f"{count}: {', '.join(failed)}", *(f"  {name}: {said[name]}" for name in failed)]
    hints = dict.fromkeys(error.hint for error in failed.values() if error.hint)
    return ClusterError("\n".join(lines), "; ".join(hints), {"removed": removed, "failed": said})


def in_short(things: Sequence[str]) -> str:
    """List what was removed, each with its kind; more than MOST_NAMED of a kind as their number, first and last."""
    kinds: dict[str, list[str]] = {}
    for thing in things:
        kind, _, name = thing.partition(" ")
        kinds.setdefault(kind, []).append(name)
    return ", ".join(
        f"{len(names)} {kind}s ({names[0]} to {names[-1]})"
        if len(names) > MOST_NAMED
        else ", ".join(f"{kind} {name}" for name in names)
        for kind, names in kinds.items()
    )


def _all_names(*, force: bool) -> list[str]:
    """Return every cluster of this checkout; with `force`, also every other cluster on this machine."""
    containers = Engine().containers()
    here = {c.cluster for c in containers if force or is_of_checkout(c)}
    return sorted(here | set(clusters_elsewhere()))


if __name__ == "__main__":
    sys.exit(main())
