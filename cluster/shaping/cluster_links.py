"""Reads the links in force, and refuses reports that name nodes which the cluster does not have.

Whatever uses the links looks nodes up by these names, and a node may report any.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from cluster.base.spec import ClusterSpec
from cluster.shaping.link_state import LinkState, inspect_links, read_link_state
from cluster.ssh.answers import understood
from cluster.ssh.fleet import Fleet
from protocol.link_report import Marks
from protocol.node_plan import NodePlan
from protocol.reader import FormatError

MOST_SHOWN = 40  # characters of a name in an error


def read_cluster_links(
    fleet: Fleet, spec: ClusterSpec, nodes: Sequence[str] | None = None
) -> LinkState:
    """Return the links in force, as all nodes report them, or some.

    Raises:
        NodeError: a node does not answer, or its answer cannot be understood.
    """
    link_state = read_link_state(fleet, nodes)
    _refuse_unknown_nodes(link_state, spec)
    return link_state


def inspect_cluster_links(
    fleet: Fleet, spec: ClusterSpec, nodes: Sequence[str] | None = None
) -> tuple[LinkState, dict[str, Marks]]:
    """Return the links in force and each node's marks, which later reveal changes; raises as `read_cluster_links`."""
    link_state, marks = inspect_links(fleet, nodes)
    _refuse_unknown_nodes(link_state, spec)
    return link_state, marks


def _refuse_unknown_nodes(link_state: LinkState, spec: ClusterSpec) -> None:
    known = {node.name for node in spec.nodes}
    for name, plan in link_state.plans.items():
        with understood(name):
            if plan.node != name:
                raise FormatError(f"{plan.node[:MOST_SHOWN]!r} is another node", "plan.node")
            _check("plan", _names_in(plan), known)
    for name, shown in link_state.shown.items():
        with understood(name):
            _check("counters", shown.counters, known)
            _check("received", shown.received, known)
            _check("replayed", (end for pair in shown.replayed for end in pair), known)


def _names_in(plan: NodePlan) -> Iterable[str]:
    yield from plan.peers
    yield from plan.routes
    for link in plan.links:
        yield from link.ends


def _check(key: str, names: Iterable[str] | Mapping[str, object], known: Collection[str]) -> None:
    strange = next((name for name in names if name not in known), None)
    if strange is not None:
        raise FormatError(f"{strange[:MOST_SHOWN]!r} is no node of the cluster", key)
