"""Brings a running cluster to its requested state, changing only what differs."""

from collections.abc import Mapping, Sequence

from cluster.base.console import Console
from cluster.base.errors import ClusterError, NodeDied
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.container import Container
from cluster.engine.ownership import check_checkout, check_project
from cluster.engine.resources import Limit, ResourceRequest, moves_gpus, new_gpus
from cluster.lifecycle.new_hosts import measure_new_hosts, record_hosts
from cluster.lifecycle.provision import (
    is_running,
    make_fleet,
    make_keys,
    make_nodes,
    reach_nodes,
    start_timeout_s,
)
from cluster.links.link_spec import LinkSpec, has_slow_start_after_idle
from cluster.links.underlay import underlay_words
from cluster.run.ranks import refuse_busy
from cluster.shaping.cluster_links import read_cluster_links
from cluster.shaping.link_record import plans_to_be, read_record, write_record
from cluster.shaping.link_state import (
    LinkState,
    apply_plans,
    are_on_wire,
    clear_links,
    expected_of,
)
from cluster.shaping.restore import adopt_links, restore_limits, restore_links
from cluster.shaping.temporary_changes import forget
from cluster.shaping.underlay_record import read_underlay
from cluster.ssh.fleet import Fleet
from protocol.node_plan import NodePlan

CONNECT_TIMEOUT_S = 15.0


def reconcile(
    engine: Engine,
    spec: ClusterSpec,
    link_spec: LinkSpec | None,
    resources: ResourceRequest,
    compose: ComposeUp,
    console: Console,
    *,
    force: bool = False,
) -> tuple[Fleet, LinkState]:
    """Bring a cluster to its spec, its nodes to the requested limits, and its links to the requested ones.

    If no links are requested, they become, or stay, as recorded; limits that are not mentioned stay.

    Returns:
        The fleet, logged in, and the links in force.

    Raises:
        ClusterError: what happened, and on which node. What has been created by then stays. Without `force` also if a
            run uses the nodes; then nothing has been changed.
    """
    there = engine.containers(spec.name)
    check_checkout(there)
    check_project(engine, spec)
    fleet = _log_in(engine, spec, there)
    try:
        if fleet is not None and not force:
            refuse_busy(fleet)
        if fleet is not None and link_spec is None:
            adopt_links(fleet, spec)
        there = _unpause(engine, spec, there, console)
        if fleet is None:
            there = _remove_cut_off(engine, there, console)
        killed = restore_limits(engine, spec, console)
        now = engine.limits(there)
        limits = resources.limits([node.name for node in spec.nodes], now)
        new_keys = make_keys(engine, spec)
        reachable = [container for container in there if container.node not in new_keys]
        for part, names in engine.parts(spec):
            for gpus in new_gpus({node: limits[node] for node in names}, now):
                part.check_gpus(spec.image, gpus)
        record_hosts(engine, spec)
        plans = plans_to_be(spec, link_spec)
        anew = moves_gpus(limits, now) or _moves_slow_start(engine, there, plans)
        if is_running(engine, spec, reachable) and not anew:
            changed = {node: limit for node, limit in limits.items() if limit != now[node]}
            engine.set_limits(there, changed)
            if fleet is not None and fleet.nodes != spec.nodes:  # some had to be repaired first
                fleet.close()
                fleet = None
            if fleet is None:
                fleet = _reach(engine, spec, console)
            if fleet is not None:
                link_state = _link_state(fleet, spec, link_spec, console)
                forget(killed)
                return fleet, link_state
    except BaseException:
        if fleet is not None:
            fleet.close()
        raise
    if fleet is not None:
        fleet.close()
    if len(reachable) < len(there):
        engine.remove(spec.name)  # some of them accept no login any more
        there = []
    made = _make(engine, spec, there, link_spec, plans, limits, compose, console)
    forget(killed)
    return made


def refuse_without_keys(spec: ClusterSpec, there: Sequence[Container]) -> None:
    """Refuse to replace nodes that run on hosts if this checkout has keys for none of them.

    They may belong to a user who works in a folder of the same path on another machine.

    Raises:
        ClusterError: names their host.
    """
    running = [c for c in there if c.host and c.state in ("running", "paused")]
    if running and not any((spec.state_dir / c.node).exists() for c in running):
        raise ClusterError(
            f"cluster {spec.name!r} runs on host {running[0].host}, and this checkout has no keys for its nodes: "
            "it may be somebody else's",
            "use another name: --name NAME; if it is yours, replace its nodes: python -m cluster.up --force",
        )


def _moves_slow_start(
    engine: Engine, there: Sequence[Container], plans: Mapping[str, NodePlan]
) -> bool:
    """Return whether a node's slow start after idle differs from the plans': then it needs a new container."""
    asked = has_slow_start_after_idle(plans)
    return any(is_on != asked for is_on in engine.slow_starts(there).values())


def _make(
    engine: Engine,
    spec: ClusterSpec,
    there: Sequence[Container],
    link_spec: LinkSpec | None,
    plans: Mapping[str, NodePlan],
    limits: dict[str, Limit],
    compose: ComposeUp,
    console: Console,
) -> tuple[Fleet, LinkState]:
    """Create missing containers and remove surplus ones; with links by these plans, over hosts that are known."""
    # Over hosts that are still to be measured, links are applied once: afterwards.
    unmeasured = bool(read_underlay(spec).unmeasured())
    fleet, link_state = make_nodes(
        *(engine, spec, there, {} if unmeasured else plans, limits, compose),
        slow_start_after_idle=has_slow_start_after_idle(plans),
    )
    try:
        names = {node.name for node in spec.nodes}
        engine.remove_containers([c for c in there if c.node not in names])
        write_record(spec, plans)  # first: what is measured below may take the links of some nodes
        if measure_new_hosts(spec, fleet, have_links=bool(there)):
            link_state = _apply_over_hosts(fleet, spec, link_spec, console)
    except BaseException:
        fleet.close()
        raise
    return fleet, link_state


def _apply_over_hosts(
    fleet: Fleet, spec: ClusterSpec, link_spec: LinkSpec | None, console: Console
) -> LinkState:
    """Apply the links as they are over the network between hosts, which has just been measured, and say it."""
    plans = plans_to_be(spec, link_spec)
    write_record(spec, plans)
    link_state = apply_plans(fleet, plans) if plans else clear_links(fleet)
    for words in underlay_words(read_underlay(spec), expected_of(link_state)):
        console.say(words)
    return link_state


def _link_state(
    fleet: Fleet, spec: ClusterSpec, link_spec: LinkSpec | None, console: Console
) -> LinkState:
    """Lay the requested links, else the recorded ones, on running nodes; return the links then in force."""
    if measure_new_hosts(spec, fleet):
        return _apply_over_hosts(fleet, spec, link_spec, console)
    plans = plans_to_be(spec, link_spec)
    if link_spec is None and plans == (read_record(spec) or {}):
        return restore_links(fleet, spec, console)
    link_state = read_cluster_links(fleet, spec)
    if are_on_wire(link_state, plans):
        plans = dict(link_state.plans)
    if plans != link_state.plans:
        link_state = apply_plans(fleet, plans)
    write_record(spec, plans)
    return link_state


def _log_in(engine: Engine, spec: ClusterSpec, there: Sequence[Container]) -> Fleet | None:
    """Log in to the nodes that run; return None if one of them does not answer, or none runs: they must be repaired."""
    if not all(container.is_connected for container in there):
        return None
    running = {c.node for c in there if c.state == "running"}
    nodes = [node for node in spec.nodes if node.name in running]
    if not nodes:
        return None
    fleet = make_fleet(engine, spec, nodes)
    try:
        fleet.connect(CONNECT_TIMEOUT_S)
    except BaseException as error:
        fleet.close()
        if isinstance(error, ClusterError):
            return None
        raise
    return fleet


def _reach(engine: Engine, spec: ClusterSpec, console: Console) -> Fleet | None:
    """Log in to running nodes; return None if one has died or been removed since this command began.

    The cause predates it: for example a `down` that was killed, whose requests the engine still carries out.
    """
    try:
        return reach_nodes(engine, spec, start_timeout_s(spec))
    except NodeDied as error:
        console.say(f"{', '.join(error.outcomes)}: died or removed; recreated")
        return None


def _unpause(
    engine: Engine, spec: ClusterSpec, there: list[Container], console: Console
) -> list[Container]:
    """Unpause paused nodes: neither Compose nor we could do anything with them."""
    paused = [container for container in there if container.state == "paused"]
    if not paused:
        return there
    engine.unpause(paused)
    console.say(f"{', '.join(c.node for c in paused)}: paused; unpaused")
    return engine.containers(spec.name)


def _remove_cut_off(engine: Engine, there: list[Container], console: Console) -> list[Container]:
    """Remove nodes that have lost their network: Compose considers them intact, but they are unreachable."""
    cut_off = [container for container in there if not container.is_connected]
    if not cut_off:
        return there
    engine.remove_containers(cut_off)
    console.say(f"{', '.join(c.node for c in cut_off)}: connected to no network; recreated")
    return [container for container in there if container.is_connected]
