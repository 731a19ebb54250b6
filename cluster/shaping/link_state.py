"""Links in force: sends every node its plan, and reads back what its kernel does.

The truth about the links lies on the nodes themselves (`python -m node.wire show`); the host remembers nothing. Only
while a new node boots does its plan lie beside its keys (`cluster.lifecycle.provision`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.base.errors import ClusterError, NodeError
from cluster.links.expected import Expected, loss_note
from cluster.links.link import Path, paths
from cluster.links.link_spec import LinkSpec, has_slow_start_after_idle
from cluster.shaping.kernel_settings import group_settings
from cluster.ssh.answers import read_answer, understood
from cluster.ssh.fleet import Fleet
from protocol.link import Link, Pair
from protocol.link_report import Inspected, LinkCounters, Marks, Report, Settings, Shown
from protocol.node_plan import NodePlan, checked_plan
from protocol.reader import document

Counters = Mapping[str, Mapping[str, LinkCounters]]

WIRE = ("python3", "-m", "node.wire")


@dataclass(frozen=True)
class LinkState:
    """The links in force on a cluster.

    Attributes:
        links: every directed link; none where the nodes are not shaped.
        plans: the plan in force on each node that is shaped.
        tcp: the congestion control that the kernel really uses on them.
        notes: what a user should know: each with the nodes that said it.
        mtu: of the data network, in bytes.
        counters: node -> peer -> what the kernel counted on the link between them.
        replayed: the links that traces change at the moment, whatever `links` says of them.
        shown: node -> all that it said; `cluster.shaping.host_load` compares how its wire and processors were doing.
        settings: node -> what its kernel decides of connections; none where the nodes were not asked.
    """

    links: tuple[Link, ...]
    plans: Mapping[str, NodePlan]
    tcp: str
    notes: tuple[str, ...]
    mtu: int
    counters: Counters
    replayed: tuple[Pair, ...] = ()
    shown: Mapping[str, Shown] = field(default_factory=dict)
    settings: Mapping[str, Settings] = field(default_factory=dict)

    @property
    def link_spec(self) -> LinkSpec | None:
        """What the links were drawn from; None where nothing is shaped."""
        origin = next((plan.origin for plan in self.plans.values()), None)
        return LinkSpec.from_origin(origin) if origin else None

    @property
    def uplinks(self) -> dict[str, float]:
        """What a node can send on all its links together, in MB/s; nodes without such a limit are not there."""
        return {name: p.uplink_mbyte_s for name, p in self.plans.items() if p.uplink_mbyte_s}

    @property
    def downlinks(self) -> dict[str, float]:
        """Likewise, what it can receive."""
        return {name: p.downlink_mbyte_s for name, p in self.plans.items() if p.downlink_mbyte_s}

    @property
    def isolated(self) -> bool:
        """Whether nodes without a link cannot reach each other."""
        return any(plan.isolated for plan in self.plans.values())

    @property
    def slow_start_after_idle(self) -> bool:
        """Whether connections that were idle begin as new ones, as far as the plans decide it."""
        return has_slow_start_after_idle(self.plans)

    @property
    def paths(self) -> list[Path]:
        """How packets travel between nodes without a link; none where they do not."""
        return [] if self.isolated else paths(self.links)

    @property
    def seed(self) -> int:
        """What the links were drawn by; 0 where nothing is shaped."""
        return next((plan.seed for plan in self.plans.values()), 0)

    @property
    def wire(self) -> str:
        """What delays and drops: netem or nfqueue; '' where nothing is shaped."""
        return self.links[0].wire if self.links else ""

    @property
    def profile(self) -> str:
        """The profile's name; '' where nothing is shaped."""
        return self.link_spec.profile.name if self.link_spec else ""

    def document(self) -> dict[str, object]:
        """As --json shows it."""
        return {
            "profile": self.profile,
            "topology": self.link_spec.topology.name if self.link_spec else "",
            "seed": self.link_spec.seed if self.link_spec else None,
            "wire": self.wire,
            "tcp": self.tcp,
            "slow_start_after_idle": self.slow_start_after_idle,
            "links": [link._asdict() for link in self.links],
            "uplinks": [{"node": n, "uplink_mbyte_s": rate} for n, rate in self.uplinks.items()],
            "downlinks": [
                {"node": n, "downlink_mbyte_s": rate} for n, rate in self.downlinks.items()
            ],
            "isolated": self.isolated,
            "replayed": [list(pair) for pair in self.replayed],
            "notes": list(self.notes),
        }


def encode(plan: NodePlan) -> bytes:
    """A plan as a node reads it."""
    return json.dumps(document(plan)).encode()


def apply_plan(fleet: Fleet, node: str, plan: NodePlan) -> Report:
    """Shape one node; links that are there already change in place.

    Raises:
        NodeError: it could not, in its own words.
    """
    done = fleet.run_on(node, [*WIRE, "apply"], encode(plan))
    if done.exit_code != 0:
        raise NodeError("the links could not be shaped", {node: done.words()})
    return read_answer(Report, node, done.stdout)


def apply_plans(fleet: Fleet, plans: Mapping[str, NodePlan]) -> LinkState:
    """Shape every node; the links then in force.

    Raises:
        NodeError: a node could not; ClusterError: the nodes ended with different wires.
    """
    reports = fleet.each(
        lambda node: apply_plan(fleet, node.name, plans[node.name]), "the links could not be shaped"
    )
    return make_link_state(plans, reports, {})


def apply_some(fleet: Fleet, plans: Mapping[str, NodePlan]) -> None:
    """Shape some of the nodes.

    Raises:
        NodeError: a node could not.
    """
    given = {name: encode(plan) for name, plan in plans.items()}
    fleet.run([*WIRE, "apply"], stdin=given, nodes=list(plans))


def clear_links(fleet: Fleet) -> LinkState:
    """Take all shaping off again."""
    fleet.run([*WIRE, "clear"])
    return make_link_state({}, {}, {})


def clear_some(fleet: Fleet, nodes: Sequence[str]) -> None:
    """Take the shaping off some of the nodes; raises as `apply_some`."""
    fleet.run([*WIRE, "clear"], nodes=nodes)


def planned_link_state(plans: Mapping[str, NodePlan]) -> LinkState:
    """The links as they will be by these plans, of nodes that need not be there yet."""
    links = [link for plan in plans.values() for link in plan.outgoing().values()]
    tcp = next((plan.tcp for plan in plans.values()), "")
    return replace(make_link_state(plans, {}, {}), links=tuple(links), tcp=tcp)


def read_link_state(fleet: Fleet, nodes: Sequence[str] | None = None) -> LinkState:
    """The links in force, as the nodes themselves tell; a node whose wire is broken has none, and a note says why.

    Args:
        fleet: connections to the nodes.
        nodes: those that are asked; None: all.

    Raises:
        NodeError: a node does not answer, or something that cannot be understood.
    """
    return _checked_state(fleet.run_read(Shown, [*WIRE, "show"], nodes=nodes))


def inspect_links(fleet: Fleet) -> tuple[LinkState, dict[str, Marks]]:
    """The links in force, and by what to see later whether anything about them was changed; raises as the former."""
    found = fleet.run_read(Inspected, [*WIRE, "inspect"])
    link_state = _checked_state({name: item.shown for name, item in found.items()})
    return link_state, {name: item.marks for name, item in found.items()}


def _checked_state(shown: Mapping[str, Shown]) -> LinkState:
    """The links in force, if the nodes' words agree with one another.

    Raises:
        NodeError: those of a node do not.
    """
    for name, item in shown.items():
        if item.plan:
            with understood(name):
                checked_plan(item.plan)
    link_state = _state_of(shown)
    with understood(next(iter(link_state.plans), "")):
        _ = link_state.link_spec  # the first one's word
    return link_state


def _state_of(shown: Mapping[str, Shown]) -> LinkState:
    """The links in force, of what `show` says on these nodes."""
    link_state = make_link_state(
        {name: item.plan for name, item in shown.items() if item.plan},
        {name: item.report for name, item in shown.items() if item.report},
        {name: item.counters for name, item in shown.items()},
    )
    news = _merge_notes({name: item.notes for name, item in shown.items()})
    replayed = tuple(sorted({pair for item in shown.values() for pair in item.replayed}))
    if replayed:
        news += (f"traces change {_names(replayed)} at the moment; shown is what comes back after",)
    return replace(
        link_state,
        notes=link_state.notes + news,
        replayed=replayed,
        shown=shown,
        settings={name: item.settings for name, item in shown.items()},
    )


def refuse_replayed(link_state: LinkState, what: str) -> None:
    """Refuse to do something to links that traces change at the moment.

    Raises:
        ClusterError: they do.
    """
    if link_state.replayed:
        raise ClusterError(
            f"{what}: traces change {_names(link_state.replayed)} at the moment",
            "wait for their end, or end them where they were begun",
        )


def make_link_state(
    plans: Mapping[str, NodePlan], reports: Mapping[str, Report], counters: Counters
) -> LinkState:
    """The nodes' plans and reports as one.

    Raises:
        ClusterError: the nodes took different wires.
    """
    wires = {name: report.wire for name, report in reports.items() if report.links}
    if len(set(wires.values())) > 1:
        raise ClusterError(f"the nodes took different wires: {wires}", "--wire nfqueue")
    first = next(iter(reports.values()), None)
    link_state = LinkState(
        links=tuple(link for name, r in reports.items() for link in r.links if link.src == name),
        plans=dict(plans),
        tcp=first.tcp if first else "",
        notes=_merge_notes({name: r.notes for name, r in reports.items()}),
        mtu=first.mtu if first else 1500,
        counters=counters,
    )
    note = loss_note(expected_of(link_state))
    return replace(link_state, notes=(*link_state.notes, note)) if note else link_state


def expected_of(link_state: LinkState) -> Expected:
    """What the links in force were asked to be."""
    return Expected(
        link_state.links,
        link_state.mtu,
        link_state.tcp,
        link_state.uplinks,
        link_state.downlinks,
        {node: shown.host.boot_id for node, shown in link_state.shown.items()},
    )


def settings_document(link_state: LinkState) -> list[dict[str, object]]:
    """The settings of all nodes, for contract.json and run.yml: docs/run-folder.md."""
    here = {"wire": link_state.wire, "tcp": link_state.tcp}
    return [group | here for group in group_settings(link_state.settings)]


def sent_bytes(before: LinkState, after: LinkState) -> dict[str, int]:
    """Bytes that each link carried between two readings: 'node1->node2' -> bytes, headers included."""
    was = {
        (src, dst): counter.sent_bytes
        for src, peers in before.counters.items()
        for dst, counter in peers.items()
    }
    return {
        f"{src}->{dst}": counter.sent_bytes - was.get((src, dst), 0)
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
