"""Chooses the engine of a cluster: of this machine, or of the hosts that its record or its user names."""

from collections.abc import Mapping, Sequence

from cluster.base.errors import ClusterError, PrerequisiteError, UsageError
from cluster.base.spec import IMAGE, ClusterSpec, name_flag
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.image import Progress, ensure_image, require_image
from cluster.hosts.bare_compose import BareCompose
from cluster.hosts.bare_host import BareHost
from cluster.hosts.each import each_host, in_one
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.node_placement import nodes_by_host
from cluster.hosts.record import read_hosts, read_record
from cluster.hosts.remote_engine import RemoteEngine
from cluster.hosts.several import SeveralEngines
from cluster.hosts.several_compose import SeveralCompose
from cluster.hosts.ship_image import ship_image
from cluster.hosts.swarm_compose import SwarmCompose
from cluster.hosts.swarm_engines import SwarmEngines
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.tunnel import Tunnel


def connect_engine(name: str, asked: Hosts | None = None, *, partly: bool = False) -> Engine:
    """Return the engine that has, or will have, a cluster; for several hosts, one that stands for all of theirs.

    Args:
        name: the cluster's name.
        asked: the hosts that its user names; None: this machine, or those on record.
        partly: whether it is enough that some of several hosts answer.

    Raises:
        UsageError: the cluster is elsewhere. PrerequisiteError: no engine answers there.
    """
    hosts = hosts_of(name, asked)
    if hosts is None:
        return Engine()
    if len(hosts.hosts) == 1:
        return HostEngine(hosts.hosts[0]) if hosts.have_engines else BareHost(hosts.hosts[0])
    record = read_record(name)
    nodes = nodes_by_host(record.placement if record else {}, hosts.hosts)
    return _connect_several(name, hosts, nodes, partly=partly)


def _connect_several(
    name: str, hosts: Hosts, nodes: Mapping[str, Sequence[str]], *, partly: bool
) -> SeveralEngines:
    # Started in this thread, not in one for each host: an ssh client ends with the thread that has started it.
    tunnels = [Tunnel(host, waits=False) for host in hosts.hosts]
    found = each_host(tunnels, _connect_or_not)
    engines = [engine for engine in found if not isinstance(engine, ClusterError)]
    lost = {
        host: error
        for host, error in zip(hosts.hosts, found, strict=True)
        if isinstance(error, ClusterError)
    }
    if lost and not (partly and engines):
        raise _unreachable(name, lost, nodes, has_others=bool(engines))
    members = [engine for engine in engines if isinstance(engine, SwarmHost)]
    if members:
        return SwarmEngines(hosts, members, nodes, list(lost))
    return SeveralEngines(hosts, engines, nodes, list(lost))


def _unreachable(
    name: str,
    lost: Mapping[Host, ClusterError],
    nodes: Mapping[str, Sequence[str]],
    *,
    has_others: bool,
) -> ClusterError:
    """Return one error for all hosts that do not answer; `has_others`: whether other hosts do."""
    errors = [_with_nodes(error, nodes[host.name]) for host, error in lost.items()]
    error = in_one(errors)
    if has_others and any(nodes[host.name] for host in lost):
        them = "them" if len(lost) > 1 else "it"
        command = f"python -m cluster.down{name_flag(name)} --force"
        error.hint += f"; or remove the cluster without {them}: {command}"
    return error


def _with_nodes(error: ClusterError, nodes: Sequence[str]) -> ClusterError:
    """Return the error of one of several hosts, extended by the cluster's nodes on it."""
    if not nodes:
        return error
    return PrerequisiteError(f"{error.message} (it has {', '.join(nodes)})", error.hint)


def _connect_or_not(tunnel: Tunnel) -> RemoteEngine | ClusterError:
    try:
        tunnel.wait()
        kind = SwarmHost if tunnel.host.has_engine else BareHost
        return kind(tunnel.host, tunnel)
    except ClusterError as error:
        return error


def has_ended(engine: Engine) -> bool:
    """Return whether the SSH connection to a host of this engine has ended: then the engine is of no use any more."""
    return any(isinstance(one, RemoteEngine) and one.tunnel.has_ended for one in engine.engines)


def has_lost(engine: Engine) -> bool:
    """Return whether this engine stands for several hosts of which some do not answer."""
    return isinstance(engine, SeveralEngines) and bool(engine.lost)


def hosts_of(name: str, asked: Hosts | None) -> Hosts | None:
    """Return the hosts of a cluster, or None for this machine.

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
    """Return the Compose call that creates containers through this engine."""
    if isinstance(engine, SwarmEngines):
        return SwarmCompose(name, engine)
    if isinstance(engine, SeveralEngines):
        return SeveralCompose(name, engine, lambda host: _compose_on(name, host, engine))
    return _compose_on(name, engine, engine)


def _compose_on(name: str, host: Engine, engine: Engine) -> ComposeUp:
    """Return the Compose call for one host of an engine, or for this machine."""
    if isinstance(host, BareHost):
        return BareCompose(name, host, engine)
    return HostCompose(name, host) if isinstance(host, HostEngine) else ComposeUp(name)


def provide_image(engine: Engine, image: str, report: Progress) -> bool:
    """Make sure that an engine has the current image of the nodes; return whether it had to be built or sent.

    The engine of this machine builds it; hosts get a copy.

    Raises:
        UsageError: a host has another architecture. PrerequisiteError, ClusterError: no image could be built or sent.
    """
    hosts = [host for host in engine.engines if isinstance(host, RemoteEngine)]
    builder = Engine() if hosts else engine
    _check_architecture(builder, hosts)
    was_built = ensure_image(builder, report)
    if image != IMAGE:
        require_image(builder, image)
    return ship_image(builder, hosts, image, report) or was_built


def _check_architecture(builder: Engine, hosts: Sequence[RemoteEngine]) -> None:
    """Refuse hosts on which an image of this machine does not run."""
    here = builder.architecture() if hosts else ""
    kinds = each_host(hosts, lambda host: host.architecture())
    for host, kind in zip(hosts, kinds, strict=True):
        if kind != here:
            raise UsageError(
                f"host {host.host_name} is {kind}, and this machine {here}: the image is for one of them",
                f"use hosts that are {here}, or run the same command on a machine that is {kind}",
            )
