"""Compose for a host: it creates the containers, we copy their keys into them, and then start them."""

from collections.abc import Sequence

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine.compose_up import ComposeUp, OldCompose, compose_failure
from cluster.engine.container import Container
from cluster.hosts.host_engine import HostEngine


class HostCompose(ComposeUp):
    """One call of Compose for one cluster on a host.

    A host cannot mount a folder of this machine, so keys are copied into containers before they start.

    Args:
        name: the cluster's name.
        engine: the host's engine.
    """

    is_local = False

    def __init__(self, name: str, engine: HostEngine) -> None:
        super().__init__(name)
        self._engine, self.where = engine, engine.where
        self._document = ""
        self._is_finished = False

    def finish(self, spec: ClusterSpec) -> None:
        """Wait until Compose has created the containers, then start them with keys; raises like ComposeUp.finish."""
        self._make(spec)
        if not self._is_finished:
            names = {node.name for node in spec.nodes}
            containers = [c for c in self._engine.containers(spec.name) if c.node in names]
            self._engine.copy_keys(spec, containers)
            self._start_nodes(spec, containers)
            self._is_finished = True

    def give(self, document: str) -> None:
        """See ComposeUp.give."""
        self._document = document
        super().give(document)

    def _make(self, spec: ClusterSpec) -> None:
        try:
            super().finish(spec)
        except OldCompose:  # it can only create containers, so all nodes are created anew
            self._engine.remove_containers(self._engine.containers(spec.name))
            self._forget()
            super().give(self._document)
            super().finish(spec)

    def _start_nodes(self, spec: ClusterSpec, containers: Sequence[Container]) -> None:
        try:
            self._engine.start(containers)
        except ClusterError as error:  # a port that is in use is noticed only now
            raise compose_failure(error.message, spec, self.where) from error

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"DOCKER_HOST": self._engine.tunnel.engine_url}
