"""Show the nodes of a cluster and their links, as reported by the engine and the nodes.

    python -m cluster.status
    python -m cluster.status --name second --json

The table of links stops after 90 rows; --json has all of them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cluster.api import Cluster
from cluster.base.console import Console, as_typed, print_table
from cluster.base.errors import NodeError
from cluster.base.spec import Node, name_flag
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.contract.prover import ProofStatus, Prover
from cluster.engine.resources import Limit, format_bytes
from cluster.hosts.hosts_file import Hosts
from cluster.hosts.node_placement import Placement
from cluster.hosts.record import read_record
from cluster.links.profiles import IMPAIRMENT_WORDS, describe_impairments
from cluster.shaping.link_state import LinkState
from cluster.shaping.restore import find_leftovers
from protocol.link import Link

MOST_ROWS = 90  # the links of ten nodes


def main(argv: list[str] | None = None) -> int:
    """Show a cluster."""
    parser = make_parser("cluster.status", __doc__)
    add_name(parser)
    return run_verb(parser, status, argv)


@dataclass(frozen=True)
class NodeStatus:
    """A node as the engine knows it.

    Attributes:
        node: its identity and addresses.
        limit: the resources that it may use.
        state: the engine's state of its container; `missing` if there is no container.
        health: the engine's health of its container; empty if unknown.
        image_is_current: whether it was created from the current image.
        host: the name of the machine on which it is, or will be; empty: this machine.
    """

    node: Node
    limit: Limit
    state: str
    health: str
    image_is_current: bool
    host: str = ""

    @property
    def words(self) -> str:
        """The state as the table shows it."""
        old = self.state == "running" and not self.image_is_current
        return "running, from an older image" if old else self.state

    def document(self) -> dict[str, object]:
        """Return the document that --json prints."""
        own = {
            "state": self.state,
            "health": self.health,
            "image_is_current": self.image_is_current,
            "host": self.host,
        }
        return asdict(self.node) | asdict(self.limit) | own


@dataclass(frozen=True)
class Status:
    """The state of a cluster.

    Attributes:
        name: the cluster.
        nodes: its nodes, in rank order.
        link_state: the links in force; None if a node did not answer.
        problem: why not; empty if all nodes answered.
        warnings: sentences for the user.
        proof: whether the links were proved; None: not checked.
        hosts: the machines of the nodes; None: this machine.
    """

    name: str
    nodes: Sequence[NodeStatus]
    link_state: LinkState | None
    problem: str = ""
    warnings: Sequence[str] = ()
    proof: ProofStatus | None = None
    hosts: Hosts | None = None

    def document(self) -> dict[str, object]:
        """Return the document that --json prints."""
        nodes = [one.document() for one in self.nodes]
        found: dict[str, object] = {
            "name": self.name,
            "hosts": [host.document() for host in self.hosts.hosts] if self.hosts else [],
            "nodes": nodes,
            "links": [],
            "problem": self.problem,
        }
        if self.link_state is None:
            return found
        found |= {"proof": self.proof.document() if self.proof else None}
        return found | self.link_state.document() | {"warnings": list(self.warnings)}


def status(args: Namespace) -> dict[str, object]:
    """Run the verb; return the cluster's state as --json prints it."""
    cluster = Cluster(args.name, console=Console())
    others = [spec.name for spec in cluster.engine.clusters() if spec.name != args.name]
    try:
        found = read_status(cluster)
    finally:
        cluster.close()
    if not args.json:
        print_status(found)
        if others:
            print(f"other clusters: {', '.join(others)}")
    return found.document()


def read_status(cluster: Cluster, link_state: LinkState | None = None) -> Status:
    """Return the state of every node and link; reads the links from the nodes unless `link_state` is given.

    If a node does not answer, the status carries the error, and the links are unknown.
    """
    record = read_record(cluster.name)
    hosts, placement = (record.hosts, record.placement) if record else (None, {})
    nodes, proof = _read_nodes(cluster, placement), None
    if link_state is None:
        try:
            prover = Prover(cluster.engine, cluster.spec, cluster.fleet, cluster.console)
            link_state, proof = prover.links_and_proof()
        except NodeError as error:
            return Status(cluster.name, nodes, None, error.message, hosts=hosts)
    leftovers = find_leftovers(cluster.spec, link_state)
    return Status(cluster.name, nodes, link_state, warnings=leftovers, proof=proof, hosts=hosts)


def _read_nodes(cluster: Cluster, placement: Placement) -> list[NodeStatus]:
    containers = {c.node: c for c in cluster.engine.containers(cluster.name)}
    image_ids = cluster.engine.image_ids(cluster.spec.image)
    limits = cluster.engine.limits(list(containers.values()))
    found = []
    for node in cluster.spec.nodes:
        container = containers.get(node.name)
        found.append(
            NodeStatus(
                node,
                limits.get(node.name, Limit()),
                container.state if container else "missing",
                container.health if container else "",
                container is not None and container.image_id == image_ids.get(container.host),
                container.host if container else placement.get(node.name, ""),
            )
        )
    return found


def print_status(found: Status) -> None:
    """Print two tables, nodes and links, and notes for the user."""
    limited = any(n.limit.cpus or n.limit.memory_bytes or n.limit.gpus for n in found.nodes)
    more = ["CPUS", "MEMORY", "GPUS"] if limited else []
    several = found.hosts is not None and len(found.hosts.hosts) > 1
    for host in found.hosts.hosts if found.hosts else ():
        print(f"on host {host.name}: {host.ssh}")
    print_table(
        ["NODE", *(["HOST"] if several else []), "RANK", "STATE", "ADDRESS", "SSH", *more],
        [
            [
                n.node.name,
                *([n.host] if several else []),
                n.node.rank,
                n.words,
                n.node.address,
                f"{n.node.ssh_host}:{n.node.ssh_port}",
                *(_limits(n.limit) if limited else []),
            ]
            for n in found.nodes
        ],
    )
    if found.link_state is None:
        print(found.problem)
        return
    print_shape(found.link_state, found.name)
    if found.proof and found.link_state.links:
        print(f"links: {found.proof.words()}")
    for warning in found.warnings:
        print(f"warning: {warning}")


def print_shape(link_state: LinkState, name: str) -> None:
    """Print the links in force, what they were drawn from, and notes for the user."""
    if not link_state.links:
        shape = f"python -m cluster.shape{name_flag(name)} --profile mobile"
        print(as_typed(f"links: not shaped ({shape})"))
        _print_notes(link_state)
        return
    print()
    print_links(link_state.links)
    _print_access(link_state)
    link_spec = link_state.link_spec
    topology, seed = (link_spec.topology.name, link_spec.seed) if link_spec else ("", None)
    print(
        f"profile {link_state.profile}, topology {topology}, seed {seed}, "
        f"wire {link_state.wire}, tcp {link_state.tcp}"
        + ("" if link_state.slow_start_after_idle else ", no slow start after idle")
        + (", nodes without a link isolated" if link_state.isolated else "")
    )
    _print_notes(link_state)


def _print_access(link_state: LinkState) -> None:
    for kind, rates in (("uplink", link_state.uplinks), ("downlink", link_state.downlinks)):
        for node, rate in rates.items():
            print(f"{kind} of {node}: {rate:g} MB/s for all its links")


def _print_notes(link_state: LinkState) -> None:
    for note in link_state.notes:
        print(f"note: {note}")


def print_links(links: Sequence[Link]) -> None:
    """Print a table of links; of a big cluster, the first MOST_ROWS."""
    left, links = len(links[MOST_ROWS:]), links[:MOST_ROWS]
    print_table(
        ["LINK", "RATE MB/s", "DELAY ms", "JITTER ms", "LOSS %", "BUFFER ms", "WIRE", ""],
        [
            [
                f"{link.src} -> {link.dst}",
                f"{link.rate_mbyte_s:g}",
                f"{link.delay_ms:g}",
                f"{link.jitter_ms:g}",
                f"{link.loss_pct:g}",
                f"{link.buffer_ms:g}",
                link.wire,
                _more(link),
            ]
            for link in links
        ],
    )
    if left:
        print(f"… and {left} more links: --json has all")


def _more(link: Link) -> str:
    """Return the values that few links have, as words."""
    said = describe_impairments({field: f"{getattr(link, field):g}" for field in IMPAIRMENT_WORDS})
    return ", ".join(said + (["uniform"] if link.distribution == "uniform" else []))


def _limits(limit: Limit) -> list[str]:
    return [
        f"{limit.cpus:g}" if limit.cpus else "-",
        format_bytes(limit.memory_bytes) if limit.memory_bytes else "-",
        limit.gpus or "-",
    ]


if __name__ == "__main__":
    sys.exit(main())
