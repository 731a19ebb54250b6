"""Compose for several hosts: one call for each, with its part of the document, and a network that is there before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import document_of
from cluster.engine.compose_up import ComposeUp
from cluster.hosts.each import each_host
from cluster.hosts.host_compose import HostCompose
from cluster.hosts.several import SeveralEngines
from cluster.hosts.swarm import join_hosts
from cluster.hosts.swarm_host import SwarmHost, overlay_name


class SeveralCompose(ComposeUp):
    """A call of compose on each host that has nodes of a cluster.

    Args:
        name: of the cluster.
        engine: of the hosts.
    """

    is_local = False

    def __init__(self, name: str, engine: SeveralEngines) -> None:
        super().__init__(name)
        self.network = overlay_name(name)
        self._engine = engine
        self._calls: list[tuple[HostCompose, Sequence[str]]] = []
        self._holding: list[SwarmHost] = []

    def prepare(self, spec: ClusterSpec) -> None:
        """Join the hosts to one swarm, make the cluster's network there, and have each host know of it.

        Raises:
            UsageError: they are in swarms that are not ours to change. SlotTaken: another network has its addresses.
            ClusterError: a host refused; names it.
        """
        manager = join_hosts(self._engine.engines)
        if self.network not in manager.networks(spec.name):
            manager.make_overlay(spec, encrypted=self._engine.hosts.encrypted)
        shares = {part.host_name: nodes for part, nodes in self._engine.parts(spec)}
        self._holding = [host for host in self._engine.engines if host.host_name in shares]
        each_host(self._holding, lambda host: host.hold_network(spec))
        self._calls = [
            (HostCompose(spec.name, host), shares[host.host_name]) for host in self._holding
        ]

    def get_ready(self) -> None:
        """Nothing: what takes its time is on the hosts."""

    def give(self, document: str) -> None:
        """Give each host its part; raises as ComposeUp's."""
        for call, nodes in self._calls:
            call.give(document_of(document, nodes))

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Whether all of them have; raises as ComposeUp's."""
        return all(call.has_ended(spec) for call, _ in self._calls)

    def finish(self, spec: ClusterSpec) -> None:
        """Wait for all of them, each of which starts its nodes; raises as ComposeUp's."""
        each_host([call for call, _ in self._calls], lambda call: call.finish(spec))
        self._release()

    def end(self) -> None:
        """As ComposeUp's, of all of them."""
        with ExitStack() as stack:
            for call, _ in self._calls:
                stack.enter_context(call)
            self._calls = []
        with suppress(
            ClusterError
        ):  # a host that is lost; what holds the network there ends by itself
            self._release()

    def _release(self) -> None:
        holding, self._holding = self._holding, []
        each_host(holding, lambda host: host.release_network(self._name))
