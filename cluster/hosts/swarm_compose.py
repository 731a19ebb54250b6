"""Compose for several hosts whose nodes share a network of Docker's Swarm mode."""

from __future__ import annotations

from contextlib import suppress

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec, name_flag
from cluster.hosts.each import each_host
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.several_compose import SeveralCompose
from cluster.hosts.swarm import join_hosts
from cluster.hosts.swarm_engines import SwarmEngines
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.swarm_lock import swarm_lock
from cluster.hosts.swarm_plan import Overlay, overlay_name


class SwarmCompose(SeveralCompose):
    """A call of Compose on each host, for nodes on a network that exists before.

    Args:
        name: the cluster's name.
        engine: the engine of its hosts.
    """

    def __init__(self, name: str, engine: SwarmEngines) -> None:
        by_name = {member.host_name: member for member in engine.members}
        super().__init__(name, engine, lambda part: HostCompose(name, by_name[part.host_name]))
        self.network = overlay_name(name)
        self._members = engine.members
        self._encrypted = engine.hosts.encrypted
        self._holding: list[SwarmHost] = []

    def prepare(self, spec: ClusterSpec) -> None:
        """Join the hosts to one swarm, make the cluster's network on it, and make it known to each host with nodes.

        Raises:
            UsageError: they are in swarms that are not ours to change. SlotTaken: another network has its addresses.
            ClusterError: a host refused, or a network of that name is in use and not as requested; names the host.
        """
        super().prepare(spec)
        for call, _ in self._calls:  # Compose gets ready while hosts join
            call.start_early()
        with_nodes = {part.host_name for part, _ in self._engine.parts(spec)}
        # Until holders use the network: from then on no other cluster's `down` dissolves the swarm.
        with swarm_lock():
            self._provide_network(join_hosts(self._members, self._name), spec)
            self._holding = [host for host in self._members if host.host_name in with_nodes]
            each_host(self._holding, lambda host: host.hold_network(spec))

    def finish(self, spec: ClusterSpec) -> None:
        """Wait for all calls, each of which starts its nodes; raises like ComposeUp.finish."""
        super().finish(spec)
        self._release()

    def end(self) -> None:
        """End all calls; see ComposeUp.end."""
        super().end()
        with suppress(ClusterError):  # from a host that is lost; its holder ends by itself
            self._release()

    def _provide_network(self, manager: SwarmHost, spec: ClusterSpec) -> None:
        """Make the cluster's network, unless a former command left it as requested; raises like `prepare`."""
        found = manager.overlay(spec.name)
        if found == Overlay(spec.slot, self._encrypted):
            return
        if found is not None and not manager.remove_overlay(spec.name):
            state = "encrypted" if found.is_encrypted else "not encrypted"
            state = state if found.slot == spec.slot else f"of slot {found.slot}"
            raise ClusterError(
                f"network {self.network} of host {manager.host_name} is in use, and {state}",
                f"first: python -m cluster.down{name_flag(spec.name)}",
            )
        manager.make_overlay(spec, encrypted=self._encrypted)

    def _release(self) -> None:
        holding, self._holding = self._holding, []
        each_host(holding, lambda host: host.release_network(self._name))
