"""What is wanted of the links of a cluster, and the plan that each node gets of it. Pure values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cluster.errors import UsageError, unknown
from cluster.links import WIRES, Link, draw_access, draw_links, link_plan
from cluster.profiles import Profile, load_profile, parse_profile
from cluster.spec import Node
from cluster.topology import Topology, next_hops
from cluster.topology_file import load_topology, parse_topology

Plan = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What decides the links of a cluster. The nodes keep it with their plan, as its `origin`."""

    profile: Profile
    topology: Topology
    seed: int = 1
    wire: str = "auto"

    def links(self, nodes: Sequence[Node]) -> tuple[Link, ...]:
        """The links that it asks for between these nodes.

        Raises:
            UsageError: the topology does not fit them.
        """
        return draw_links(self.profile, self.topology, nodes, self.seed, self.wire)

    def origin(self) -> dict[str, Any]:
        """As JSON values."""
        profile: dict[str, Any] = json.loads(json.dumps(asdict(self.profile)))
        topology = self.topology.document()
        return {"profile": profile, "topology": topology, "seed": self.seed, "wire": self.wire}

    @classmethod
    def from_origin(cls, origin: Mapping[str, Any]) -> "Wanted":
        """What the links in force were drawn from, so that they can be drawn again."""
        values = dict(origin["profile"])
        name = values.pop("name")
        stated = {key: value for key, value in values.items() if value is not None}
        profile = parse_profile(name, stated, "the profile in force")
        given = origin["topology"]
        name = given if isinstance(given, str) else given["name"]
        topology = parse_topology(name, given, "the topology in force")
        return cls(profile, topology, origin["seed"], origin["wire"])


def make_wanted(
    profile: str, topology: str, seed: int, wire: str, *, isolated: bool = False
) -> Wanted:
    """What the user named, checked.

    Raises:
        UsageError: unknown profile, topology or wire.
    """
    if wire not in WIRES:
        raise unknown("wire", wire, WIRES)
    graph = load_topology(topology)
    if isolated:
        graph = replace(graph, isolated=True)
    return Wanted(load_profile(profile), graph, seed, wire)


def refuse_unheard(topology: str, wire: str, *, isolated: bool) -> None:
    """Refuse words about links where there is no profile to make any of: they would change nothing.

    Raises:
        UsageError: names the word.
    """
    said = [
        ("--topology", topology != "full"),
        ("--wire", wire != "auto"),
        ("--isolated", isolated),
    ]
    for flag, is_said in said:
        if is_said:
            raise UsageError(
                f"{flag} without --profile: no links are made, and those in force stay",
                f"{flag} … --profile wan",
            )


def link_plans(nodes: Sequence[Node], wanted: Wanted) -> dict[str, Plan]:
    """The plan of every node, by name: a pure function of the wish and the nodes.

    Raises:
        UsageError: the topology does not fit these nodes.
    """
    profile, seed = wanted.profile, wanted.seed
    links = wanted.links(nodes)
    hops = next_hops([(link.src, link.dst) for link in links], [node.name for node in nodes])
    common = {
        "tcp": profile.tcp,
        "seed": seed,
        "isolated": wanted.topology.isolated,
        "origin": wanted.origin(),
    }
    return {
        node.name: link_plan(node, nodes, links, hops)
        | draw_access(profile, wanted.topology, node, seed)
        | common
        for node in nodes
    }
