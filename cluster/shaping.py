"""Links on the nodes: send every node its plan, read back what is in force.

The truth about the links lies on the nodes themselves (`python -m node.wire show`); the host remembers nothing. Only
while a new node boots does its plan lie beside its keys (`cluster.bringup`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cluster.errors import ClusterError, NodeError, unknown
from cluster.expected import Asked, loss_note
from cluster.fleet import Fleet
from cluster.links import WIRES, Link, draw_links, draw_uplinks, link_plan
from cluster.profiles import Profile, load_profile, parse_profile
from cluster.spec import Node
from cluster.topology import Topology, load_topology, next_hops, parse_topology

Plan = dict[str, Any]
Report = dict[str, Any]
Counters = Mapping[str, Mapping[str, Mapping[str, int]]]

WIRE = ("python3", "-m", "node.wire")


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


@dataclass(frozen=True)
class Shape:
    """The links in force on a cluster.

    Attributes:
        links: every directed link; none where the nodes are not shaped.
        plans: the plan in force on each node that is shaped.
        tcp: the congestion control that the kernel really uses on them.
        notes: what a user should know: each with the nodes that said it.
        mtu: of the data network, in bytes.
        counters: node -> peer -> what the kernel counted on the link between them.
    """

    links: tuple[Link, ...]
    plans: Mapping[str, Plan]
    tcp: str
    notes: tuple[str, ...]
    mtu: int
    counters: Counters

    @property
    def wanted(self) -> Wanted | None:
        """What the links were drawn from; None where nothing is shaped."""
        origin = next((plan["origin"] for plan in self.plans.values()), None)
        return Wanted.from_origin(origin) if origin else None

    @property
    def uplinks(self) -> dict[str, float]:
        """What a node can send on all its links together, in MB/s; nodes without such a limit are not there."""
        return {
            name: plan["uplink_mbyte_s"]
            for name, plan in self.plans.items()
            if plan["uplink_mbyte_s"]
        }

    @property
    def wire(self) -> str:
        """What delays and drops: netem or nfqueue; '' where nothing is shaped."""
        return self.links[0].wire if self.links else ""

    @property
    def profile(self) -> str:
        """The profile's name; '' where nothing is shaped."""
        return self.wanted.profile.name if self.wanted else ""

    def document(self) -> dict[str, Any]:
        """As --json shows it."""
        return {
            "profile": self.profile,
            "topology": self.wanted.topology.name if self.wanted else "",
            "seed": self.wanted.seed if self.wanted else None,
            "wire": self.wire,
            "tcp": self.tcp,
            "links": [asdict(link) for link in self.links],
            "uplinks": [{"node": n, "uplink_mbyte_s": rate} for n, rate in self.uplinks.items()],
            "notes": list(self.notes),
        }


def make_wanted(profile: str, topology: str, seed: int, wire: str) -> Wanted:
    """What the user named, checked.

    Raises:
        UsageError: unknown profile, topology or wire.
    """
    if wire not in WIRES:
        raise unknown("wire", wire, WIRES)
    return Wanted(load_profile(profile), load_topology(topology), seed, wire)


def link_plans(nodes: Sequence[Node], wanted: Wanted) -> dict[str, Plan]:
    """The plan of every node, by name: a pure function of the wish and the nodes.

    Raises:
        UsageError: the topology does not fit these nodes.
    """
    profile, seed = wanted.profile, wanted.seed
    links = wanted.links(nodes)
    hops = next_hops([(link.src, link.dst) for link in links], [node.name for node in nodes])
    uplinks = draw_uplinks(profile, wanted.topology, nodes, seed)
    origin = wanted.origin()
    return {
        node.name: link_plan(
            node, nodes, links, hops, uplinks.get(node.name), profile.tcp, seed, origin
        )
        for node in nodes
    }


def apply_plan(fleet: Fleet, node: str, plan: Plan) -> Report:
    """Shape one node; links that are there already change in place.

    Raises:
        NodeError: it could not, in its own words.
    """
    done = fleet.run_on(node, [*WIRE, "apply"], json.dumps(plan).encode())
    if done.exit_code != 0:
        raise NodeError("the links could not be shaped", {node: done.words()})
    report: Report = json.loads(done.stdout)
    return report


def apply_plans(fleet: Fleet, plans: Mapping[str, Plan]) -> Shape:
    """Shape every node; the links then in force.

    Raises:
        NodeError: a node could not; ClusterError: the nodes ended with different wires.
    """
    reports = fleet.each(
        lambda node: apply_plan(fleet, node.name, plans[node.name]), "the links could not be shaped"
    )
    return make_shape(plans, reports, {})


def apply_some(fleet: Fleet, plans: Mapping[str, Plan]) -> None:
    """Shape some of the nodes.

    Raises:
        NodeError: a node could not.
    """
    given = {name: json.dumps(plan).encode() for name, plan in plans.items()}
    fleet.run([*WIRE, "apply"], stdin=given, nodes=list(plans))


def clear_links(fleet: Fleet) -> Shape:
    """Take all shaping off again."""
    fleet.run([*WIRE, "clear"])
    return make_shape({}, {}, {})


def read_shape(fleet: Fleet) -> Shape:
    """The links in force, as the nodes themselves tell; a node whose wire is broken has none, and a note says why.

    Raises:
        NodeError: a node does not answer.
    """
    shown = fleet.run_json([*WIRE, "show"])
    shaped = {name: item for name, item in shown.items() if item["plan"]}
    shape = make_shape(
        {name: item["plan"] for name, item in shaped.items()},
        {name: item["report"] for name, item in shaped.items()},
        {name: item["counters"] for name, item in shown.items()},
    )
    news = _merge_notes({name: item["notes"] for name, item in shown.items()})
    return replace(shape, notes=shape.notes + news)


def make_shape(
    plans: Mapping[str, Plan], reports: Mapping[str, Report], counters: Counters
) -> Shape:
    """The nodes' plans and reports as one.

    Raises:
        ClusterError: the nodes took different wires.
    """
    wires = {name: report["wire"] for name, report in reports.items() if report["links"]}
    if len(set(wires.values())) > 1:
        raise ClusterError(f"the nodes took different wires: {wires}", "--wire nfqueue")
    first: Report = next(iter(reports.values()), {})
    shape = Shape(
        links=tuple(
            Link(**link)
            for name, r in reports.items()
            for link in r["links"]
            if link["src"] == name
        ),
        plans=dict(plans),
        tcp=first.get("tcp", ""),
        notes=_merge_notes({name: r["notes"] for name, r in reports.items()}),
        mtu=first.get("mtu", 1500),
        counters=counters,
    )
    note = loss_note(asked_of(shape))
    return replace(shape, notes=(*shape.notes, note)) if note else shape


def asked_of(shape: Shape) -> Asked:
    """What the links in force were asked to be."""
    return Asked(shape.links, shape.mtu, shape.tcp, shape.uplinks)


def sent_bytes(before: Shape, after: Shape) -> dict[str, int]:
    """Bytes that each link carried between two readings: 'node1->node2' -> bytes, headers included."""
    return {
        f"{src}->{dst}": counter["sent_bytes"]
        - before.counters.get(src, {}).get(dst, {}).get("sent_bytes", 0)
        for src, peers in after.counters.items()
        for dst, counter in peers.items()
    }


def _merge_notes(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each note once, with the nodes that said it."""
    said: dict[str, list[str]] = {}
    for node, texts in notes.items():
        for text in texts:
            said.setdefault(text, []).append(node)
    return tuple(f"{', '.join(nodes)}: {text}" for text, nodes in said.items())
