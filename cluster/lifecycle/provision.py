"""Brings nodes up: from a spec to running containers that answer on SSH.

Compose creates the containers while we already connect to the first nodes; whatever fails, the caller gets one error
that says which node and why.
"""

import socket
import time
from collections.abc import Mapping, Sequence

from cluster.base.errors import ClusterError, NodeDied, NodeError, SlotTaken
from cluster.base.files import write_atomically
from cluster.base.spec import ClusterSpec, Node, name_flag
from cluster.engine.client import Engine
from cluster.engine.compose import write_document
from cluster.engine.compose_up import ComposeUp
from cluster.engine.container import Container
from cluster.engine.resources import Limit
from cluster.engine.start_events import watch_start_events
from cluster.shaping.link_state import LinkState, apply_plan, encode, make_link_state
from cluster.ssh.answers import read_answer
from cluster.ssh.connection import TimedOut, load_paramiko
from cluster.ssh.fleet import Fleet
from cluster.ssh.keys import ensure_keys
from protocol.link_report import LinkReport
from protocol.node_plan import NodePlan
from protocol.places import FIRST_PLAN, FIRST_REPORT, FIRST_REPORT_LOCK

# Generous: a dead node and a failed compose are noticed at once, by other means.
START_TIMEOUT_S = 120.0
START_TIMEOUT_PER_NODE_S = 5.0
READ_FIRST_REPORT = ("flock", FIRST_REPORT_LOCK, "cat", FIRST_REPORT)


def make_fleet(engine: Engine, spec: ClusterSpec, nodes: Sequence[Node]) -> Fleet:
    """Return a fleet of some of a cluster's nodes, which knows their hosts if there are several; logs in to none."""
    parts = engine.parts(spec)
    hosts = {node: part.where for part, names in parts for node in names} if parts[1:] else {}
    return Fleet(nodes, spec.state_dir, engine.dial_to(spec), hosts)


def reach_nodes(engine: Engine, spec: ClusterSpec, timeout_s: float) -> Fleet:
    """Log in to running nodes.

    Raises:
        NodeDied: a node has died. NodeError: a node does not answer.
    """
    anew = f"python -m cluster.up{name_flag(spec.name)} recreates it"
    fleet = make_fleet(engine, spec, spec.nodes)
    try:
        fleet.connect(
            timeout_s, lambda: _check_alive(engine, spec, engine.containers(spec.name), anew)
        )
    except BaseException:
        fleet.close()
        raise
    return fleet


def make_nodes(
    engine: Engine,
    spec: ClusterSpec,
    there: Sequence[Container],
    plans: Mapping[str, NodePlan],
    limits: Mapping[str, Limit],
    compose: ComposeUp,
    *,
    slow_start_after_idle: bool,
) -> tuple[Fleet, LinkState]:
    """Create the containers, or change those that exist to the spec.

    Each node gets its plan as soon as it answers, while compose still creates others. Without plans, links stay as
    they are.

    Returns:
        The fleet, logged in, and the links in force.

    Raises:
        ClusterError: a port is busy, compose failed, or a node died.
    """
    if compose.is_local:
        _check_ports(spec, {c.node for c in there})

    # The first links of a new cluster are handed over with its keys: every node lays them while it boots.
    hand_over_plans(spec, {} if there else plans)
    shape_node = apply_plan if there else first_report
    fleet = make_fleet(engine, spec, spec.nodes)
    deadline = time.monotonic() + start_timeout_s(spec)
    with watch_start_events(engine, spec) as starts:

        def check() -> None:
            """Raise if waiting for the nodes is pointless."""
            now = engine.containers(spec.name)
            starts.add(c.node for c in now if c.state == "running")
            if compose.has_ended(spec):
                _check_alive(engine, spec, now, "python -m cluster.doctor")

        def prepare(node: Node) -> LinkReport | None:
            starts.wait(node.name, deadline, fleet.closing)
            _log_in(engine, spec, fleet, node, deadline)
            return shape_node(fleet, node.name, plans[node.name]) if plans else None

        try:
            compose.prepare(spec)
            document = write_document(
                spec,
                limits,
                slow_start_after_idle=slow_start_after_idle,
                mounts_keys=compose.is_local,
                network=compose.network,
            )
            compose.give(document)
            load_paramiko()
            # Old nodes still answer: connect only when compose is done. On other hosts, nodes start only then.
            if there or not compose.is_local:
                compose.finish(spec)
                starts.add(node.name for node in spec.nodes)
            reports = fleet.each(prepare, "not every node came up", check)
            compose.finish(spec)
            return fleet, make_link_state(plans, {n: r for n, r in reports.items() if r}, {})
        except BaseException:
            fleet.close()
            raise
        finally:
            hand_over_plans(spec, {})  # only for the first boot, not a record


def _log_in(engine: Engine, spec: ClusterSpec, fleet: Fleet, node: Node, deadline: float) -> None:
    try:
        fleet.log_in(node, deadline)
    except TimedOut as error:
        said = _last_words(engine, spec.name, node.name)
        raise ClusterError(f"{error.message}; {said}") from error


def hand_over_plans(spec: ClusterSpec, plans: Mapping[str, NodePlan]) -> None:
    """Put each node's first plan beside its keys; remove that of a node without one."""
    for node in spec.nodes:
        path = spec.state_dir / node.name / FIRST_PLAN
        path.unlink(missing_ok=True)
        if node.name in plans:
            write_atomically(path, encode(plans[node.name]), 0o644)


def first_report(fleet: Fleet, node: str, plan: NodePlan) -> LinkReport:
    """Return a new node's report on the links that it laid while it booted; waits until they are laid.

    Raises:
        NodeError: it could not lay them, in its own words.
    """
    done = fleet.run_on(node, READ_FIRST_REPORT)
    if not done.stdout:
        return apply_plan(fleet, node, plan)  # it could not: a new attempt returns the reason
    return read_answer(LinkReport, node, done.stdout)


def is_running(engine: Engine, spec: ClusterSpec, containers: Sequence[Container]) -> bool:
    """Return whether compose has nothing to do: every node runs the current image, in a cluster of this size."""
    ids = engine.image_ids(spec.image)
    return len(containers) == spec.size and all(
        c.state == "running" and c.image_id == ids.get(c.host) and c.size == spec.size
        for c in containers
    )


def _check_alive(
    engine: Engine, spec: ClusterSpec, containers: Sequence[Container], hint: str
) -> None:
    """Check that the created nodes can still answer.

    Raises:
        NodeDied: with its last log lines, or removed. NodeError: a container is paused, or connected to no network.
    """
    dead = [c for c in containers if c.state in ("exited", "dead")]
    if dead:
        words = {c.node: _words(engine.log_tail(c.id)) for c in dead}
        raise NodeDied("a node died", words, hint)
    there = {container.node: container for container in containers}
    found = {node.name: _why_mute(there.get(node.name)) for node in spec.nodes}
    if mute := {node: why for node, why in found.items() if why}:
        error = NodeError if mute.keys() & there.keys() else NodeDied
        raise error("not every node came up", mute, hint)


def _why_mute(container: Container | None) -> str:
    """Return why a node that has not died cannot answer; '' if it can."""
    if container is None:
        return "its container has been removed"
    if container.state == "paused":
        return f"its container is paused: docker unpause {container.name}"
    return "" if container.is_connected else "its container is connected to no network"


def make_keys(engine: Engine, spec: ClusterSpec) -> set[str]:
    """Create missing keys; return the nodes that have new ones, as `ensure_keys`."""
    try:
        return ensure_keys(spec, engine.proxy_commands(spec))
    except PermissionError as error:
        raise ClusterError(
            f"{spec.state_dir} belongs to somebody else: {error}", f"sudo rm -r {spec.state_dir}"
        ) from error


def _check_ports(spec: ClusterSpec, there: set[str]) -> None:
    """Refuse busy ports; compose would, too, but only after creating half of the nodes."""
    busy = [n for n in spec.nodes if n.name not in there and _is_busy(n.ssh_host, n.ssh_port)]
    if busy:
        ports = ", ".join(str(node.ssh_port) for node in busy)
        raise SlotTaken(
            f"port {ports} on {busy[0].ssh_host} is taken by another program",
            "end it, or make the cluster with other ports: --slot S",
        )


def _is_busy(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def start_timeout_s(spec: ClusterSpec) -> float:
    """Return how long nodes may take until they answer."""
    return START_TIMEOUT_S + START_TIMEOUT_PER_NODE_S * spec.size


def _last_words(engine: Engine, name: str, node: str) -> str:
    """Return the state and the last log lines of a node that does not answer."""
    for container in engine.containers(name):
        if container.node == node:
            return f"its container is {container.state} and said: {_words(engine.log_tail(container.id))}"
    return "it has no container"


def _words(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "nothing"
