"""The requested state of a cluster, validated before anything starts; what is left out stays as it is. Pure values."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.base.spec import DEFAULT_NODES, ClusterSpec, free_slot
from cluster.engine.resources import Limit, ResourceRequest
from cluster.hosts.hosts_file import Hosts
from cluster.links.link_spec import LinkSpec

# As github.com/distribution/reference has it: HOST:PORT/PATH:TAG@DIGEST, the path in small letters.
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?"
)


@dataclass(frozen=True)
class Request:
    """A cluster as its user speaks of it; None is what was not said.

    Raises:
        UsageError: a name, a number of nodes, a slot or an image's name that cannot be.
    """

    name: str
    size: int | None
    slot: int | None
    image: str | None
    link_spec: LinkSpec | None
    resources: ResourceRequest
    hosts: Hosts | None = None
    """The machines on which it shall be; None: this one, or where it is."""

    def __post_init__(self) -> None:
        size = DEFAULT_NODES if self.size is None else self.size
        ClusterSpec(self.name, size, self.slot or 0)  # checks them
        if self.image is not None and not IMAGE_NAME.fullmatch(self.image):
            raise UsageError(
                f"{self.image!r} is no image's name", "as in docker build --tag NAME:TAG"
            )

    def spec(self, existing: ClusterSpec | None, taken: Collection[int]) -> ClusterSpec:
        """The cluster to be: what is asked for, at the place where it already is, or at the first that is free.

        Args:
            existing: what there is of it.
            taken: the slots that others hold.

        Raises:
            UsageError: it is up in another slot, no slot is free, or a limit speaks of a node that is not in it.
        """
        if existing is not None and self.slot not in (None, existing.slot):
            raise UsageError(
                f"cluster {self.name!r} is up in slot {existing.slot}, not {self.slot}",
                f"without --slot, or first: python -m cluster.down --name {self.name}",
            )
        base = existing or ClusterSpec(self.name, slot=self._free_slot(taken))
        spec = ClusterSpec(self.name, self.size or base.size, base.slot, self.image or base.image)
        self.limits(spec, {})
        return spec

    def limits(self, spec: ClusterSpec, now: Mapping[str, Limit]) -> dict[str, Limit]:
        """What each node's limits become.

        Raises:
            UsageError: a limit speaks of a node that there is not.
        """
        return self.resources.limits([node.name for node in spec.nodes], now)

    def _free_slot(self, taken: Collection[int]) -> int:
        return free_slot(taken) if self.slot is None else self.slot
