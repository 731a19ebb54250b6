"""The requested state of a cluster, validated before anything starts; omitted values stay as they are. Pure values."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.base.spec import DEFAULT_NODES, ClusterSpec, free_slot
from cluster.engine.resources import Limit, ResourceRequest
from cluster.hosts.hosts_file import Hosts
from cluster.links.link_spec import LinkSpec

# The grammar of github.com/distribution/reference: HOST:PORT/PATH:TAG@DIGEST, the path in lower case.
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?"
)


@dataclass(frozen=True)
class Request:
    """A cluster as requested by its user; None: not specified.

    Raises:
        UsageError: the name, the number of nodes, the slot or the image's name is invalid.
    """

    name: str
    size: int | None
    slot: int | None
    image: str | None
    link_spec: LinkSpec | None
    resources: ResourceRequest
    hosts: Hosts | None = None
    """The hosts for its nodes; None: this machine, or where it already is."""

    def __post_init__(self) -> None:
        size = DEFAULT_NODES if self.size is None else self.size
        ClusterSpec(self.name, size, self.slot or 0)  # validates them
        if self.image is not None and not IMAGE_NAME.fullmatch(self.image):
            raise UsageError(
                f"{self.image!r} is no image's name", "a name as in docker build --tag NAME:TAG"
            )

    def spec(self, existing: ClusterSpec | None, taken: Collection[int]) -> ClusterSpec:
        """Return the cluster to create or change to: in the slot that it already has, or in the first free one.

        Args:
            existing: the cluster as it is; None if it does not exist.
            taken: slots of other clusters.

        Raises:
            UsageError: it is up in another slot, no slot is free, or a limit names a node that is not in it.
        """
        if existing is not None and self.slot not in (None, existing.slot):
            raise UsageError(
                f"cluster {self.name!r} is up in slot {existing.slot}, not {self.slot}",
                f"leave --slot out, or first: python -m cluster.down --name {self.name}",
            )
        base = existing or ClusterSpec(self.name, slot=self._free_slot(taken))
        spec = ClusterSpec(self.name, self.size or base.size, base.slot, self.image or base.image)
        self.limits(spec, {})
        return spec

    def limits(self, spec: ClusterSpec, now: Mapping[str, Limit]) -> dict[str, Limit]:
        """Return the new limits of each node.

        Raises:
            UsageError: a limit names a node that does not exist.
        """
        return self.resources.limits([node.name for node in spec.nodes], now)

    def _free_slot(self, taken: Collection[int]) -> int:
        return free_slot(taken) if self.slot is None else self.slot
