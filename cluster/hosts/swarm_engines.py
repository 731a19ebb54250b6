"""Several Docker engines whose containers share a network of Docker's Swarm mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cluster.hosts.clean_up import clean_up_command, docker_words, ssh_command
from cluster.hosts.each import each_host
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.several import SeveralEngines
from cluster.hosts.swarm import part_hosts, remove_network
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.swarm_lock import swarm_lock
from cluster.hosts.swarm_plan import lost_may_leave, overlay_name, stranded

T = TypeVar("T")


class SwarmEngines(SeveralEngines):
    """Several Docker engines; hosts also leave their swarm if it is ours and nothing else needs it."""

    def __init__(
        self,
        hosts: Hosts,
        engines: Sequence[SwarmHost],
        nodes: Mapping[str, Sequence[str]],
        lost: Sequence[Host] = (),
    ) -> None:
        super().__init__(hosts, engines, nodes, lost)
        self.members = tuple(engines)
        self._lost_may_leave = self._manager_answers = False

    def remove_between(self, name: str) -> list[str]:
        """See SeveralEngines.remove_between: the network, its holders, and the swarm if nothing else needs it."""
        held = self._each_member(lambda host: host.release_network(name))
        with swarm_lock():  # no other cluster's `up` counts on the swarm meanwhile
            networks, parted = self._dissolve(name)
        return [
            *(f"container {holder}" for holders in held for holder in holders),
            *(f"network {network}" for network in networks),
            *(f"swarm of host {host}" for host in parted),
        ]

    def left_behind(self, name: str) -> list[str]:
        """See Engine.left_behind; also what the other hosts keep because of the lost ones."""
        if not self.lost:
            return []
        network = overlay_name(name)
        stay = stranded(self._each_member(lambda host: host.member()))
        stay = [] if self._manager_answers else stay
        return [
            *(self._left_on(host, name) for host in self.lost),
            *(_kept_network(one, network) for one in self.members if network in one.networks(name)),
            *(_stays_in_swarm(one) for one in self.members if one.host_name in stay),
        ]

    def _each_member(self, action: Callable[[SwarmHost], T]) -> list[T]:
        """Run an action on all hosts at once; raises like `containers`."""
        return each_host(self.members, lambda host: self._ask(host, lambda _: action(host)))

    def _dissolve(self, name: str) -> tuple[list[str], list[str]]:
        """Remove a cluster's network; return its name, and the names of the hosts that then left the swarm."""
        gone = [host.internal_ip for host in self.lost]
        networks = remove_network(self.members, name, patient=not self.lost)
        if self.lost:
            # Before hosts leave, and kept: afterwards nobody knows whose the swarm was.
            members = self._each_member(lambda host: host.member(gone))
            self._lost_may_leave |= lost_may_leave(members, overlay_name(name))
            self._manager_answers |= any(member.is_manager for member in members)
        return networks, part_hosts(self.members, name, gone)

    def _left_on(self, host: Host, name: str) -> str:
        leaves = self._lost_may_leave
        place = ", and its place in the swarm" if leaves else ""
        manages = not self._manager_answers
        command = clean_up_command(host, name, manages=manages, leaves_swarm=leaves)
        return (
            f"host {host.name} does not answer: {self.nodes_on(host)} of {name!r} stay there{place}; "
            f"once it is back: {command}"
        )


def _kept_network(engine: SwarmHost, network: str) -> str:
    command = ssh_command(engine.host, f"{docker_words(engine.host)} network rm {network}")
    return (
        f"network {network} stays on host {engine.host_name}: the lost ones use it; "
        f"once they do not: {command}"
    )


def _stays_in_swarm(engine: SwarmHost) -> str:
    command = ssh_command(engine.host, f"{docker_words(engine.host)} swarm leave")
    return (
        f"host {engine.host_name} stays in a swarm whose manager does not answer; "
        f"if nothing else needs that: {command}"
    )
