"""From what there is of a cluster to what is asked for: no more containers, keys, limits and links than are missing."""

from collections.abc import Sequence

from cluster.bringup import (
    check_checkout,
    is_running,
    make_keys,
    make_nodes,
    reach_nodes,
    start_timeout_s,
)
from cluster.compose_process import ComposeUp
from cluster.console import Console
from cluster.engine import Container, Engine
from cluster.errors import NodeError
from cluster.fleet import Fleet
from cluster.node_limits import Wish
from cluster.shaping import Shape, apply_plans, read_shape
from cluster.spec import ClusterSpec
from cluster.wanted import Plan, Wanted, link_plans

CONNECT_TIMEOUT_S = 15.0


def reconcile(
    engine: Engine,
    spec: ClusterSpec,
    wanted: Wanted | None,
    wish: Wish,
    compose: ComposeUp,
    console: Console,
) -> tuple[Fleet, Shape]:
    """Bring a cluster to its spec, its nodes to the limits wished for, and its links to what is wanted.

    Where no links are wanted, they stay as they are; so do limits that nobody speaks of.

    Returns:
        The fleet, logged in, and the links in force.

    Raises:
        ClusterError: what happened, and on which node. What has been made by then stays.
    """
    there = engine.containers(spec.name)
    check_checkout(spec, there)
    now = engine.limits(there)
    limits = wish.limits([node.name for node in spec.nodes], now)
    new_keys = make_keys(spec)
    reachable = [container for container in there if container.node not in new_keys]
    if not is_running(engine, spec, reachable):
        wanted = wanted or _wanted_in_force(spec, reachable, console)
        if len(reachable) < len(there):
            engine.remove(spec.name)  # nobody can log in to some of them any more
            there = []
        plans = link_plans(spec.nodes, wanted) if wanted else {}
        return make_nodes(engine, spec, there, plans, limits, compose)
    engine.set_limits(there, {n: limit for n, limit in limits.items() if limit != now[n]})
    fleet = reach_nodes(engine, spec, start_timeout_s(spec))
    try:
        shape = read_shape(fleet)
        plans = _plans_beside(spec, shape, wanted)
        return fleet, apply_plans(fleet, plans) if plans != shape.plans else shape
    except BaseException:
        fleet.close()
        raise


def _plans_beside(spec: ClusterSpec, shape: Shape, wanted: Wanted | None) -> dict[str, Plan]:
    """What nodes that run shall have: what they have, unless something is wanted or a node has lost its links."""
    if wanted is None and len(shape.plans) in (0, spec.size):
        return dict(shape.plans)  # with whatever `shape --link` has made of them
    wanted = wanted or shape.wanted
    return link_plans(spec.nodes, wanted) if wanted else {}


def _wanted_in_force(
    spec: ClusterSpec, there: Sequence[Container], console: Console
) -> Wanted | None:
    """What the nodes that are there say of their links: a node made anew must get its own again."""
    running = {c.node for c in there if c.state == "running"}
    if not running:
        return None
    fleet = Fleet([node for node in spec.nodes if node.name in running], spec.state_dir)
    try:
        fleet.connect(CONNECT_TIMEOUT_S)
        return read_shape(fleet).wanted
    except NodeError as error:
        console.say(f"the links in force could not be read, so none are laid: {error}")
        return None
    finally:
        fleet.close()
