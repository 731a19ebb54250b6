"""Keeps the runs of compare_rl.py: a run with the same settings is not repeated."""

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster import Cluster, training
from cluster.base.errors import RunFailed
from cluster.links.profiles import load_profile

Row = dict[str, Any]


def settings(words: Sequence[str], nodes: int, profile: str) -> Row:
    """Return the settings that determine a run: its arguments for node.train, and the nodes and links."""
    # With the profile's content, not only its name: the file may have changed since.
    return {"words": list(words), "nodes": nodes, "profile": asdict(load_profile(profile))}


def known_or_run(
    cluster: Callable[[], Cluster], asked: Row, out: Path, name: str, *, verify: bool
) -> tuple[Path, Row]:
    """Return the folder and summary of a run: a kept one with the same settings, or a new one.

    Args:
        cluster: returns the cluster; not called if the run is known.
        asked: see `settings`.
        out: the folder of kept runs.
        name: the run's name among them.
        verify: whether the links are measured first.
    """
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    path = out / f"{name}-{digest}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if known and Path(known["folder"]).is_dir():
        return Path(known["folder"]), known["summary"]
    folder, summary = run(cluster(), asked["words"], asked["nodes"], verify=verify)
    if summary["status"] == "done":  # a failed run is tried again the next time
        known = {"asked": asked, "folder": str(folder), "summary": summary}
        path.write_text(json.dumps(known, indent=2) + "\n")
    return folder, summary


def run(cluster: Cluster, words: Sequence[str], nodes: int, *, verify: bool) -> tuple[Path, Row]:
    """Run one training; return its folder and summary, also if it failed."""
    try:
        summary = cluster.launch(training(words, ranks=nodes), verify=verify).summary
    except RunFailed as failure:
        cluster.console.fail(failure)
        # All ranks may still be done: links may have been lost, or results may have stayed on their node.
        summary = dict(failure.document) | {"status": "failed"}  # type: ignore[call-overload]
    return Path(summary["folder"]), summary


def write_table(out: Path, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Write NAME.csv and NAME.json; a value that a run does not have is empty, or null."""
    (out / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def cell(value: object) -> str:
    """Format a value for the printed table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return str(value)
