"""Changes CPU limits of running nodes, and restores them."""

from collections.abc import Mapping, Sequence

from cluster.engine.client import Engine
from cluster.engine.resources import ResourceRequest


class CpuLimits:
    """The CPU limits of a cluster's nodes, changed temporarily and restored.

    Args:
        engine: the cluster's engine.
        name: the cluster.

    Attributes:
        before: every node's limits when this object was created.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._containers = engine.containers(name)
        self.before = engine.limits(self._containers)
        self._in_force = dict(self.before)

    def limit(self, wishes: Sequence[Mapping[str, float | None]]) -> None:
        """Apply these wishes to the limits in `before`, later ones over earlier ones, and put the result in force."""
        new = dict(self.before)
        for cpus in wishes:
            new = ResourceRequest(cpus, {}).limits(list(new), new)
        changed = {node: limit for node, limit in new.items() if limit != self._in_force.get(node)}
        for node in changed:
            self._in_force.pop(node, None)  # unknown if set_limits fails
        self._engine.set_limits(self._containers, changed)
        self._in_force |= changed

    def document(self) -> dict[str, dict[str, float | int | str]]:
        """Return the limits in `before`, for JSON; nodes without limits are left out."""
        said = {node: limit.document() for node, limit in self.before.items()}
        return {node: words for node, words in said.items() if words}

    def give_back(self) -> bool:
        """Restore every node's limits; return whether any differed."""
        is_changed = self._in_force != self.before
        self.limit([])
        return is_changed
