"""A node's container as the engine lists it: labels alone prove nothing, its name has to agree with them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.base.spec import IMAGE, ClusterSpec, project_name
from cluster.engine.compose import (
    LABEL_CLUSTER,
    LABEL_IMAGE,
    LABEL_NODE,
    LABEL_SIZE,
    LABEL_SLOT,
)

WORKING_DIR = "com.docker.compose.project.working_dir"


@dataclass(frozen=True)
class Container:
    """One node's container, as the engine lists it.

    `is_connected`: to some network, be it running or not; `host`: on which it is, empty on this machine.
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
        """Of its cluster, as its labels have it."""
        return ClusterSpec(self.cluster, self.size, self.slot, self.image)


def read_container(item: dict, host: str) -> Container | None:  # type: ignore[type-arg]
    """One of ours, or None: its labels must be whole, and its name what they say."""
    labels = item["Labels"]
    status = item["Status"]
    health = status[status.find("(") + 1 : -1].removeprefix("health: ") if "(" in status else ""
    if not all(is_number(labels.get(key, "")) for key in (LABEL_SIZE, LABEL_SLOT)):
        return None
    cluster, node, name = labels[LABEL_CLUSTER], labels[LABEL_NODE], container_name(item)
    # While Compose makes a container anew, the old one has a number in front of its name.
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
    """A container's own name, without the slash in front; links of others to it have names, too."""
    names = [str(name).removeprefix("/") for name in item.get("Names") or ()]
    return next((name for name in names if "/" not in name), "")


def names_in_project(found: Sequence[Mapping[str, str]], cluster: str) -> list[str]:
    """The names of networks or volumes that are as Compose calls a cluster's: labels alone prove nothing."""
    names = [one["Name"] for one in found]
    return [name for name in names if name.startswith(f"{project_name(cluster)}_")]


def is_number(text: str) -> bool:
    """Whether a label is a whole number, of plain digits."""
    return text.isascii() and text.isdecimal()


def rank_key(container: Container) -> tuple[str, int]:
    """By which containers are sorted: those of a cluster in the order of ranks."""
    return container.cluster, int(container.node.removeprefix("node"))
