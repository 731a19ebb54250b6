"""Runs that an example keeps: what was run with the same settings is not run again. compare_* have this in common."""

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster import Cluster, training
from cluster.accounting.metrics_table import metric_rows
from cluster.accounting.wire_bytes import parse_sent
from cluster.base.errors import RunFailed, UsageError
from cluster.links.profiles import load_profile
from cluster.run.run_folder import last_events

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


def steps_of(folder: Path) -> list[Row]:
    """Every step of every rank, as `cluster.accounting.metrics_table` has them; none of one that failed before."""
    try:
        return metric_rows(folder)
    except UsageError:
        return []


def tests_bytes(folder: Path, summary: Mapping[str, Any]) -> int:
    """What links have carried for tests, headers included: by what the ranks say that they sent for them."""
    nodes = list(summary["exit_codes"])
    total = 0
    for node in nodes:
        end = last_events(folder, node).get("end", {})
        tests = [one for one in end.get("collectives", ()) if one["purpose"] == "eval"]
        for sent in parse_sent(nodes, node, {"collectives": tests}):
            total += sent.forward_bytes + sent.answer_bytes + sent.ack_bytes
    return total


def payload_to(row: Row, steps: Sequence[Row]) -> int:
    """What the strategy had sent in all by a step, without headers."""
    return sum(one["sent_bytes_so_far"] for one in steps if one["step"] == row["step"])


def loop_s(seconds: Mapping[str, float]) -> float:
    """Of a rank's seconds those of training: from when it was ready until the last step, without tests."""
    return seconds["total"] - seconds["startup"] - seconds["eval"]


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
