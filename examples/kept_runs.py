"""Runs that an example keeps: what was run with the same settings is not run again. compare_rl.py's."""

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
    """What decides a run: its words for node.train, and what it runs on."""
    # Not by its name alone: a file of the same name may say something else now.
    return {"words": list(words), "nodes": nodes, "profile": asdict(load_profile(profile))}


def known_or_run(
    cluster: Callable[[], Cluster], asked: Row, out: Path, name: str, *, verify: bool
) -> tuple[Path, Row]:
    """The folder and summary of a run: from an earlier time, if it was asked for in the same way, or of a new one.

    Args:
        cluster: gives the nodes; it is not called where the run is known.
        asked: see `settings`.
        out: where what is known lies.
        name: of this run among them.
        verify: whether the links are measured first.
    """
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    path = out / f"{name}-{digest}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if known and Path(known["folder"]).is_dir():
        return Path(known["folder"]), known["summary"]
    folder, summary = run(cluster(), asked["words"], asked["nodes"], verify=verify)
    if summary["status"] == "done":  # what failed is tried again the next time
        known = {"asked": asked, "folder": str(folder), "summary": summary}
        path.write_text(json.dumps(known, indent=2) + "\n")
    return folder, summary


def run(cluster: Cluster, words: Sequence[str], nodes: int, *, verify: bool) -> tuple[Path, Row]:
    """One training: its folder and summary, also of one that failed."""
    try:
        summary = cluster.launch(training(words, ranks=nodes), verify=verify).summary
    except RunFailed as failure:
        cluster.console.fail(failure)
        # Its ranks may all be done: over links that were lost, or with results that stayed on their node.
        summary = dict(failure.document) | {"status": "failed"}  # type: ignore[call-overload]
    return Path(summary["folder"]), summary


def write_table(out: Path, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """NAME.csv and NAME.json; what a run does not have stays empty, or null."""
    (out / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def cell(value: object) -> str:
    """A value as a table for readers has it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return str(value)
