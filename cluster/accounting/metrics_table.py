"""One table of a run's metrics: a row for each step of each rank. Pure, except for reading the files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.metrics import read_events
from cluster.base.errors import UsageError
from protocol.metrics import FIGURES, OF_SOLVER, Evaluation, Line, Rollout, Step

Row = dict[str, Any]
"""Column -> value, without the values that the step did not have."""

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

    `elapsed_s` counts from when the first rank was ready, `waiting_s` is how long a slower rank had not arrived yet
    (docs/run-folder.md), `sent_bytes` are this step's, of the strategy alone.

    Raises:
        UsageError: the folder is not a run's, or its program wrote no metrics.
    """
    lines = _read_lines(folder)
    began = min(line.time for own in lines.values() for line in own)
    waiting_s = _waiting_by_step(folder, list(lines))
    rows: list[Row] = []
    for node, own in lines.items():
        tests = {line.step: line for line in own if isinstance(line, Evaluation)}
        rollouts = {line.step: line for line in own if isinstance(line, Rollout)}
        so_far = 0
        for line in (line for line in own if isinstance(line, Step)):
            so_far += line.sent_bytes
            rest = {
                "node": node,
                "elapsed_s": round(line.time - began, 6),
                "waiting_s": round(waiting_s.get((line.rank, line.step), 0.0), 6),
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
            found[path.stem] = list(read_events(path))
    found = {node: lines for node, lines in found.items() if lines}
    if not found:
        raise UsageError(
            f"no metrics in {folder}", "the folder of a run of node.train: runs/<time>-…"
        )
    return dict(sorted(found.items(), key=lambda item: item[1][0].rank))


def _waiting_by_step(folder: Path, nodes: list[str]) -> dict[tuple[int, int], float]:
    """Return (rank, step) -> seconds. A collective counts in the step in which the rank began it."""
    waiting_s: dict[tuple[int, int], float] = {}
    for collective in (one for one in read_collectives(folder, nodes) if not one.tests):
        for part in collective.parts:
            key = part.rank, part.step
            waiting_s[key] = waiting_s.get(key, 0.0) + collective.waiting_s(part)
    return waiting_s
