"""The run folder: everything that one launch asked for, measured and left behind.

runs/20261121-101500-mobile-fedavg/
run.yml          the resolved configuration, versions, the command
hostfile         node1 slots=1 …: nodes, and how many ranks on each
links.json       every link, as in force
contract.json    asked against measured
events.jsonl     what a schedule did to the links, and when
logs/node1.log … what each rank printed; with several on a node node1-0.log, node1-1.log …, and so below
metrics/node1.jsonl …, metrics/node1.collectives.jsonl …
summary.json     how it ended
model.pt         what rank 0 saved; files/node1/… whatever else a rank left in GRADWIRE_RUN_DIR
"""

import io
import json
import platform
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from cluster.links import Link
from cluster.places import Place

METRICS, COLLECTIVES = "metrics.jsonl", "collectives.jsonl"
MODEL = "model.pt"


def make_run_folder(parent: Path, profile: str, name: str) -> Path:
    """A new folder, named by the time, what the links are and what runs.

    A second one in the same second gets a number.
    """
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{profile}-{name}"
    for number in range(1, 1000):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        (folder / "logs").mkdir()
        return folder
    raise FileExistsError(f"{parent / stem} is there a thousand times")


def write_json(path: Path, document: object) -> None:
    """Write one JSON document, indented for readers."""
    path.write_text(json.dumps(document, indent=2) + "\n")


def write_links(folder: Path, links: Sequence[Link], places: Sequence[Place]) -> None:
    """links.json and the hostfile."""
    write_json(folder / "links.json", [asdict(link) for link in links])
    hosts = (f"{p.node} slots={p.local_world_size}\n" for p in places if p.local_rank == 0)
    (folder / "hostfile").write_text("".join(hosts))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """run.yml: what was asked for, resolved, and on what it ran."""
    host = {"host": {"system": platform.platform(), "python": platform.python_version()}}
    (folder / "run.yml").write_text(yaml.safe_dump(dict(config) | host, sort_keys=False, width=120))


def unpack_results(folder: Path, node: str, places: Sequence[Place], archive: bytes) -> list[str]:
    """Sort what the ranks of a node left behind into the run folder.

    Metrics and rank 0's model have places of their own; everything else keeps its name under files/NODE/, also what a
    program of the user's own calls metrics.jsonl.

    Returns:
        The names of what stays out: pipes, devices, and links to a place outside of what the ranks left.
    """
    others = folder / "files" / node
    left_out = _extract(archive, others)
    for place in places:
        if _is_metrics(others / place.file(METRICS)):
            _move(others / place.file(METRICS), folder / "metrics" / f"{place.name}.jsonl")
            kept = folder / "metrics" / f"{place.name}.{COLLECTIVES}"
            _move(others / place.file(COLLECTIVES), kept)
        if place.rank == 0:
            _move(others / MODEL, folder / MODEL)
    if not any(others.iterdir()):
        others.rmdir()
    if not any(others.parent.iterdir()):
        others.parent.rmdir()
    return left_out


def last_events(folder: Path, rank: str) -> dict[str, dict[str, Any]]:
    """The last line of each event in a rank's metrics: start, step, eval, end; empty where it left none."""
    path = folder / "metrics" / f"{rank}.jsonl"
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {line["event"]: line for line in lines}


def _extract(archive: bytes, folder: Path) -> list[str]:
    """Unpack what is safe; returns the names of the rest."""
    left_out: list[str] = []

    def safe(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError:
            left_out.append(member.name.removeprefix("./"))
            return None

    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter=safe)
    return left_out


def _is_metrics(path: Path) -> bool:
    """Whether a file is one of node.train's, by its first line: an event, of which rank, and when."""
    try:
        with path.open(encoding="utf-8") as lines:
            first = json.loads(lines.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"event", "rank", "time"} <= first.keys()


def _move(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(exist_ok=True)
        shutil.move(source, target)
