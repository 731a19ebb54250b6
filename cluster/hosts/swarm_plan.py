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
    """How hosts become one swarm.

    Attributes:
        manager: who manages it.
        makes: whether it has to make it.
        joins: who joins.
        leaves: who leaves, before all that, one of ours that is no more.
    """

    manager: str
    makes: bool
    joins: tuple[str, ...]
    leaves: tuple[str, ...] = ()


def plan_joining(members: Sequence[Member]) -> Joining:
    """How these hosts become one swarm; where they are one, nobody has to do anything.

    Raises:
        UsageError: they are in different ones, or in one that we may not change.
    """
    stale = tuple(member.host for member in members if _is_stale(member, members))
    for member in members:
        if member.state not in (IN, OUT) and member.host not in stale:
            raise UsageError(
                f"host {member.host}: the swarm that it is in is in state {member.state!r}",
                f"on host {member.host}: docker info says why; docker swarm leave ends it",
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
            f"on host {manager.host}: docker swarm join-token worker says how it joins",
        )
    return Joining(manager.host, makes=False, joins=outside, leaves=stale)


def plan_leaving(members: Sequence[Member], network: str) -> list[str]:
    """The hosts that leave the swarm, in this order, once a cluster's network is not wanted any more.

    Only ours is left, and only by hosts that no other network needs. Where no manager answers those leave that we had
    join.
    """
    inside = [member for member in members if member.state != OUT]
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


def _is_stale(member: Member, members: Sequence[Member]) -> bool:
    """Whether a host is left over in a swarm that we had it join: one whose manager is gone, or does not know it."""
    known = set().union(*(other.ready for other in members))
    is_lost = member.state not in (IN, OUT) or (member.state == IN and member.node_id not in known)
    return is_lost and member.has_our_bridge and not member.is_manager and not member.overlays


def _names(members: Sequence[Member]) -> str:
    return ", ".join(member.host for member in members)
