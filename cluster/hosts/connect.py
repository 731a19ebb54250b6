"""Chooses where a cluster is: on this machine, or on the hosts that its record or its user names."""

from collections.abc import Mapping, Sequence

from cluster.base.errors import ClusterError, PrerequisiteError, UsageError
from cluster.base.spec import IMAGE, ClusterSpec, name_flag
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.image import Report, ensure_image, require_image
from cluster.hosts.each import each_host
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.hosts_file import Hosts
from cluster.hosts.placement import nodes_by_host
from cluster.hosts.record import read_hosts, read_record
from cluster.hosts.several import SeveralEngines
from cluster.hosts.several_compose import SeveralCompose
from cluster.hosts.ship_image import ship_image
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.tunnel import Tunnel


def connect_engine(name: str, asked: Hosts | None = None, *, partly: bool = False) -> Engine:
    """The engine that has, or shall have, a cluster; of several hosts one that stands for theirs.

    With `partly` those of several hosts will do that answer.

    Raises:
        UsageError: the cluster is elsewhere. PrerequisiteError: no engine answers there.
    """
    hosts = hosts_of(name, asked)
    if hosts is None:
        return Engine()
    if len(hosts.hosts) == 1:
        return HostEngine(hosts.hosts[0])
    record = read_record(name)
    nodes = nodes_by_host(record.placement if record else {}, hosts.hosts)
    return _connect_several(name, hosts, nodes, partly=partly)


def _connect_several(
    name: str, hosts: Hosts, nodes: Mapping[str, Sequence[str]], *, partly: bool
) -> SeveralEngines:
    # From here and not from threads of their own: an ssh client ends with the thread that has started it.
    tunnels = [Tunnel(host, waits=False) for host in hosts.hosts]
    found = each_host(tunnels, _connect_or_not)
    engines = [engine for engine in found if isinstance(engine, SwarmHost)]
    lost = {
        host: error
        for host, error in zip(hosts.hosts, found, strict=True)
        if isinstance(error, ClusterError)
    }
    for host, error in lost.items():
        if not (partly and engines):
            raise _unreachable(name, error, nodes[host.name])
    return SeveralEngines(hosts, engines, nodes, list(lost))


def _unreachable(name: str, error: ClusterError, nodes: Sequence[str]) -> ClusterError:
    """Of one of several hosts, with the nodes of a cluster that it has."""
    if not nodes:
        return error
    without = f"python -m cluster.down{name_flag(name)} --force"
    return PrerequisiteError(
        f"{error.message} (it has {', '.join(nodes)})", f"{error.hint}; {without} goes without it"
    )


def _connect_or_not(tunnel: Tunnel) -> SwarmHost | ClusterError:
    try:
        tunnel.wait()
        return SwarmHost(tunnel.host, tunnel)
    except ClusterError as error:
        return error


def hosts_of(name: str, asked: Hosts | None) -> Hosts | None:
    """The hosts of a cluster, or None for this machine.

    Raises:
        UsageError: it is up elsewhere.
    """
    there = read_hosts(name)
    if asked is not None and asked != there:
        if there is not None:
            raise UsageError(
                f"cluster {name!r} is up on {there.words}",
                f"first: python -m cluster.down --name {name}",
            )
        if ClusterSpec(name).state_dir.exists():
            raise UsageError(
                f"cluster {name!r} is up on this machine",
                f"first: python -m cluster.down --name {name}",
            )
    return there or asked


def compose_for(name: str, engine: Engine) -> ComposeUp:
    """What makes containers by this engine."""
    if isinstance(engine, SeveralEngines):
        return SeveralCompose(name, engine)
    return HostCompose(name, engine) if isinstance(engine, HostEngine) else ComposeUp(name)


def provide_image(engine: Engine, image: str, report: Report) -> bool:
    """See that an engine has the nodes' image, and that it is today's; returns whether it had to be built or sent.

    It is built by the engine of this machine, and sent to hosts.

    Raises:
        PrerequisiteError, ClusterError: it cannot be had.
    """
    hosts = [host for host in engine.engines if isinstance(host, HostEngine)]
    builder = Engine() if hosts else engine
    was_built = ensure_image(builder, report)
    if image != IMAGE:
        require_image(builder, image)
    return ship_image(builder, hosts, image, report) or was_built
