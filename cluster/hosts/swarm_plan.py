"""Who makes, joins and leaves a swarm: Docker's way to one network over several hosts. Pure values.

A swarm that was there already is used and left as it is; one that we make carries a label, so that whichever cluster is
the last one on it takes it away again. We want nothing of it but the network: no services, no secrets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError

OUT, IN = "inactive", "active"
INGRESS = "ingress"
"""Every swarm has this network."""


@dataclass(frozen=True)
class Member:
    """What the engine of a host says of the swarm that it is in, if any.

    Attributes:
        host: its name.
        state: in the engine's word: inactive, active, pending, error, locked.
        node_id: by which the swarm knows it.
        is_manager: whether it can change the swarm.
        is_ours: whether we made it; a manager alone knows.
        ready: the ids of the nodes that are there; likewise.
        overlays: the networks of the swarm that it sees, but for `INGRESS`: a manager all, others those they use.
        has_our_bridge: whether we made its docker_gwbridge, and so had it join.
    """

    host: str
    state: str = OUT
    node_id: str = ""
    is_manager: bool = False
    is_ours: bool = False
    ready: frozenset[str] = frozenset()
    overlays: tuple[str, ...] = ()
    has_our_bridge: bool = False


@dataclass(frozen=True)
class Joining:
    """How hosts become one swarm: who manages it, whether it has to be made, who joins."""

    manager: str
    makes: bool
    joins: tuple[str, ...]


def plan_joining(members: Sequence[Member]) -> Joining:
    """How these hosts become one swarm; where they are one, nobody has to do anything.

    Raises:
        UsageError: they are in different ones, or in one that we may not change.
    """
    for member in members:
        if member.state not in (IN, OUT):
            raise UsageError(
                f"host {member.host}: the swarm that it is in is in state {member.state!r}",
                f"on host {member.host}: docker info says why; docker swarm leave ends it",
            )
    inside = [member for member in members if member.state == IN]
    outside = tuple(member.host for member in members if member.state == OUT)
    if not inside:
        return Joining(outside[0], makes=True, joins=outside[1:])
    manager = next((member for member in inside if member.is_manager), None)
    if manager is None:
        raise UsageError(
            f"hosts {_names(inside)} are in a swarm, and none of them manages it: no network can be made",
            "name a manager in the hosts file, or on each of them: docker swarm leave",
        )
    strangers = [member for member in inside if member.node_id not in manager.ready]
    if strangers:
        raise UsageError(
            f"host {_names(strangers)} is in another swarm than host {manager.host}, or lost to it",
            f"on host {strangers[0].host}: docker swarm leave",
        )
    if outside and not manager.is_ours:
        raise UsageError(
            f"host {', '.join(outside)} is not in the swarm of host {manager.host}, which is not ours",
            f"on host {manager.host}: docker swarm join-token worker says how it joins",
        )
    return Joining(manager.host, makes=False, joins=outside)


def plan_leaving(members: Sequence[Member], network: str) -> list[str]:
    """The hosts that leave the swarm, in this order, once a cluster's network is not wanted any more.

    Only ours is left, and only by hosts that no other network needs. Where no manager answers those leave that we had
    join.
    """
    inside = [member for member in members if member.state == IN]
    manager = next((member for member in inside if member.is_manager), None)
    free = [member for member in inside if not set(member.overlays) - {network}]
    workers = [member for member in free if not member.is_manager]
    if manager is None:
        return [member.host for member in workers if member.has_our_bridge]
    if not manager.is_ours:
        return []
    known = {member.node_id for member in inside}
    others = manager.ready - known
    leaving = [member.host for member in workers]
    if manager in free and not others and len(workers) == len(inside) - 1:
        leaving.append(manager.host)
    return leaving


def _names(members: Sequence[Member]) -> str:
    return ", ".join(member.host for member in members)
