"""The identity of a cluster as pure values: its name, its nodes, their addresses and ports.

A cluster takes a *slot* (0, 1, 2, …). The slot alone determines the subnet, the MAC addresses and the SSH ports, so
that clusters can run side by side and every address follows from a node's name: node2 of slot 0 is 10.77.0.12, SSH on
127.0.0.1:22002.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR, STATE_FOLDER

DEFAULT_NAME = "gradwire"
DEFAULT_NODES = 3
IMAGE = "gradwire-node"
MAX_SLOTS = 100
# A slot has the ports from 22000 + 100 x slot on for its first 99 nodes, and from 12000 + 100 x slot on for the next
# 100. All are below Linux' ephemeral ports (32768).
PORTS_OF_A_SLOT, FIRST_PORT, FIRST_PORT_FROM_NODE_100 = 100, 22000, 12000
MAX_NODES = 199
FIRST_VNI = 0x677700  # of VXLAN tunnels, in which "gw" stands; the slot is added


@dataclass(frozen=True)
class Node:
    """One node: its identity on the data network, and the port by which the host reaches its sshd."""

    name: str
    rank: int
    address: str
    mac: str
    ssh_host: str
    ssh_port: int


@dataclass(frozen=True)
class ClusterSpec:
    """The four values from which everything else about a cluster follows."""

    name: str = DEFAULT_NAME
    size: int = DEFAULT_NODES
    slot: int = 0
    image: str = IMAGE

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", self.name):
            raise UsageError(
                f"cluster name {self.name!r} is not usable",
                "lower-case letters, digits and '-', starting with a letter, at most 31 characters",
            )
        if not 1 <= self.size <= MAX_NODES:
            raise UsageError(f"{self.size} nodes asked for", f"1 to {MAX_NODES} nodes")
        if not 0 <= self.slot < MAX_SLOTS:
            raise UsageError(f"slot {self.slot} asked for", f"0 to {MAX_SLOTS - 1}")

    @property
    def nodes(self) -> tuple[Node, ...]:
        """node1 … nodeN, in rank order."""
        return tuple(self._node(rank) for rank in range(self.size))

    def addresses(self, names: Sequence[str]) -> list[str]:
        """Return the addresses of the nodes with these names."""
        known = {node.name: node.address for node in self.nodes}
        return [known[name] for name in names]

    @property
    def subnet(self) -> str:
        """The data network, in CIDR form."""
        return f"10.77.{self.slot}.0/24"

    @property
    def gateway(self) -> str:
        """The host's address on the data network."""
        return f"10.77.{self.slot}.1"

    @property
    def vni(self) -> int:
        """The VXLAN network identifier of the data network, where nodes make it themselves."""
        return FIRST_VNI + self.slot

    @property
    def project(self) -> str:
        """The Compose project, and the prefix of its containers' names; our own prefix keeps other projects apart."""
        return project_name(self.name)

    @property
    def state_dir(self) -> Path:
        """The folder of this cluster's keys and generated files: created by `up`, removed by `down`."""
        return PROJECT_DIR / STATE_FOLDER / self.name

    def _node(self, rank: int) -> Node:
        number = rank + 1
        return Node(
            name=f"node{number}",
            rank=rank,
            address=f"10.77.{self.slot}.{10 + number}",
            mac=f"02:67:77:{self.slot:02x}:00:{number:02x}",
            ssh_host="127.0.0.1",
            ssh_port=self._ssh_port(number),
        )

    def _ssh_port(self, number: int) -> int:
        first = FIRST_PORT if number < PORTS_OF_A_SLOT else FIRST_PORT_FROM_NODE_100
        return first + PORTS_OF_A_SLOT * self.slot + number % PORTS_OF_A_SLOT


def project_name(cluster: str) -> str:
    """Return the Compose project of a cluster, with our prefix because Compose identifies projects by name alone."""
    return cluster if cluster == DEFAULT_NAME else f"{DEFAULT_NAME}-{cluster}"


def name_flag(name: str) -> str:
    """Return the option that a command in a hint needs to name this cluster; '' for the default one."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def free_slot(taken: Collection[int]) -> int:
    """Return the lowest slot that no cluster uses.

    Raises:
        UsageError: all slots are taken.
    """
    for slot in range(MAX_SLOTS):
        if slot not in taken:
            return slot
    raise UsageError(f"all {MAX_SLOTS} slots are taken", "python -m cluster.down --name NAME")


def select_nodes(nodes: Collection[Node], names: Collection[str]) -> list[Node]:
    """Return the nodes with these names, or all nodes if no names are given.

    Raises:
        UsageError: no node has one of the names; lists the names that exist.
    """
    known = {node.name: node for node in nodes}
    for name in names:
        if name not in known:
            raise UsageError(f"no node {name!r}", f"one of: {', '.join(known)}")
    return [known[name] for name in names] if names else list(nodes)
