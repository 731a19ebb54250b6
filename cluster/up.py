"""Bring up a cluster, or change a running one to match the flags.

    python -m cluster.up                                  # three nodes, no shaping
    python -m cluster.up --nodes 4 --profile mobile
    python -m cluster.up --name second --nodes 2          # beside the first
    python -m cluster.up --hosts examples/hosts.yml       # on other machines: docs/hosts.md
    python -m cluster.up --cpus node3=0.5 --memory node2=1g          # limits per node; `none` removes one

Creates what is missing and changes what differs: image, keys, containers, limits, links. Rerun it when in doubt.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cluster.base.console import Console, as_typed
from cluster.base.spec import name_flag
from cluster.cli.command_line import add_force, add_name, add_shape, add_size, make_parser, run_verb
from cluster.engine.compose_up import ComposeUp
from cluster.hosts.record import read_hosts

if TYPE_CHECKING:
    from argparse import Namespace

    from cluster.api import Cluster


def main(argv: list[str] | None = None) -> int:
    """Bring a cluster up."""
    parser = make_parser("cluster.up", __doc__)
    add_name(parser)
    add_size(parser)
    add_shape(parser)
    add_force(parser, ", and over networks and volumes that another checkout has left")
    return run_verb(parser, up, argv)


def up(args: Namespace) -> dict[str, object]:
    """Run the verb. Most modules are imported while compose gets ready, because both take a while."""
    started = time.monotonic()
    is_here = not args.hosts and read_hosts(args.name) is None
    with ComposeUp(args.name) as compose:
        if is_here:
            compose.get_ready()
        from cluster.status import print_status, read_status

        cluster = cluster_of(args, force=args.force)
        try:
            cluster.up_with(compose) if is_here else cluster.up()
            seconds = time.monotonic() - started
            status = read_status(cluster, cluster.link_state_at_up)
        finally:
            cluster.close()
    if not args.json:
        was = "was already up, checked" if cluster.was_there else "is up"
        print(f"cluster {cluster.name} {was} in {seconds:.1f} s")
        print_status(status)
        flag, config = name_flag(cluster.name), f"{cluster.spec.state_dir}/ssh_config"
        verbs = f"python -m cluster.launch{flag}", f"python -m cluster.down{flag}"
        print(as_typed(f"next: {verbs[0]} | ssh -F {config} node1 | {verbs[1]}"))
    return status.document() | {"seconds": round(seconds, 3)}


def cluster_of(args: Namespace, *, force: bool = False) -> Cluster:
    """Return the cluster that --name, --nodes, the options of the links and the others describe."""
    from cluster.api import Cluster
    from cluster.engine.resources import split_words

    return Cluster(
        args.name,
        nodes=args.nodes,
        profile=args.profile,
        topology=args.topology,
        seed=args.link_seed,
        wire=args.wire,
        isolated=args.isolated,
        image=args.image,
        cpus=split_words(args.cpus),
        memory=split_words(args.memory),
        gpus=split_words(args.gpus),
        hosts=args.hosts,
        slot=args.slot,
        console=console_of(args),
        force=force,
    )


def console_of(args: Namespace) -> Console:
    """Return a console whose program output goes to standard output, or to standard error with --json."""
    return Console(program_output=sys.stderr if args.json else sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
