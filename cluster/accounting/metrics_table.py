"""One table of a run's metrics: a row for each step of each rank. Pure, except for reading the files."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.accounting.collective_stats import read_own_parts
from cluster.accounting.collectives import Collective, Part, put_together
from cluster.accounting.metrics import slim_events
from cluster.base.errors import UsageError
from protocol.collectives import MOST_COLLECTIVES
from protocol.metrics import FIGURES, OF_SOLVER, Evaluation, Line, Rollout, Step

Row = dict[str, Any]
"""Column -> value, without the values that the step did not have."""

HOST = re.compile(r"([A-Za-z0-9_.:-]{1,64}) slots=([1-9][0-9]?)")
MOST_HOSTS = 1000

COLUMNS = (
    "step",
    "rank",
    "node",
    "time",
    "elapsed_s",
    "loss",
    "compute_s",
    "comm_s",
    "strategy_s",
    "waiting_s",
    "sent_bytes",
    "sent_bytes_so_far",
    "eval_s",
    *(name for name in FIGURES if name not in OF_SOLVER),
    "env_steps",
    "episodes",
    "episode_return",
    "episode_length",
)


def metric_rows(folder: Path) -> list[Row]:
    """Return a row for every step of every rank, ordered by step; values that a step did not have are left out.

    `elapsed_s` counts from when the first rank was ready, `waiting_s` is how long a slower rank had not arrived yet, or
    a learner lacked experience (docs/run-folder.md; left out if another rank's part in a collective of the step is
    unknown), `sent_bytes` are this step's, of the strategy alone.

    Raises:
        UsageError: the folder is not a run's, or its program wrote no metrics.
    """
    lines = _read_lines(folder)
    began = min(line.time for own in lines.values() for line in own)
    ranks = _rank_names(folder, list(lines))
    waiting = _Waiting(folder, ranks)
    rows: list[Row] = []
    for node, own in lines.items():
        tests = {line.step: line for line in own if isinstance(line, Evaluation)}
        rollouts = {line.step: line for line in own if isinstance(line, Rollout)}
        so_far = 0
        for line in (line for line in own if isinstance(line, Step)):
            so_far += line.sent_bytes
            own_s, others_s = line.waiting_s, waiting.seconds(ranks.index(node), line.step)
            rest = {
                "rank": ranks.index(node),  # not what the line says: a node could write for another
                "node": node,
                "elapsed_s": round(line.time - began, 6),
                "waiting_s": others_s if own_s is None else own_s,
                "sent_bytes_so_far": so_far,
            }
            rows.append(_row([rollouts.get(line.step), tests.get(line.step), line], rest))
    return sorted(rows, key=lambda row: (row["step"], row["rank"]))


def _row(lines: Sequence[Rollout | Evaluation | Step | None], rest: Row) -> Row:
    """Return a row from the lines of a step, and the rest."""
    values: Row = {}
    for line in lines:
        values |= line._asdict() if line else {}
    values |= rest
    return {name: values[name] for name in COLUMNS if values.get(name) is not None}


def _read_lines(folder: Path) -> dict[str, list[Line]]:
    """Read lines by node, in rank order; a line that a killed rank did not finish is skipped."""
    found = {}
    for path in (folder / "metrics").glob("*.jsonl"):
        if not path.name.endswith(".collectives.jsonl"):
            found[path.stem] = list(slim_events(path))
    found = {node: lines for node, lines in found.items() if lines}
    if not found:
        raise UsageError(
            f"no metrics in {folder}", "name the folder of a run of node.train: runs/<time>-…"
        )
    return dict(sorted(found.items(), key=lambda item: item[1][0].rank))


def _rank_names(folder: Path, found: Sequence[str]) -> list[str]:
    """Return the names of all ranks in order, also of those that left no metrics; without a hostfile, of the others."""
    path = folder / "hostfile"
    if not path.is_file():
        return list(found)
    with path.open(encoding="utf-8", errors="replace") as file:
        hosts = [HOST.fullmatch(line.strip()) for line in islice(file, MOST_HOSTS)]
    names: list[str] = []
    for node, slots in (host.groups() for host in hosts if host):
        names += [node] if slots == "1" else [f"{node}-{rank}" for rank in range(int(slots))]
    return names if set(found) <= set(names) else list(found)


class _Waiting:
    """How long ranks waited for slower ones, by step. A collective counts in the step in which the rank began it.

    Args:
        folder: the run's.
        ranks: the names of all, in order.
    """

    def __init__(self, folder: Path, ranks: Sequence[str]) -> None:
        parts = read_own_parts(folder, ranks)
        self._seconds: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._lines = Counter((p.rank, p.step) for own in parts for p in own if not _tests(p))
        self._joined: Counter[tuple[int, int]] = Counter()
        self._until = [_known_until(own, alone=len(ranks) == 1) for own in parts]
        for collective in filter(_is_whole, put_together(parts)):
            for part in collective.parts:
                if not _tests(part):
                    self._joined[part.rank, part.step] += 1
                    self._seconds[part.rank, part.step] += collective.waiting_s(part)

    def seconds(self, rank: int, step: int) -> float | None:
        """Return the seconds; None if a collective of the step has no line, or lacks another rank's part."""
        at = rank, step
        is_known = step < self._until[rank] and self._lines[at] == self._joined[at]
        return round(self._seconds[at], 6) if is_known else None


def _tests(part: Part) -> bool:
    return part.purpose == "eval"


def _known_until(own: Sequence[Part], *, alone: bool) -> float:
    """Return the first step of which a rank may have collectives without a line."""
    if not own:
        return math.inf if alone else 0
    return own[-1].step if len(own) >= MOST_COLLECTIVES else math.inf


def _is_whole(collective: Collective) -> bool:
    """Return whether the parts of all that take part are there; of an exchange, some may be missing."""
    part = collective.parts[0]
    there = {other.rank for other in collective.others}
    return part.kind != "exchange" or there >= {*part.to, *part.sources}
