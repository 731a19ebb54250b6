"""One table of a run's metrics: a row for each step of each rank. Pure, but for reading the files."""

from pathlib import Path
from typing import Any

from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.metrics import read_events
from cluster.base.errors import UsageError

Row = dict[str, Any]

COLUMNS = (
    "step",
    "rank",
    "node",
    "time",
    "elapsed_s",
    "loss",
    "compute_s",
    "comm_s",
    "waiting_s",
    "sent_bytes",
    "sent_bytes_so_far",
    "eval_s",
    "test_loss",
    "test_accuracy",
    "validation_loss",
    "validation_bits",
    "test_return",
    "test_length",
    "test_success",
    "test_steps",
    "env_steps",
    "episodes",
    "episode_return",
    "episode_length",
)


def metric_rows(folder: Path) -> list[Row]:
    """Every step of every rank, in the order of steps; what a step did not have is not in its row.

    `elapsed_s` is since the first rank was ready, `waiting_s` how long a slower rank had not come yet
    (docs/run-folder.md), `sent_bytes` this step's, of the strategy alone.

    Raises:
        UsageError: the folder is no run's, or its program wrote no metrics.
    """
    lines = _read_lines(folder)
    began = min(line["time"] for own in lines.values() for line in own)
    waiting_s = _waiting_by_step(folder, list(lines))
    rows: list[Row] = []
    for node, own in lines.items():
        tests, rollouts = (
            {line["step"]: line for line in own if line["event"] == event}
            for event in ("eval", "rollout")
        )
        so_far = 0
        for line in (line for line in own if line["event"] == "step"):
            so_far += line["sent_bytes"]
            rest = {
                "node": node,
                "elapsed_s": round(line["time"] - began, 6),
                "waiting_s": round(waiting_s.get((line["rank"], line["step"]), 0.0), 6),
                "sent_bytes_so_far": so_far,
            }
            step = line["step"]
            values = rollouts.get(step, {}) | tests.get(step, {}) | line | rest
            rows.append({name: values[name] for name in COLUMNS if name in values})
    return sorted(rows, key=lambda row: (row["step"], row["rank"]))


def _read_lines(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Lines by node, in the order of ranks; one that a killed rank did not finish is left out."""
    found = {}
    for path in (folder / "metrics").glob("*.jsonl"):
        if not path.name.endswith(".collectives.jsonl"):
            found[path.stem] = list(read_events(path))
    found = {node: lines for node, lines in found.items() if lines}
    if not found:
        raise UsageError(
            f"no metrics in {folder}", "the folder of a run of node.train: runs/<time>-…"
        )
    return dict(sorted(found.items(), key=lambda item: item[1][0]["rank"]))


def _waiting_by_step(folder: Path, nodes: list[str]) -> dict[tuple[int, int], float]:
    """Rank and step -> seconds. A collective counts in the step in which the rank began it."""
    waiting_s: dict[tuple[int, int], float] = {}
    for collective in (one for one in read_collectives(folder, nodes) if not one.tests):
        for part in collective.parts:
            key = part.rank, part.step
            waiting_s[key] = waiting_s.get(key, 0.0) + collective.waiting_s(part)
    return waiting_s
