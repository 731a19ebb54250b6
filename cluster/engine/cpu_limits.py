"""CPU limits of nodes, changed while they run, and restored."""

from collections.abc import Mapping, Sequence

from cluster.engine.client import Engine
from cluster.engine.resources import ResourceRequest


class CpuLimits:
    """What the nodes of a cluster may use of the processors, changed by wishes and given back.

    Args:
        engine: holds the containers to it.
        name: the cluster's.

    Attributes:
        before: every node's limit when this was made.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._containers = engine.containers(name)
        self.before = engine.limits(self._containers)
        self._in_force = dict(self.before)

    def limit(self, wishes: Sequence[Mapping[str, float | None]]) -> None:
        """What the nodes had before, changed by these wishes, the later over the earlier."""
        new = dict(self.before)
        for cpus in wishes:
            new = ResourceRequest(cpus, {}).limits(list(new), new)
        changed = {node: limit for node, limit in new.items() if limit != self._in_force.get(node)}
        for node in changed:
            self._in_force.pop(node, None)  # where it fails, who knows what the node has
        self._engine.set_limits(self._containers, changed)
        self._in_force |= changed

    def document(self) -> dict[str, dict[str, float | int | str]]:
        """The limits that there were, for a reader."""
        said = {node: limit.document() for node, limit in self.before.items()}
        return {node: words for node, words in said.items() if words}

    def give_back(self) -> bool:
        """Every node what it had; returns whether any had something else."""
        is_changed = self._in_force != self.before
        self.limit([])
        return is_changed
