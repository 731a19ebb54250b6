"""The requested links of a cluster, and the plan that follows for each node. Pure values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cluster.base.errors import ClusterError, UsageError, shown, unknown
from cluster.base.spec import Node
from cluster.links.expected import Expected
from cluster.links.link import draw_access, draw_links
from cluster.links.profiles import Profile, load_profile, parse_profile
from cluster.links.topology import BASES, Topology, next_hops
from cluster.links.topology_file import load_topology, parse_topology
from cluster.links.underlay import Underlay, check_links, origin_over
from protocol.link import WIRE_CHOICES, Link, Pair
from protocol.node_plan import NodePlan, Peer, Route

MOST_NAME = 255  # characters, as of a file name
MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class LinkSpec:
    """Everything that decides the plans of a cluster's nodes, which keep it with their plan, as its `origin`.

    Of these, `underlay` is not asked for but measured, if the cluster is on several hosts.
    """

    profile: Profile
    topology: Topology
    seed: int = 1
    wire: str = "auto"
    underlay: Underlay = field(default_factory=Underlay)

    def over(self, underlay: Underlay) -> "LinkSpec":
        """Return the same links over another network."""
        return replace(self, underlay=underlay)

    def links(self, nodes: Sequence[Node]) -> tuple[Link, ...]:
        """Return the links that it asks for between these nodes.

        Raises:
            UsageError: the topology does not fit them.
        """
        return draw_links(self.profile, self.topology, nodes, self.seed, self.wire)

    def origin(self) -> dict[str, object]:
        """Return the link spec as JSON values."""
        profile, topology = profile_document(self.profile), self.topology.document()
        values = {"profile": profile, "topology": topology, "seed": self.seed, "wire": self.wire}
        return origin_over(values, self.underlay)

    @classmethod
    def from_origin(cls, origin: Mapping[str, object]) -> "LinkSpec":
        """Return the link spec of the links in force, so that they can be drawn again.

        Raises:
            ClusterError: it is not a valid `origin`. It comes from a node, and so may be anything.
        """
        try:
            return cls._parse(origin)
        except (AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
            raise ClusterError(
                f"what the links in force were drawn from cannot be read: {str(error)[:300]}",
                "shape them again: python -m cluster.shape --profile NAME",
            ) from None

    @classmethod
    def _parse(cls, origin: Mapping[str, object]) -> "LinkSpec":
        profile = read_profile(origin["profile"])
        given = origin["topology"]
        if isinstance(given, str):
            topology = Topology(given, _checked_base(given))  # never the name of a file
        elif isinstance(given, dict):
            source = "the topology in force"
            topology = parse_topology(_checked_name(given["name"]), dict(given), source)
        else:
            raise TypeError(f"topology {shown(given)}")
        wire, seed = origin["wire"], origin["seed"]
        if not isinstance(wire, str) or wire not in WIRE_CHOICES or not isinstance(seed, int):
            raise ValueError(f"wire {shown(wire)}, seed {shown(seed)}")
        return cls(
            profile, topology, seed, wire, Underlay.from_document(origin.get("underlay", {}))
        )


def profile_document(profile: Profile) -> dict[str, object]:
    """Return a profile with its name, as JSON values."""
    found: dict[str, object] = json.loads(json.dumps(asdict(profile)))
    return found


def read_profile(said: object) -> Profile:
    """Return the profile of a document.

    Raises:
        UsageError, KeyError, TypeError, ValueError: the document is not that of a profile.
    """
    if not isinstance(said, dict):
        raise TypeError(f"profile {shown(said)}")
    values = dict(said)
    name = _checked_name(values.pop("name"))
    stated = {key: value for key, value in values.items() if value is not None}
    return parse_profile(name, stated, "the profile in force")


def _checked_name(name: object) -> str:
    """Return the name of a user's profile or topology, checked: that of its file, without the ending."""
    if not isinstance(name, str) or not name.isprintable() or "/" in name or len(name) > MOST_NAME:
        raise ValueError(f"{str(name)[:MOST_NAME]!r} is no name")
    return name


def _checked_base(name: str) -> str:
    if name not in BASES:
        raise ValueError(f"{name[:MOST_NAME]!r} is no topology")
    return name


def make_link_spec(
    profile: str | Path, topology: str | Path, seed: int, wire: str, *, isolated: bool = False
) -> LinkSpec:
    """Return the link spec that the user asked for, checked.

    Raises:
        UsageError: unknown profile, topology or wire, or no such seed.
    """
    if wire not in WIRE_CHOICES:
        raise unknown("wire", wire, WIRE_CHOICES)
    if type(seed) is not int or abs(seed) > MOST_SEED:  # True is no seed, either
        raise UsageError(
            f"the link seed is {shown(seed)}", f"a whole number, -{MOST_SEED} to {MOST_SEED}"
        )
    graph = load_topology(str(topology))
    if isolated:
        graph = replace(graph, isolated=True)
    return LinkSpec(load_profile(str(profile)), graph, seed, wire)


def reject_unused_link_options(
    topology: str | Path, seed: int, wire: str, *, isolated: bool
) -> None:
    """Refuse options about links without a profile: they would change nothing.

    Raises:
        UsageError: names the option.
    """
    said = [
        ("--topology", str(topology) != "full"),
        ("--link-seed", seed != 1),
        ("--wire", wire != "auto"),
        ("--isolated", isolated),
    ]
    for flag, is_said in said:
        if is_said:
            raise UsageError(
                f"{flag} without --profile: no links are made, and those in force stay",
                f"{flag} … --profile wan",
            )


def has_slow_start_after_idle(plans: Mapping[str, NodePlan]) -> bool:
    """Return whether these plans leave slow start after idle on, as is Linux's default: on all nodes, or on none."""
    return all(plan.slow_start_after_idle for plan in plans.values())


def uplinks_of(plans: Mapping[str, NodePlan]) -> dict[str, float]:
    """Return what nodes can send on all their links together, in MB/s; only nodes with such a limit."""
    return {name: p.uplink_mbyte_s for name, p in plans.items() if p.uplink_mbyte_s}


def downlinks_of(plans: Mapping[str, NodePlan]) -> dict[str, float]:
    """Return what nodes can receive on all their links together, in MB/s; only nodes with such a limit."""
    return {name: p.downlink_mbyte_s for name, p in plans.items() if p.downlink_mbyte_s}


def link_plans(nodes: Sequence[Node], link_spec: LinkSpec) -> dict[str, NodePlan]:
    """Return the plan of every node, by name: a pure function of the link spec and the nodes.

    Raises:
        UsageError: the topology does not fit these nodes, or links ask for more than the network between hosts has.
    """
    links = link_spec.links(nodes)
    hops = next_hops([(link.src, link.dst) for link in links], [node.name for node in nodes])
    origin, underlay = link_spec.origin(), link_spec.underlay
    plans = {n.name: _node_plan(n, nodes, link_spec, links, hops, origin) for n in nodes}
    asked = Expected(links, uplinks=uplinks_of(plans), downlinks=downlinks_of(plans))
    check_links(underlay, asked)
    return {
        name: plan._replace(underlay_ms=underlay.delays_ms(plan)) for name, plan in plans.items()
    }


def _node_plan(
    node: Node,
    nodes: Sequence[Node],
    link_spec: LinkSpec,
    links: Sequence[Link],
    hops: Mapping[Pair, str],
    origin: dict[str, object],
) -> NodePlan:
    """Return one node's plan, without an underlay; `hops` as from `next_hops`, `origin` that of the link spec."""
    profile, topology = link_spec.profile, link_spec.topology
    own = [link for link in links if node.name in link.ends]
    neighbours = {name for link in own for name in link.ends} - {node.name}
    access = draw_access(profile, topology, node, link_spec.seed)
    return NodePlan(
        node=node.name,
        address=node.address,
        wire=own[0].wire if own else "auto",
        tcp=profile.tcp,
        slow_start_after_idle=profile.slow_start_after_idle,
        seed=link_spec.seed,
        uplink_mbyte_s=access["uplink_mbyte_s"],
        downlink_mbyte_s=access["downlink_mbyte_s"],
        isolated=topology.isolated,
        peers={n.name: Peer(n.address, n.mac) for n in nodes if n.name in neighbours},
        routes={
            n.name: Route(n.address, hops[node.name, n.name])
            for n in nodes
            if n is not node and n.name not in neighbours
        },
        links=own,
        origin=origin,
    )
