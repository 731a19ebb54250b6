"""Chooses where a cluster is: on this machine, or on the host that its record or its user names."""

from cluster.base.errors import UsageError
from cluster.base.spec import IMAGE, ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.engine.image import Report, ensure_image, require_image
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.host_engine import HostEngine
from cluster.hosts.hosts_file import Host
from cluster.hosts.record import read_host
from cluster.hosts.ship_image import ship_image


def connect_engine(name: str, asked: Host | None = None) -> Engine:
    """The engine that has, or shall have, a cluster.

    Raises:
        UsageError: the cluster is elsewhere. PrerequisiteError: no engine answers there.
    """
    host = host_of(name, asked)
    return Engine() if host is None else HostEngine(host)


def host_of(name: str, asked: Host | None) -> Host | None:
    """The host of a cluster, or None for this machine.

    Raises:
        UsageError: it is up on another one.
    """
    there = read_host(name)
    if asked is not None and asked != there:
        if there is not None:
            raise UsageError(
                f"cluster {name!r} is up on host {there.name} ({there.ssh})",
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
    return HostCompose(name, engine) if isinstance(engine, HostEngine) else ComposeUp(name)


def provide_image(engine: Engine, image: str, report: Report) -> bool:
    """See that an engine has the nodes' image, and that it is today's; returns whether it had to be built or sent.

    It is built by the engine of this machine, and sent to a host.

    Raises:
        PrerequisiteError, ClusterError: it cannot be had.
    """
    builder = Engine() if isinstance(engine, HostEngine) else engine
    was_built = ensure_image(builder, report)
    if image != IMAGE:
        require_image(builder, image)
    if isinstance(engine, HostEngine):
        return ship_image(builder, engine, image, report) or was_built
    return was_built
