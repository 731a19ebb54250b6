"""Restores recorded links and CPU limits after restarts and killed commands.

Every command that changes, measures or uses a cluster calls this once it holds the cluster's lock, so that no run uses
links that differ from the recorded ones.
"""

from collections.abc import Collection, Mapping, Sequence

from cluster.base.console import Console
from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import ClusterSpec, name_flag
from cluster.engine.client import Engine
from cluster.links.link_spec import link_plans
from cluster.shaping.cluster_links import read_cluster_links
from cluster.shaping.link_record import read_record, write_record
from cluster.shaping.link_state import LinkState, apply_some, clear_some, read_link_state
from cluster.shaping.temporary_changes import (
    TemporaryChange,
    drop_limits,
    read_temporary_changes,
)
from cluster.ssh.fleet import Fleet
from protocol.node_plan import NodePlan


def restore_limits(
    engine: Engine, spec: ClusterSpec, console: Console
) -> Sequence[TemporaryChange]:
    """Restore the CPU limits that killed commands changed.

    Returns:
        The changes of those commands, to `forget` once the links are restored, too.
    """
    killed = _of_killed(spec)
    for left in killed:
        if not left.limits:
            continue
        containers = engine.containers(spec.name)
        now = engine.limits(containers)
        back = {n: limit for n, limit in left.limits.items() if now.get(n, limit) != limit}
        if back:
            engine.set_limits(containers, back)
            console.say(f"{_names(back)}: restored the CPU limits that `{left.what}` left changed")
        drop_limits(left.path)
    return killed


def restore_links(
    fleet: Fleet, spec: ClusterSpec, console: Console, link_state: LinkState | None = None
) -> LinkState:
    """Apply the recorded links again on nodes where others are in force; return the links then in force.

    While a temporary change (a trace, `shape --for`) is going on, only on nodes that have lost their links.
    `link_state` is what has just been read, as reading many nodes takes seconds; None: it is read here.

    Raises:
        NodeError: a node does not answer, could not apply its links, or has others in force afterwards.
        ClusterError: a killed command left links changed while a temporary change is going on; nothing was applied.
    """
    adopt_links(fleet, spec)
    link_state, recorded = link_state or read_cluster_links(fleet, spec), read_record(spec) or {}
    _refuse_mixed(spec, link_state, recorded)
    wrong = not_as_recorded(spec, link_state, recorded)
    if not wrong:
        return link_state
    console.say(
        f"{_names(wrong)}: the links in force differ from those asked for; applying them again{_why(link_state)}"
    )
    apply_some(fleet, {node: plan for node, plan in recorded.items() if node in wrong})
    clear_some(fleet, [node for node in wrong if node not in recorded])
    restored = read_cluster_links(fleet, spec)
    if wrong := not_as_recorded(spec, restored, recorded):
        others = dict.fromkeys(wrong, "other links than those just applied are in force")
        raise NodeError(
            f"the links could not be restored{_why(restored)}",
            others,
            f"make the cluster anew: python -m cluster.down{name_flag(spec.name)}, then cluster.up with the profile, "
            "topology and seed that cluster.status shows",
        )
    return restored


def adopt_links(fleet: Fleet, spec: ClusterSpec) -> None:
    """Record the links in force if there is no record yet: plain Compose or an earlier version created the nodes.

    Raises:
        ClusterError: nodes have lost their links, and what these were is unknown.
    """
    if read_record(spec) is not None:
        return
    link_state = read_link_state(fleet)
    if link_state.notes and not link_state.plans:
        raise ClusterError(
            f"links were in force, and it is not on record which{_why(link_state)}",
            f"python -m cluster.shape{name_flag(spec.name)} --profile NAME, or --clear",
        )
    plans = dict(link_state.plans)
    if link_state.link_spec is not None and plans.keys() != {node.name for node in spec.nodes}:
        plans = link_plans(spec.nodes, link_state.link_spec)
    write_record(spec, plans)


def refuse_lost(spec: ClusterSpec, link_state: LinkState) -> None:
    """Refuse to measure links that are no longer in force.

    Raises:
        ClusterError: recorded links are missing; names the nodes, and the reason.
    """
    recorded = read_record(spec)
    lost = [node for node in recorded or {} if node not in link_state.plans]
    if lost:
        raise ClusterError(
            f"the links of {_names(lost)} are no longer in force{_why(link_state)}",
            f"apply them again: python -m cluster.up{name_flag(spec.name)}",
        )


def find_leftovers(spec: ClusterSpec, link_state: LinkState) -> list[str]:
    """Return sentences for the user: what the next command will restore, and which temporary changes are going on."""
    changes, recorded = read_temporary_changes(spec), read_record(spec)
    next_one = "the next up or launch"
    if recorded is not None and (others := _mixed(changes, link_state, recorded)):
        next_one = f"the first up or launch after the end of {' and '.join(others)}"
    said = [
        f"`{one.what}` changes links or processors for a while"
        if one.alive
        else f"`{one.what}` was killed; {next_one} undoes its temporary changes"
        for one in changes
    ]
    wrong = not_as_recorded(spec, link_state, recorded) if recorded is not None else []
    if wrong:
        said.append(
            f"{_names(wrong)}: the links in force differ from those asked for; {next_one} applies them again"
        )
    return said


def lost_links(before: LinkState, after: LinkState, asked: Collection[str]) -> str:
    """Return which of the `asked` nodes have lost their links, and why; '' if none has."""
    lost = [node for node in before.plans if node in asked and node not in after.plans]
    return f"those of {_names(lost)} are not in force any more{_why(after)}" if lost else ""


def changed_links(before: LinkState, after: LinkState) -> str:
    """Return which nodes' links were lost, or are others now; '' if none."""
    others = [node for node in differing(after, before.plans) if node in after.plans]
    words = f"those of {_names(others)} are others now" if others else ""
    return "; ".join(filter(None, [lost_links(before, after, before.plans), words]))


def differing(link_state: LinkState, recorded: Mapping[str, NodePlan]) -> list[str]:
    """Return the nodes whose plan in force differs from the recorded one."""
    nodes = sorted(link_state.plans.keys() | recorded.keys())
    return [node for node in nodes if link_state.plans.get(node) != recorded.get(node)]


def not_as_recorded(
    spec: ClusterSpec, link_state: LinkState, recorded: Mapping[str, NodePlan]
) -> list[str]:
    """Return the nodes that need their recorded links again.

    While a temporary change is going on, only those that have lost their links: it alters links, but removes none.
    """
    wrong = differing(link_state, recorded)
    if not wrong or not is_changing(spec, link_state):
        return wrong
    return [node for node in wrong if node not in link_state.plans]


def is_changing(spec: ClusterSpec, link_state: LinkState) -> bool:
    """Return whether a temporary change of links is going on, which will undo itself."""
    return bool(link_state.replayed) or any(one.alive for one in read_temporary_changes(spec))


def _refuse_mixed(
    spec: ClusterSpec, link_state: LinkState, recorded: Mapping[str, NodePlan]
) -> None:
    """Refuse to take links for asked for that a killed command may have changed.

    Raises:
        ClusterError: names the killed command, and what else changes links at the moment.
    """
    changes = read_temporary_changes(spec)
    if others := _mixed(changes, link_state, recorded):
        killed = ", ".join(f"`{one.what}`" for one in changes if not one.alive)
        raise ClusterError(
            f"links that killed commands left changed ({killed}) cannot be told from those that others change for a "
            f"while ({', '.join(others)})",
            "wait for the end of the latter, or end them where they were begun",
        )


def _mixed(
    changes: Sequence[TemporaryChange], link_state: LinkState, recorded: Mapping[str, NodePlan]
) -> list[str]:
    """Return what changes links at the moment, if a killed command may have left some changed, too; else nothing.

    Notes do not say which links they are about.
    """
    if all(one.alive for one in changes) or not differing(link_state, recorded):
        return []
    traces = ["a trace"] if link_state.replayed else []
    return [f"`{one.what}`" for one in changes if one.alive] + traces


def _of_killed(spec: ClusterSpec) -> list[TemporaryChange]:
    return [one for one in read_temporary_changes(spec) if not one.alive]


def _names(nodes: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(nodes)


def _why(link_state: LinkState) -> str:
    return f" ({'; '.join(link_state.notes)})" if link_state.notes else ""
