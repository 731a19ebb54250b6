"""Which hosts create, join and leave a Docker swarm, which gives them one network. Pure values.

An existing swarm is used and left unchanged. A swarm that we create has a label, so that the last cluster on it
dissolves it. We use nothing of a swarm but its networks: no services, no secrets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.base.spec import project_name

OUT, IN, PENDING = "inactive", "active", "pending"
INGRESS = "ingress"
"""A network that every swarm has."""
MARK = "gradwire-swarm"
"""An empty volume on each host that is in a swarm of ours."""


@dataclass(frozen=True)
class Member:
    """What a host's engine says of the swarm that the host is in, if any.

    Attributes:
        host: its name.
        state: as the engine calls it: inactive, active, pending, error, locked.
        node_id: its id in the swarm.
        is_manager: whether it can change the swarm.
        is_ours: whether we created the swarm; known to managers only.
        ready: the ids of the swarm's ready nodes; known to managers only.
        listed: the ids of all of its nodes; likewise.
        overlays: the swarm's networks without `INGRESS`; a manager sees all of them, a worker those in use there.
        has_our_mark: whether we made this host join the swarm that it is in, or tried to.
    """

    host: str
    state: str = OUT
    node_id: str = ""
    is_manager: bool = False
    is_ours: bool = False
    ready: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    overlays: tuple[str, ...] = ()
    has_our_mark: bool = False


@dataclass(frozen=True)
class Overlay:
    """The network of a cluster: its slot, and whether its packets are encrypted."""

    slot: int
    is_encrypted: bool


@dataclass(frozen=True)
class Joining:
    """How hosts become one swarm.

    Attributes:
        manager: the host that manages it.
        makes: whether that host has to create it.
        joins: the hosts that join.
        leaves: the hosts that first leave an old swarm of ours.
    """

    manager: str
    makes: bool
    joins: tuple[str, ...]
    leaves: tuple[str, ...] = ()


def overlay_name(name: str) -> str:
    """Return the name of a cluster's network, which is the one that Compose would give it."""
    return f"{project_name(name)}_data"


def is_settled(members: Sequence[Member]) -> bool:
    """Return whether the hosts' states are final; after the restart of a manager, workers need seconds to register."""
    if any(member.state == PENDING for member in members):
        return False
    manager = next((member for member in members if member.is_manager), None)
    inside = [member for member in members if member.state == IN]
    return manager is None or all(member.node_id in manager.ready for member in inside)


def plan_joining(members: Sequence[Member], network: str) -> Joining:
    """Return how these hosts become one swarm for a cluster's network; if they are one already, nothing is to be done.

    Raises:
        UsageError: they are in different swarms, or in one that we may not change.
    """
    stale = tuple(member.host for member in members if _is_stale(member, members, network))
    for member in members:
        if member.state not in (IN, OUT) and member.host not in stale:
            raise UsageError(
                f"host {member.host}: its swarm is in state {member.state!r}",
                f"on host {member.host}: read the reason with docker info; leave it with docker swarm leave",
            )
    outside = tuple(
        member.host for member in members if member.state == OUT or member.host in stale
    )
    inside = [member for member in members if member.host not in outside]
    if not inside:
        return Joining(outside[0], makes=True, joins=outside[1:], leaves=stale)
    manager = next((member for member in inside if member.is_manager), None)
    if manager is None:
        raise UsageError(
            f"host {_names(inside)} is in a swarm that none of the hosts manages: no network can be made",
            "name a manager in the hosts file, or on each of these: docker swarm leave",
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
            f"on host {manager.host}: docker swarm join-token worker, and run the command that it prints",
        )
    return Joining(manager.host, makes=False, joins=outside, leaves=stale)


def plan_leaving(members: Sequence[Member], network: str) -> list[str]:
    """Return the hosts that leave the swarm, in this order, once a cluster's network is not needed any more.

    Only a swarm of ours is left, and only by hosts that no other network needs. If no manager answers, the hosts leave
    that we made join.
    """
    inside = [member for member in members if member.state != OUT]
    manager = next((member for member in inside if member.is_manager), None)
    free = [member for member in inside if not set(member.overlays) - {network}]
    workers = [member for member in free if not member.is_manager]
    if manager is None:
        return [member.host for member in workers if member.has_our_mark]
    if not manager.is_ours:
        return []
    known = {member.node_id for member in inside}
    others = manager.ready - known
    leaving = [member.host for member in workers]
    if manager in free and not others and len(workers) == len(inside) - 1:
        leaving.append(manager.host)
    return leaving


def lost_may_leave(members: Sequence[Member], network: str) -> bool:
    """Return whether hosts that do not answer may leave the swarm, as far as the others know.

    They may if it is ours, and if a cluster's network is the only one on it.
    """
    inside = [member for member in members if member.state != OUT]
    if any(set(member.overlays) - {network} for member in inside):
        return False
    managers = [member for member in inside if member.is_manager]
    if managers:
        return managers[0].is_ours
    return any(member.has_our_mark for member in inside)


def stranded(members: Sequence[Member]) -> list[str]:
    """Return the hosts that are still in a swarm whose managers do not answer."""
    if any(member.is_manager for member in members):
        return []
    return [member.host for member in members if member.state != OUT]


def _is_stale(member: Member, members: Sequence[Member], network: str) -> bool:
    """Return whether a host is left over in a swarm of ours whose manager is gone, or does not know the host.

    It is not if networks of other clusters are in use there, nor if its manager knows it but does not hear it now.
    """
    known = set().union(*(other.ready | other.listed for other in members))
    is_lost = member.state not in (IN, OUT) or (member.state == IN and member.node_id not in known)
    is_free = not set(member.overlays) - {network}
    return is_lost and member.has_our_mark and not member.is_manager and is_free


def _names(members: Sequence[Member]) -> str:
    return ", ".join(member.host for member in members)
