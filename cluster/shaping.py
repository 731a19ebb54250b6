"""Links on the nodes: send every node its plan, read back what is in force.

The truth about the links lies on the nodes themselves (`python -m node.wire show`); the host remembers nothing. Only
while a new node boots does its plan lie beside its keys (`cluster.bringup`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cluster.contract.expected import Asked, loss_note
from cluster.errors import ClusterError, NodeError
from cluster.fleet import Fleet
from cluster.links import Link, Path, paths
from cluster.overload import Reading
from cluster.topology import Pair
from cluster.wanted import Plan, Wanted

Report = dict[str, Any]
Counters = Mapping[str, Mapping[str, Mapping[str, int]]]

WIRE = ("python3", "-m", "node.wire")


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
        replayed: the links that traces change at the moment, whatever `links` says of them.
        readings: node -> what `cluster.overload` compares: how its wire and its processors were doing.
    """

    links: tuple[Link, ...]
    plans: Mapping[str, Plan]
    tcp: str
    notes: tuple[str, ...]
    mtu: int
    counters: Counters
    replayed: tuple[Pair, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def wanted(self) -> Wanted | None:
        """What the links were drawn from; None where nothing is shaped."""
        origin = next((plan["origin"] for plan in self.plans.values()), None)
        return Wanted.from_origin(origin) if origin else None

    @property
    def uplinks(self) -> dict[str, float]:
        """What a node can send on all its links together, in MB/s; nodes without such a limit are not there."""
        return self._limits("uplink_mbyte_s")

    @property
    def downlinks(self) -> dict[str, float]:
        """Likewise, what it can receive."""
        return self._limits("downlink_mbyte_s")

    def _limits(self, key: str) -> dict[str, float]:
        return {name: plan[key] for name, plan in self.plans.items() if plan[key]}

    @property
    def isolated(self) -> bool:
        """Whether nodes without a link cannot reach each other."""
        return any(plan["isolated"] for plan in self.plans.values())

    @property
    def paths(self) -> list[Path]:
        """How packets travel between nodes without a link; none where they do not."""
        return [] if self.isolated else paths(self.links)

    @property
    def seed(self) -> int:
        """What the links were drawn by; 0 where nothing is shaped."""
        return next((int(plan["seed"]) for plan in self.plans.values()), 0)

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
            "downlinks": [
                {"node": n, "downlink_mbyte_s": rate} for n, rate in self.downlinks.items()
            ],
            "isolated": self.isolated,
            "replayed": [list(pair) for pair in self.replayed],
            "notes": list(self.notes),
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
    replayed = tuple(sorted({(s, d) for item in shown.values() for s, d in item["replayed"]}))
    if replayed:
        news += (f"traces change {_names(replayed)} at the moment; shown is what comes back after",)
    return replace(shape, notes=shape.notes + news, replayed=replayed, readings=shown)


def refuse_replayed(shape: Shape, what: str) -> None:
    """Refuse to do something to links that traces change at the moment.

    Raises:
        ClusterError: they do.
    """
    if shape.replayed:
        raise ClusterError(
            f"{what}: traces change {_names(shape.replayed)} at the moment",
            "wait for their end, or end them where they were begun",
        )


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
    return Asked(shape.links, shape.mtu, shape.tcp, shape.uplinks, shape.downlinks)


def sent_bytes(before: Shape, after: Shape) -> dict[str, int]:
    """Bytes that each link carried between two readings: 'node1->node2' -> bytes, headers included."""
    return {
        f"{src}->{dst}": counter["sent_bytes"]
        - before.counters.get(src, {}).get(dst, {}).get("sent_bytes", 0)
        for src, peers in after.counters.items()
        for dst, counter in peers.items()
    }


def _names(pairs: Sequence[Pair]) -> str:
    return ", ".join(f"{src} -> {dst}" for src, dst in pairs)


def _merge_notes(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each note once, with the nodes that said it."""
    said: dict[str, list[str]] = {}
    for node, texts in notes.items():
        for text in texts:
            said.setdefault(text, []).append(node)
    return tuple(f"{', '.join(nodes)}: {text}" for text, nodes in said.items())
