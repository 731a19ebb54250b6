"""Twenty runs with one planted cause each: does each run name it first? Prints a table, asserts nothing.

    python tests/planted.py                     # all of them: some twenty minutes
    python tests/planted.py slow_link event     # these kinds alone

Three nodes, links of 8 MB/s and 10 ms; fedavg, whose ring goes node1 -> node3 -> node2 -> node1. Uses a cluster named
t-planted; any other load on this machine slows ranks, too.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster.base.console import print_table
from cluster.base.paths import PROJECT_DIR

NAME = "t-planted"
NEAR = {"rate_mbyte_s": 8, "delay_ms": 10}
TRAINING = ("--batch-size", "16", "--eval-every", "0", "--seed", "1")
STRAGGLER = """\
import os, time
from dataclasses import dataclass
from node.strategies.fedavg import FedAvg

@dataclass
class Straggler(FedAvg):
    def step(self, step):
        if os.environ["RANK"] == "{rank}":
            time.sleep(0.15)
        super().step(step)
"""
TIMEOUT_S = 900


@dataclass(frozen=True)
class Plant:
    """One run with its planted cause.

    Attributes:
        cause: the cause's name in `causes` of summary.json.
        of: the link, node or event that has it, as `causes` names it; empty if none does.
        profile: the profile of all links; `topology` has the links that differ, `schedule` the changes during the run.
        limits: CPU limits, NODE=CPUS.
        straggler: a rank whose steps take 0.15 s longer; None: all are alike.
        averages: the steps between two averages, and the number of steps.
    """

    cause: str
    of: str
    profile: Mapping[str, object] | None = None
    topology: Mapping[str, object] | None = None
    schedule: list[Mapping[str, object]] | None = None
    limits: str = ""
    straggler: int | None = None
    averages: tuple[int, int] = (8, 40)


def link(src: str, dst: str, **values: float) -> dict[str, object]:
    """Return a topology in which one link differs."""
    return {"base": "full", "links": [{"src": src, "dst": dst, **values}]}


def plants() -> Iterator[Plant]:
    """Yield all twenty."""
    ring = [("node2", "node1"), ("node1", "node3"), ("node3", "node2")]
    for (src, dst), rate in zip([*ring, ring[0]], (1.0, 1.5, 2.0, 2.5), strict=True):
        yield Plant("slow_link", f"{src}->{dst}", topology=link(src, dst, rate_mbyte_s=rate))
    for (src, dst), loss in zip(ring, (2, 4, 6), strict=True):
        yield Plant("lossy_link", f"{src}->{dst}", topology=link(src, dst, loss_pct=loss))
    for node, rate in (("node1", 1.0), ("node2", 1.5), ("node3", 2.0)):
        topology = {"base": "full", "nodes": {node: {"uplink_mbyte_s": rate}}}
        yield Plant("narrow_access", f"{node} uplink", topology=topology)
    for rank in (1, 2):
        yield Plant("slow_node", f"node{rank + 1}", straggler=rank, averages=(20, 60))
    for node, cpus in (("node1", 0.3), ("node2", 0.25), ("node3", 0.2)):
        yield Plant("throttled_node", node, limits=f"{node}={cpus}", averages=(20, 60))
    for alone, at in (("node1", 9), ("node2", 17), ("node3", 25)):
        others = [node for node in ("node1", "node2", "node3") if node != alone]
        cut = {"at": f"step {at}", "partition": [[alone], others], "for": "8s"}
        yield Plant("event", "partition", schedule=[cut])
    for rate in (8, 16):
        far = {"rate_mbyte_s": rate, "delay_ms": 100}
        yield Plant("idle_window", "", profile=far, averages=(20, 80))


def main() -> None:
    """Run each, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("causes", nargs="*", help="these alone")
    args = parser.parse_args()
    rows, right = [], 0
    folder = Path(tempfile.mkdtemp(prefix="gradwire-planted-"))
    try:
        for plant in plants():
            if args.causes and plant.cause not in args.causes:
                continue
            found = run(plant, folder)
            is_right = bool(found) and is_planted(plant, found[0])
            right += is_right
            named = [f"{one['cause']} {one['of']}"[:40] for one in found[:2]] or ["-"]
            seconds = [f"{one['seconds']:.1f}" for one in found[:2]] or ["-"]
            row = [f"{plant.cause} {plant.of}", named[0], seconds[0], *pad(named, seconds)]
            rows.append([*row, "first" if is_right else "NOT FIRST"])
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    finally:
        verb("down", "--force")
        shutil.rmtree(folder)
    print_table(["PLANTED", "NAMED FIRST", "s", "NAMED NEXT", "s", ""], rows)
    print(f"{right} of {len(rows)} were named first")


def pad(named: list[str], seconds: list[str]) -> list[str]:
    """Return the second cause that was named, if there is one."""
    return [named[1], seconds[1]] if len(named) > 1 else ["", ""]


def is_planted(plant: Plant, found: Mapping[str, object]) -> bool:
    """Return whether a cause is the planted one; for an event, a part of its text suffices."""
    return found["cause"] == plant.cause and plant.of in str(found["of"])


def run(plant: Plant, folder: Path) -> list[Mapping[str, object]]:
    """Run it; return `causes` of the run."""
    every, steps = plant.averages
    words = ["--profile", write(folder / "near.yml", plant.profile or NEAR)]
    if plant.topology:
        words += ["--topology", write(folder / "planted.yml", plant.topology)]
    if plant.schedule:
        words += ["--schedule", write(folder / "schedule.yml", plant.schedule)]
    words += ["--cpus", plant.limits or "none"]
    words += ["--strategy", write_strategy(folder, plant.straggler), "--set", f"H={every}"]
    said = verb("launch", *words, "--no-verify", *TRAINING, "--steps", str(steps))
    causes: list[Mapping[str, object]] = json.loads(said)["causes"]
    return causes


def write(path: Path, document: object) -> str:
    """Write a document as YAML; return the path."""
    path.write_text(yaml.safe_dump(document))
    return str(path)


def write_strategy(folder: Path, straggler: int | None) -> str:
    """Return the strategy: FedAvg, or a file with a variant in which one rank is slow."""
    if straggler is None:
        return "fedavg"
    own = folder / "straggler"
    own.mkdir(exist_ok=True)
    (own / "mine.py").write_text(STRAGGLER.format(rank=straggler))
    return f"{own / 'mine.py'}:Straggler"


def verb(name: str, *words: str) -> str:
    """Run a verb with --json; return its output."""
    argv = [sys.executable, "-m", f"cluster.{name}", "--name", NAME, "--json", *words]
    done = subprocess.run(
        argv, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
