"""Changes of single links on a running cluster, applied to the plans in force. Pure functions."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError, shown, unknown
from cluster.links.link import checked_jitter
from cluster.links.underlay import Underlay, underlay_of
from protocol.link import LIMITS, Link, Pair
from protocol.node_plan import NodePlan

LONGEST_S = 366 * 24 * 3600.0  # short enough not to overflow any wait of the system
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Change:
    """New values of one directed link, by the names of its fields; other fields stay."""

    src: str
    dst: str
    values: Mapping[str, float]


def make_changes(
    links: Sequence[str], values: Mapping[str, float | None], *, both: bool
) -> list[Change]:
    """Return the changes that the user asked for, checked.

    Args:
        links: each as SRC:DST.
        values: field of a link -> its new value, or None to keep it.
        both: whether the links in the reverse direction change, too.

    Raises:
        UsageError: no link, no value, or one out of bounds.
    """
    new = {field: value for field, value in values.items() if value is not None}
    if not new:
        raise UsageError(
            "nothing to change on these links", "delay_ms: 80 (on the command line: --delay 80)"
        )
    for field, value in new.items():
        low, high = LIMITS[field]
        if not low <= value <= high:
            raise UsageError(f"{field} is {value:g}", f"a number within {low:g} to {high:g}")
    return [Change(src, dst, new) for src, dst in make_pairs(links, both=both)]


def make_pairs(links: Sequence[str], *, both: bool) -> list[Pair]:
    """Return the links that the user named as SRC:DST, and with `both` also the reverse ones.

    Raises:
        UsageError: one is no link.
    """
    pairs = [parse_link(text) for text in links]
    return [
        ends for src, dst in pairs for ends in ([(src, dst), (dst, src)] if both else [(src, dst)])
    ]


def change_plans(plans: Mapping[str, NodePlan], changes: Sequence[Change]) -> dict[str, NodePlan]:
    """Return the changed plans of the nodes at the ends of changed links.

    Raises:
        UsageError: there is no such link, or one of them may not become so; as `changed_link`.
    """
    for change in changes:
        if not _link_of(plans, change):
            raise unknown("link", f"{change.src}:{change.dst}", _names(plans))
    changed = {node for change in changes for node in (change.src, change.dst)}
    underlay = underlay_of(plans)
    return {
        name: plan._replace(links=[changed_link(link, changes, underlay) for link in plan.links])
        for name, plan in plans.items()
        if name in changed
    }


def changed_link(link: Link, changes: Iterable[Change], underlay: Underlay) -> Link:
    """Return a link with all changes that concern it, in their order.

    Raises:
        UsageError: its new delay leaves no room for its jitter, or it asks for more than the network beneath has.
    """
    mine = [change.values for change in changes if link.ends == (change.src, change.dst)]
    for values in mine:
        link = link._replace(**values)  # type: ignore[arg-type]
    return underlay.checked(checked_jitter(link)) if mine else link


def undo_changes(
    asked: Mapping[str, NodePlan],
    now: Mapping[str, NodePlan],
    changes: Sequence[Change],
) -> list[Change]:
    """Return the changes that restore the values asked for, if at least one end still has the new ones.

    Args:
        asked: the plans on record; the values before the changes may have been those of another temporary change.
        now: the plans in force.
        changes: what was changed for a while.
    """
    undone = []
    for change in changes:
        links, ends = _link_of(asked, change), _link_of(now, change)
        values = {
            field: getattr(links[0], field)
            for field, value in change.values.items()
            if links and any(getattr(end, field) == value for end in ends)
        }
        if values:
            undone.append(Change(change.src, change.dst, values))
    return undone


def _link_of(plans: Mapping[str, NodePlan], change: Change) -> list[Link]:
    """Return a link as each of its ends has it."""
    return [
        link
        for plan in plans.values()
        for link in plan.links
        if link.ends == (change.src, change.dst)
    ]


def check_pairs(named: Iterable[Pair], there: Collection[Pair]) -> None:
    """Refuse links that do not exist.

    Raises:
        UsageError: names the first of them.
    """
    if not there:
        raise UsageError("no link is shaped, so none can change", "--profile NAME")
    for src, dst in named:
        if (src, dst) not in there:
            raise unknown("link", f"{src}:{dst}", {f"{a}:{b}" for a, b in there})


def parse_seconds(text: str) -> float:
    """Return a duration such as 10s, 500ms or 2m in seconds.

    Raises:
        UsageError: it is no duration, or longer than a year.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    seconds = float(found[1]) * SECONDS[found[2]] if found else math.inf
    if seconds > LONGEST_S:
        raise UsageError(f"{shown(text)} is no duration", "10s, 500ms or 2m, at most a year")
    return seconds


def parse_link(text: str) -> Pair:
    """Return the two nodes of SRC:DST.

    Raises:
        UsageError: it is not of this form.
    """
    src, colon, dst = text.partition(":")
    if not (src and colon and dst) or src == dst:
        raise UsageError(f"{shown(text)} is no link", "node1:node3, from the first to the second")
    return src, dst


def _names(plans: Mapping[str, NodePlan]) -> set[str]:
    return {f"{link.src}:{link.dst}" for plan in plans.values() for link in plan.links}
