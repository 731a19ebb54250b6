"""Nodes on a host without a container engine: the orders to `python -m node.bare`, and its answers.

The program runs on such a host in the root file system of the node image, which it also gives to every node. Verbs:
`images`, `list`, `remove-all`, `prune`, `forget`, `try-wires`; and `make`, `start`, `remove`, `unpause` and `limit`,
whose standard input is an order. Each prints one JSON document. A failure is one line on standard error, with exit code
1.
"""

from typing import Annotated, NamedTuple

from protocol.reader import WORD, one_of, within
from protocol.vxlan_plan import Port, VxlanPlan

HOST_FOLDER = "/var/lib/gradwire"
"""On a host: images and nodes; only root can enter."""
IMAGES_FOLDER = f"{HOST_FOLDER}/images"
"""Holds a folder for each image: its root file system, and IMAGE_FILE."""
CURRENT_IMAGE = f"{HOST_FOLDER}/current"
"""A link to the image that came last; its `node.bare` runs."""
NODES_FOLDER = f"{HOST_FOLDER}/nodes"
"""Holds a folder for each node, named like its container."""
SHARED_FOLDERS = f"{HOST_FOLDER}/shared"
"""Holds a folder for each cluster: what its nodes on this host share."""
RUNTIME_FOLDER = "/run/gradwire-host"
"""On a host: the state of running nodes, on a file system in memory."""
IMAGE_FILE = "gradwire-image.json"
"""In the root file system of an image: an `Image`."""
STATES = ("created", "running", "paused", "exited")


class Image(NamedTuple):
    """A node image on a host."""

    id: Annotated[str, WORD]
    """Its id on the machine that built it; also the name of its folder."""
    tag: str
    """Its name."""
    layers: list[str]
    """The digests of its layers, by which the same image is recognised."""
    labels: dict[str, str]
    """Its labels."""
    environment: list[str]
    """The environment of its programs, as NAME=VALUE."""


class BareNode(NamedTuple):
    """A node to be made."""

    name: Annotated[str, WORD]
    """The name of its container."""
    hostname: Annotated[str, WORD]
    """Its host name, which is the node's name."""
    image: Annotated[str, WORD]
    """The id of its image."""
    labels: dict[str, str]
    """Its labels, as those of a container."""
    capabilities: list[str]
    """Its capabilities, without CAP_."""
    sysctls: dict[str, str]
    """Kernel settings of its network namespace."""
    pids_limit: Annotated[int, within(1, 10**7)]
    """The most processes and threads."""
    ssh_port: Port
    """Its sshd listens at this TCP port of the host's loopback address, too."""
    vxlan: VxlanPlan
    """Its data device."""
    keys: dict[str, str]
    """Files of its key folder, as base64, by name."""
    shared: str
    """The path at which it has the folder that the cluster's nodes on this host share."""
    cpu_period_us: Annotated[int, within(0, 10**6)] = 0
    """The period of its CPU limit."""
    cpu_quota_us: Annotated[int, within(0, 10**10)] = 0
    """The processor time that it may use in each period; 0: no limit."""
    memory_bytes: Annotated[int, within(0, 2**60)] = 0
    """The memory that it may use; 0: no limit."""


class Make(NamedTuple):
    """The order to make nodes. They do not start yet. A node of the same name is replaced."""

    nodes: list[BareNode]
    """The nodes."""


class Named(NamedTuple):
    """The order to start, unpause or remove nodes."""

    names: list[str]
    """The names of their containers."""


class Limit(NamedTuple):
    """The order to change the limits of a node, which may be running."""

    name: Annotated[str, WORD]
    """The name of its container."""
    cpu_period_us: Annotated[int, within(0, 10**6)]
    """As of a `BareNode`."""
    cpu_quota_us: Annotated[int, within(0, 10**10)]
    """As of a `BareNode`."""
    memory_bytes: Annotated[int, within(0, 2**60)]
    """As of a `BareNode`."""


class Listed(NamedTuple):
    """A node that exists."""

    name: str
    """The name of its container."""
    image: str
    """The id of its image."""
    labels: dict[str, str]
    """Its labels."""
    state: Annotated[str, one_of(*STATES)]
    """Whether it runs."""
    exit_code: int
    """How it ended, if it has; 128 + n after signal n."""
    out_of_memory: bool
    """Whether it ended because its memory was used up."""
    started: float
    """When it was started last, Unix time; 0: never."""
    slow_start: bool
    """Whether it has slow start after idle."""
    cpu_period_us: int
    """As of a `BareNode`."""
    cpu_quota_us: int
    """As of a `BareNode`."""
    memory_bytes: int
    """As of a `BareNode`."""


class Nodes(NamedTuple):
    """The answer to `list`."""

    nodes: list[Listed]
    """All nodes of the host, of any cluster."""


class Done(NamedTuple):
    """The answer to an order that was carried out."""

    removed: list[str] = []  # noqa: RUF012 - nobody changes it
    """What was removed."""


class Images(NamedTuple):
    """The answer to `images`."""

    images: list[Image]
    """The images of the host; last the one that came last."""
