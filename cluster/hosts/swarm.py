"""Joins hosts to one swarm for a cluster's network, and takes that away again: `cluster.hosts.swarm_plan` says how."""

import time
from collections.abc import Collection, Sequence

from cluster.hosts.each import each_host
from cluster.hosts.swarm_host import SwarmHost, overlay_name
from cluster.hosts.swarm_plan import OUT, plan_joining, plan_leaving

LOOKS, LOOK_INTERVAL_S = 20, 0.5  # at a network whose last containers have just been removed


def join_hosts(hosts: Sequence[SwarmHost]) -> SwarmHost:
    """Make these hosts one swarm, if they are not; returns the one that manages it.

    Raises:
        UsageError: they are in swarms that are not ours to change. ClusterError: one refused; names it.
    """
    plan = plan_joining(each_host(hosts, lambda host: host.member()))
    by_name = {host.host_name: host for host in hosts}
    for name in plan.leaves:
        by_name[name].leave_swarm()
    manager = by_name[plan.manager]
    if plan.makes:
        manager.make_swarm()
    if plan.joins:
        token, address = manager.worker_token()
        joining = [by_name[name] for name in plan.joins]
        each_host(joining, lambda host: host.join_swarm(token, address))
    return manager


def remove_network(hosts: Sequence[SwarmHost], name: str, *, patient: bool = True) -> list[str]:
    """Remove a cluster's network by whichever host manages the swarm; returns its name, if it was there and is gone.

    Without `patient` it is tried once: what a host has that does not answer is never let go.
    """
    for host in hosts:
        if overlay_name(name) in host.networks(name) and _manages(host):
            for _ in range(LOOKS if patient else 1):
                if host.remove_overlay(name):
                    return [overlay_name(name)]
                time.sleep(LOOK_INTERVAL_S)
    return []


def part_hosts(hosts: Sequence[SwarmHost], name: str, gone: Collection[str] = ()) -> list[str]:
    """Have hosts leave a swarm of ours that no other network needs; returns their names.

    Those with the `gone` addresses do not answer, and keep nobody.
    """
    found = each_host(hosts, lambda host: host.member(gone))
    members = {member.host: member for member in found}
    by_name = {host.host_name: host for host in hosts}
    leaving = plan_leaving(list(members.values()), overlay_name(name))
    for host_name in leaving:
        by_name[host_name].leave_swarm()
    for manager in (host for host in hosts if members[host.host_name].is_manager):
        if manager.host_name not in leaving:
            manager.forget_nodes([members[host_name].node_id for host_name in leaving])
    for host_name, member in members.items():
        if member.state == OUT and member.has_our_bridge:  # it could not join
            by_name[host_name].remove_bridge()
    return leaving


def _manages(host: SwarmHost) -> bool:
    return host.member().is_manager
