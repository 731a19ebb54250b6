"""Links in force: sends every node its plan, and reads back what its kernel does.

The nodes themselves are the source of truth (`python -m node.wire show`); the host keeps no copy. Only while a new node
boots is its plan stored beside its keys (`cluster.lifecycle.provision`).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from cluster.base.errors import ClusterError, NodeError
from cluster.links.expected import Expected, loss_note
from cluster.links.link import Path, paths
from cluster.links.link_spec import (
    LinkSpec,
    downlinks_of,
    has_slow_start_after_idle,
    uplinks_of,
)
from cluster.shaping.host_load import since
from cluster.shaping.kernel_settings import group_settings
from cluster.ssh.answers import read_answer, understood
from cluster.ssh.fleet import Fleet
from protocol.link import Link, Pair
from protocol.link_report import Inspected, LinkCounters, LinkReport, Marks, Settings, Shown
from protocol.node_plan import NodePlan, checked_plan
from protocol.reader import FormatError, document

Counters = Mapping[str, Mapping[str, LinkCounters]]

WIRE = ("python3", "-m", "node.wire")


@dataclass(frozen=True)
class LinkState:
    """The links in force on a cluster.

    Attributes:
        links: every directed link; empty if the nodes are not shaped.
        plans: the plan in force on each shaped node.
        tcp: the congestion control that the kernel actually uses on the links.
        notes: sentences for the user, each with the nodes that reported it.
        mtu: of the data network, in bytes.
        counters: node -> peer -> the kernel's counters of the link between them.
        replayed: the links that traces are changing now; `links` has the values that return afterwards.
        shown: node -> its whole report; `cluster.shaping.host_load` compares the state of wires and cores in it.
        settings: node -> its kernel's connection settings; empty if the nodes were not asked.
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

    @cached_property
    def link_spec(self) -> LinkSpec | None:
        """The spec that the links were drawn from; None if nothing is shaped."""
        origin = next((plan.origin for plan in self.plans.values()), None)
        return LinkSpec.from_origin(origin) if origin else None

    @property
    def uplinks(self) -> dict[str, float]:
        """Node -> the rate that it can send on all its links together, in MB/s; only nodes with such a limit."""
        return uplinks_of(self.plans)

    @property
    def downlinks(self) -> dict[str, float]:
        """Node -> the rate that it can receive on all its links together, in MB/s; only nodes with such a limit."""
        return downlinks_of(self.plans)

    @property
    def isolated(self) -> bool:
        """Whether nodes without a link cannot reach each other."""
        return any(plan.isolated for plan in self.plans.values())

    @property
    def slow_start_after_idle(self) -> bool:
        """Whether idle connections restart with slow start, as far as the plans decide it."""
        return has_slow_start_after_idle(self.plans)

    @property
    def paths(self) -> list[Path]:
        """The paths of packets between nodes without a link; empty if such nodes cannot reach each other."""
        return [] if self.isolated else paths(self.links)

    @property
    def seed(self) -> int:
        """The seed that the links were drawn with; 0 if nothing is shaped."""
        return next((plan.seed for plan in self.plans.values()), 0)

    @property
    def wire(self) -> str:
        """The wire, netem or nfqueue; '' if nothing is shaped."""
        return self.links[0].wire if self.links else ""

    @property
    def profile(self) -> str:
        """The profile's name; '' if nothing is shaped."""
        return self.link_spec.profile.name if self.link_spec else ""

    def document(self) -> dict[str, object]:
        """Return the state as --json prints it."""
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
    """Encode a plan as a node reads it."""
    return json.dumps(document(plan)).encode()


def apply_plan(fleet: Fleet, node: str, plan: NodePlan) -> LinkReport:
    """Shape one node; existing links change in place.

    Raises:
        NodeError: the node failed, in its own words.
    """
    done = fleet.run_on(node, [*WIRE, "apply"], encode(plan))
    if done.exit_code != 0:
        raise NodeError("the links could not be shaped", {node: done.words()})
    return read_answer(LinkReport, node, done.stdout)


def apply_plans(fleet: Fleet, plans: Mapping[str, NodePlan]) -> LinkState:
    """Shape every node; return the links then in force.

    Raises:
        NodeError: a node failed.
        ClusterError: the nodes ended up with different wires.
    """
    reports = fleet.each(
        lambda node: apply_plan(fleet, node.name, plans[node.name]), "the links could not be shaped"
    )
    return make_link_state(plans, reports, {})


def apply_some(fleet: Fleet, plans: Mapping[str, NodePlan]) -> None:
    """Shape some of the nodes.

    Raises:
        NodeError: a node failed.
    """
    given = {name: encode(plan) for name, plan in plans.items()}
    fleet.run([*WIRE, "apply"], stdin=given, nodes=list(plans))


def clear_links(fleet: Fleet) -> LinkState:
    """Remove all shaping from all nodes."""
    fleet.run([*WIRE, "clear"])
    return make_link_state({}, {}, {})


def clear_some(fleet: Fleet, nodes: Sequence[str]) -> None:
    """Remove the shaping from some of the nodes; raises the same as `apply_some`."""
    fleet.run([*WIRE, "clear"], nodes=nodes)


def planned_link_state(plans: Mapping[str, NodePlan]) -> LinkState:
    """Return the links that these plans will produce; the nodes need not exist yet."""
    links = [link for plan in plans.values() for link in plan.outgoing().values()]
    tcp = next((plan.tcp for plan in plans.values()), "")
    return replace(make_link_state(plans, {}, {}), links=tuple(links), tcp=tcp)


def are_on_wire(link_state: LinkState, plans: Mapping[str, NodePlan]) -> bool:
    """Return whether these plans are in force, except that they name the wire, which `auto` has become.

    As those of a run that is repeated from its run.yml: its links need no new proof.
    """
    in_force = {name: plan.on_wire(link_state.wire) for name, plan in link_state.plans.items()}
    return bool(plans) and in_force == plans


def read_link_state(fleet: Fleet, nodes: Sequence[str] | None = None) -> LinkState:
    """Return the links in force, as the nodes report; a node whose wire is broken has none, and a note says why.

    Args:
        fleet: connections to the nodes.
        nodes: the nodes to ask; None: all.

    Raises:
        NodeError: a node does not answer, or its answer cannot be parsed.
    """
    return checked_state(fleet.run_read(Shown, [*WIRE, "show"], nodes=nodes))


def inspect_links(
    fleet: Fleet, nodes: Sequence[str] | None = None
) -> tuple[LinkState, dict[str, Marks]]:
    """Return the links in force and each node's marks, which later reveal changes; raises as `read_link_state`."""
    found = fleet.run_read(Inspected, [*WIRE, "inspect"], nodes=nodes)
    link_state = checked_state({name: item.shown for name, item in found.items()})
    return link_state, {name: item.marks for name, item in found.items()}


def checked_state(shown: Mapping[str, Shown]) -> LinkState:
    """Return the links in force, if the nodes' reports are valid.

    Raises:
        NodeError: a node's report is not valid.
    """
    for name, item in shown.items():
        with understood(name):
            if item.plan:
                checked_plan(item.plan)
            _check_report(item)
    link_state = _state_of(shown)
    with understood(next(iter(link_state.plans), "")):
        _ = link_state.link_spec  # uses the first plan's origin
    return link_state


def _check_report(shown: Shown) -> None:
    """Refuse a report on other links than those of the plan.

    Raises:
        FormatError: naming the key.
    """
    planned, reported = (
        {link._replace(wire="auto") for link in (item.links if item else ())}
        for item in (shown.plan, shown.report)
    )
    if planned != reported:
        raise FormatError("not the links of the plan", "report.links")


def _state_of(shown: Mapping[str, Shown]) -> LinkState:
    """Return the links in force from the nodes' `show` reports."""
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
    """Refuse to do `what` to links that traces are changing now.

    Raises:
        ClusterError: traces are changing links.
    """
    if link_state.replayed:
        raise ClusterError(
            f"{what}: traces change {_names(link_state.replayed)} at the moment",
            "wait for their end, or end them where they were begun",
        )


def playing_words(link_state: LinkState, own: Collection[Pair] = ()) -> str:
    """Return on which links traces play now, other than one's `own`; '' if on none."""
    others = [pair for pair in link_state.replayed if pair not in own]
    return f"a trace plays on {_names(others)}" if others else ""


def make_link_state(
    plans: Mapping[str, NodePlan], reports: Mapping[str, LinkReport], counters: Counters
) -> LinkState:
    """Merge the nodes' plans and reports into one state.

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
    """Return what the links in force were requested to be."""
    return Expected(
        link_state.links,
        link_state.mtu,
        link_state.tcp,
        link_state.uplinks,
        link_state.downlinks,
        {node: shown.host.boot_id for node, shown in link_state.shown.items()},
    )


def settings_document(link_state: LinkState) -> list[dict[str, object]]:
    """Return the settings of all nodes, for contract.json and run.yml: docs/run-folder.md."""
    here = {"wire": link_state.wire, "tcp": link_state.tcp}
    return [group | here for group in group_settings(link_state.settings)]


def sent_bytes(before: LinkState, after: LinkState) -> dict[str, int]:
    """Return the bytes that each link carried between two snapshots: 'node1->node2' -> bytes, headers included.

    Links that were laid anew in between count from 0 again: what they carried before that is not known.
    """
    was = {
        (src, dst): counter.sent_bytes
        for src, peers in before.counters.items()
        for dst, counter in peers.items()
    }
    return {
        f"{src}->{dst}": since(was.get((src, dst), 0), counter.sent_bytes)
        for src, peers in after.counters.items()
        for dst, counter in peers.items()
    }


def _names(pairs: Sequence[Pair]) -> str:
    return ", ".join(f"{src} -> {dst}" for src, dst in pairs)


def _merge_notes(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return each note once, with the nodes that reported it."""
    said: dict[str, list[str]] = {}
    for node, texts in notes.items():
        for text in texts:
            said.setdefault(text, []).append(node)
    return tuple(f"{', '.join(nodes)}: {text}" for text, nodes in said.items())
