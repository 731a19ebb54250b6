"""What to tell of ranks that failed: the first one, the end of its log, and what a reader of it would not know."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.errors import RunFailed
from cluster.links import Link
from cluster.ranks import Ended
from cluster.remote_process import LOST
from cluster.spec import Node

LAST_LINES = 8
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def raise_failure(
    folder: Path,
    ended: Sequence[Ended],
    nodes: Sequence[Node],
    isolated: Sequence[Link],
    summary: dict[str, Any],
) -> None:
    """Raise where a rank failed.

    Args:
        folder: the run's.
        ended: how the ranks ended, in that order.
        nodes: of the cluster.
        isolated: the links, where nodes without one cannot reach each other; none where they can.
        summary: of the run.

    Raises:
        RunFailed: names the root cause.
    """
    failed = [end for end in ended if end.exit_code != 0]
    if not failed:
        return
    first = failed[0]
    log = folder / "logs" / f"{first.place.name}.log"
    words = log.read_text(errors="replace").splitlines()
    others = ", ".join(f"{end.place.name} {_how_later(end.exit_code)}" for end in failed[1:])
    who = f"rank {first.place.rank} on {first.place.node} {_how(first.exit_code)}"
    lines = [
        f"{who}: the root cause (first of {len(failed)} to fail)",
        *([f"  {first.error}"] if first.error else []),
        *(f"  | {line}" for line in words[-LAST_LINES:]),
        *(f"  {text}" for text in missing_links(first.place.node, words, nodes, isolated)),
        *([f"  after it: {others}"] if others else []),
    ]
    raise RunFailed("\n".join(lines), f"the whole log: {log}", summary)


def missing_links(
    node: str, log: Sequence[str], nodes: Sequence[Node], isolated: Sequence[Link]
) -> list[str]:
    """Of isolated nodes: which links the end of a rank's log speaks of that are not there."""
    if not isolated:
        return []
    names = {one.address: one.name for one in nodes}
    neighbours = {link.dst for link in isolated if link.src == node} | {node}
    spoken_of = {names.get(address) for line in log for address in ADDRESS.findall(line)}
    return [
        f"{node} and {other} have no link, and nodes are isolated: this needs one"
        for other in sorted(name for name in spoken_of if name and name not in neighbours)
    ]


def _how_later(exit_code: int) -> str:
    """Of a rank that ended after the first one failed: we stop it, unless it fails by itself."""
    return "was stopped" if exit_code == -signal.SIGTERM else _how(exit_code)


def _how(exit_code: int) -> str:
    if exit_code == LOST:
        return "was lost: its connection broke"
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"
