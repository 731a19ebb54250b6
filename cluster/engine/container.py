"""A node's container as the engine lists it. Labels alone prove nothing: its name must agree with them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.base.errors import UsageError
from cluster.base.spec import IMAGE, ClusterSpec, project_name
from cluster.engine.compose import (
    LABEL_IMAGE,
    LABEL_NODE,
    LABEL_SIZE,
    LABEL_SLOT,
    shared_volume,
)
from protocol.labels import LABEL_CLUSTER, WORKING_DIR


@dataclass(frozen=True)
class Container:
    """One node's container, as the engine lists it.

    `is_connected`: whether it is connected to a network, running or not; `host`: its host, empty for this machine.
    """

    id: str
    cluster: str
    node: str
    size: int
    slot: int
    state: str
    health: str
    image: str
    image_id: str
    working_dir: str
    name: str
    is_connected: bool
    host: str = ""

    @property
    def spec(self) -> ClusterSpec:
        """The spec of its cluster, as its labels say."""
        return ClusterSpec(self.cluster, self.size, self.slot, self.image)


def read_container(item: dict, host: str) -> Container | None:  # type: ignore[type-arg]
    """Return a listed container if it is one of our nodes, else None: its labels must be complete and fit its name."""
    labels = item["Labels"]
    status = item["Status"]
    health = status[status.find("(") + 1 : -1].removeprefix("health: ") if "(" in status else ""
    if not all(is_number(labels.get(key, "")) for key in (LABEL_SIZE, LABEL_SLOT)):
        return None
    cluster, node, name = labels[LABEL_CLUSTER], labels[LABEL_NODE], container_name(item)
    # While Compose recreates a container, the old one has an id in front of its name.
    if not re.fullmatch(rf"([0-9a-f]{{12}}_)?{re.escape(project_name(cluster))}-node[0-9]+", name):
        return None
    try:
        ClusterSpec(cluster, int(labels[LABEL_SIZE]), int(labels[LABEL_SLOT]))
    except UsageError:
        return None
    if not name.endswith(f"-{node}"):
        return None
    return Container(
        id=item["Id"],
        cluster=cluster,
        node=node,
        size=int(labels[LABEL_SIZE]),
        slot=int(labels[LABEL_SLOT]),
        state=item["State"],
        health=health if item["State"] == "running" else "",
        image=labels.get(LABEL_IMAGE, IMAGE),
        image_id=item["ImageID"],
        working_dir=labels.get(WORKING_DIR, ""),
        name=name,
        is_connected=bool(item["NetworkSettings"]["Networks"]),
        host=host,
    )


def container_name(item: dict) -> str:  # type: ignore[type-arg]
    """Return a container's own name without its leading slash, not the names of other containers' links to it."""
    names = [str(name).removeprefix("/") for name in item.get("Names") or ()]
    return next((name for name in names if "/" not in name), "")


def names_in_project(found: Sequence[Mapping[str, str]], cluster: str) -> list[str]:
    """Return the networks or volumes whose names have the cluster's Compose prefix: labels alone prove nothing."""
    names = [one["Name"] for one in found]
    return [name for name in names if name.startswith(f"{project_name(cluster)}_")]


def volumes_of_cluster(found: Sequence[Mapping[str, Any]], cluster: str) -> list[str]:
    """Return the names of a cluster's volumes.

    The shared one may have no labels: the engine makes it for a container that it is still creating when an interrupted
    `up` has already removed Compose's.
    """
    labelled = [one for one in found if (one["Labels"] or {}).get(LABEL_CLUSTER) == cluster]
    unlabelled = [
        one for one in found if not one["Labels"] and one["Name"] == shared_volume(cluster)
    ]
    return names_in_project([*labelled, *unlabelled], cluster)


def is_number(text: str) -> bool:
    """Return whether a label consists of ASCII digits alone."""
    return text.isascii() and text.isdecimal()


def rank_key(container: Container) -> tuple[str, int]:
    """Return the key that sorts containers by cluster, then in rank order."""
    return container.cluster, int(container.node.removeprefix("node"))
