"""Joins hosts to one swarm for a cluster's network, and undoes that; `cluster.hosts.swarm_plan` decides how."""

import time
from collections.abc import Collection, Sequence

from cluster.base.errors import ClusterError
from cluster.hosts.each import each_host
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.swarm_plan import (
    OUT,
    Member,
    is_settled,
    overlay_name,
    plan_joining,
    plan_leaving,
)

LOOKS, LOOK_INTERVAL_S = 20, 0.5  # for a network whose last containers have just been removed
SETTLE_S = 20.0  # for workers to register with a manager that was restarted
NO_LEADER = "does not have a leader"
"""In the words of a manager that was restarted a moment ago."""


def join_hosts(hosts: Sequence[SwarmHost], name: str) -> SwarmHost:
    """Make these hosts one swarm for a cluster if they are not; return the one that manages it.

    A host that is left over in an old swarm of ours loses its nodes of this cluster: they reach no other host any more.

    Raises:
        UsageError: they are in swarms that are not ours to change. ClusterError: a host refused; names it.
    """
    plan = plan_joining(_settled_members(hosts), overlay_name(name))
    by_name = {host.host_name: host for host in hosts}
    for host_name in plan.leaves:
        _leave_old_swarm(by_name[host_name], name)
    manager = by_name[plan.manager]
    if plan.makes:
        manager.make_swarm()
    if plan.joins:
        token, address = manager.worker_token()
        joining = [by_name[host_name] for host_name in plan.joins]
        each_host(joining, lambda host: host.join_swarm(token, address))
    return manager


def _leave_old_swarm(host: SwarmHost, name: str) -> None:
    """Make a host leave a swarm, after all that uses a cluster's network there; raises like `join_hosts`."""
    host.release_network(name)
    host.remove_containers(host.containers(name))
    host.leave_swarm()


def _settled_members(hosts: Sequence[SwarmHost]) -> list[Member]:
    """Return what hosts say of their swarms, once that is final or SETTLE_S have passed; raises like `join_hosts`."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        is_last = time.monotonic() > deadline
        try:
            members = each_host(hosts, lambda host: host.member())
            if is_last or is_settled(members):
                return members
        except ClusterError as error:
            if is_last or NO_LEADER not in error.message:
                raise
        time.sleep(LOOK_INTERVAL_S)


def remove_network(hosts: Sequence[SwarmHost], name: str, *, patient: bool = True) -> list[str]:
    """Remove a cluster's network through the host that manages the swarm; return its name if that removed it.

    Without `patient` it is tried once: the containers of a host that does not answer use it for good.
    """
    for host in hosts:
        if overlay_name(name) in host.networks(name) and _manages(host):
            for _ in range(LOOKS if patient else 1):
                if host.remove_overlay(name):
                    return [overlay_name(name)]
                time.sleep(LOOK_INTERVAL_S)
    return []


def part_hosts(hosts: Sequence[SwarmHost], name: str, gone: Collection[str] = ()) -> list[str]:
    """Make hosts leave a swarm of ours that no other network needs; return their names.

    Hosts with the `gone` addresses do not answer, and are no reason for the others to stay.
    """
    found = each_host(hosts, lambda host: host.member(gone))
    out = [h.host.internal_ip for h, m in zip(hosts, found, strict=True) if m.state == OUT]
    if out:  # their manager may call them ready for some seconds more
        found = each_host(hosts, lambda host: host.member([*gone, *out]))
    members = {member.host: member for member in found}
    by_name = {host.host_name: host for host in hosts}
    leaving = plan_leaving(list(members.values()), overlay_name(name))
    for host_name in leaving:
        by_name[host_name].leave_swarm()
    for manager in (host for host in hosts if members[host.host_name].is_manager):
        if manager.host_name not in leaving:
            manager.forget_nodes([members[host_name].node_id for host_name in leaving])
    for host_name, member in members.items():
        if member.state == OUT and member.has_our_mark:  # it could not join
            by_name[host_name].remove_traces()
    return leaving


def _manages(host: SwarmHost) -> bool:
    return host.member().is_manager
