"""Compose for several hosts: one call for each host, with its part of the document and a network that exists before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec, name_flag
from cluster.engine.compose import document_of
from cluster.engine.compose_up import ComposeUp
from cluster.hosts.each import each_host
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.several import SeveralEngines
from cluster.hosts.swarm import join_hosts
from cluster.hosts.swarm_host import SwarmHost
from cluster.hosts.swarm_lock import swarm_lock
from cluster.hosts.swarm_plan import Overlay, overlay_name


class SeveralCompose(ComposeUp):
    """A call of Compose on each host that has nodes of a cluster.

    Args:
        name: the cluster's name.
        engine: the engine of its hosts.
    """

    is_local = False

    def __init__(self, name: str, engine: SeveralEngines) -> None:
        super().__init__(name)
        self.network = overlay_name(name)
        self._engine = engine
        self._calls: list[tuple[HostCompose, Sequence[str]]] = []
        self._holding: list[SwarmHost] = []

    def prepare(self, spec: ClusterSpec) -> None:
        """Join the hosts to one swarm, make the cluster's network on it, and make it known to each host with nodes.

        Raises:
            UsageError: they are in swarms that are not ours to change. SlotTaken: another network has its addresses.
            ClusterError: a host refused, or a network of that name is in use and not as requested; names the host.
        """
        shares = {part.host_name: nodes for part, nodes in self._engine.parts(spec)}
        # Until holders use the network: from then on no other cluster's `down` dissolves the swarm.
        with swarm_lock():
            self._provide_network(join_hosts(self._engine.engines), spec)
            self._holding = [host for host in self._engine.engines if host.host_name in shares]
            each_host(self._holding, lambda host: host.hold_network(spec))
        self._calls = [
            (HostCompose(spec.name, host), shares[host.host_name]) for host in self._holding
        ]

    def _provide_network(self, manager: SwarmHost, spec: ClusterSpec) -> None:
        """Make the cluster's network, unless a former command left it as requested; raises like `prepare`."""
        encrypted = self._engine.hosts.encrypted
        found = manager.overlay(spec.name)
        if found == Overlay(spec.slot, encrypted):
            return
        if found is not None and not manager.remove_overlay(spec.name):
            state = "encrypted" if found.is_encrypted else "not encrypted"
            state = state if found.slot == spec.slot else f"of slot {found.slot}"
            raise ClusterError(
                f"network {self.network} of host {manager.host_name} is in use, and {state}",
                f"first: python -m cluster.down{name_flag(spec.name)}",
            )
        manager.make_overlay(spec, encrypted=encrypted)

    def get_ready(self) -> None:
        """Do nothing: the slow part is on the hosts."""

    def give(self, document: str) -> None:
        """Give each host its part; raises like ComposeUp.give."""
        for call, nodes in self._calls:
            call.give(document_of(document, nodes))

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Return whether all calls have ended; raises like ComposeUp.has_ended."""
        return all(call.has_ended(spec) for call, _ in self._calls)

    def finish(self, spec: ClusterSpec) -> None:
        """Wait for all calls, each of which starts its nodes; raises like ComposeUp.finish."""
        each_host([call for call, _ in self._calls], lambda call: call.finish(spec))
        self._release()

    def end(self) -> None:
        """End all calls; see ComposeUp.end."""
        with ExitStack() as stack:
            for call, _ in self._calls:
                stack.enter_context(call)
            self._calls = []
        with suppress(ClusterError):  # from a host that is lost; its holder ends by itself
            self._release()

    def _release(self) -> None:
        holding, self._holding = self._holding, []
        each_host(holding, lambda host: host.release_network(self._name))
