"""Export a run: what it measured (CSV, TensorBoard event files, Weights & Biases, Perfetto), or itself, for Kubernetes.

python -m cluster.export runs/20261121-101500-mobile-fedavg                  # metrics.csv, a row per step and rank
python -m cluster.export runs/20261121-101500-mobile-fedavg --csv --tensorboard
python -m cluster.export runs/20261121-101500-mobile-fedavg --wandb PROJECT
python -m cluster.export runs/20261121-101500-mobile-fedavg --trace          # trace.json, for ui.perfetto.dev
python -m cluster.export runs/20261121-101500-mobile-fedavg --kubernetes registry.example/gradwire-node:1

Files go into the run folder. --tensorboard needs `pip install -e '.[tensorboard]'`, --wandb needs `pip install wandb`
and an account; a run itself needs neither. --kubernetes writes kubernetes.yaml: the same program over the same links in
pods that make the links themselves (docs/kubernetes.md). No Kubernetes cluster has run it yet.
"""

import csv
import importlib
import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster.accounting.metrics_table import COLUMNS, Row, metric_rows
from cluster.base.errors import UsageError
from cluster.base.files import write_atomically
from cluster.cli.command_line import make_parser, run_verb
from cluster.kubernetes.manifest import manifest_again
from cluster.reporting.read_run import read_run
from cluster.reporting.trace import trace
from cluster.reporting.yaml_document import read_run_yml
from cluster.run.past_run import read_past_launch

FIGURES = [name for name in COLUMNS if name not in ("step", "rank", "node", "time")]


def main(argv: list[str] | None = None) -> int:
    """Export a run."""
    parser = make_parser("cluster.export", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN_FOLDER", help="runs/<time>-<profile>-<what>")
    add("--csv", action="store_true", help="write metrics.csv (the default)")
    add("--tensorboard", action="store_true", help="write tensorboard/node1/, …")
    add(
        "--wandb", metavar="PROJECT", help="upload to this project, as a run named after the folder"
    )
    add("--trace", action="store_true", help="write trace.json: all ranks and links on one clock")
    add(
        "--kubernetes",
        metavar="IMAGE",
        help="write kubernetes.yaml: this run as a JobSet, whose pods have this image",
    )
    return run_verb(parser, export, argv)


def export(args: Namespace) -> dict[str, object]:
    """Run the verb; checks that everything needed is available before it writes anything."""
    wants_others = args.trace or args.kubernetes
    wants_rows = args.csv or args.tensorboard or args.wandb or not wants_others
    rows = metric_rows(args.folder) if wants_rows else []
    board = (
        _library("tensorboardX", "pip install -e '.[tensorboard]'") if args.tensorboard else None
    )
    wandb = _library("wandb", "pip install wandb") if args.wandb else None
    written = []
    if args.kubernetes:
        written.append(write_kubernetes(args.folder, args.kubernetes))
    if args.trace:
        written.append(write_trace(args.folder))
    if args.csv or not written and not (board or wandb):
        written.append(write_csv(args.folder / "metrics.csv", rows))
    if board:
        written.append(write_events(args.folder / "tensorboard", rows, board))
    if wandb:
        written.append(send_to_wandb(args.wandb, args.folder, rows, wandb))
    if not args.json:
        print("\n".join(written))
    return {"rows": len(rows), "written": written}


def write_csv(path: Path, rows: Sequence[Row]) -> str:
    """Write one row per step and rank, with missing values empty; return the path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def write_trace(folder: Path) -> str:
    """Write all ranks and links on one clock, in a file for Perfetto; return its path.

    Raises:
        UsageError: the folder is not a run's, or its program recorded no times.
    """
    run = read_run(folder)
    if not run.steps and not run.moves:
        raise UsageError(
            f"no metrics in {folder}", "name the folder of a run of node.train: runs/<time>-…"
        )
    path = folder / "trace.json"
    write_atomically(path, json.dumps(trace(run), allow_nan=False).encode(), 0o666)
    return str(path)


def write_kubernetes(folder: Path, image: str) -> str:
    """Write a run as a manifest for Kubernetes; return its path.

    Raises:
        UsageError: the folder is not a run's, the image's name is invalid, or Kubernetes cannot run this run.
    """
    path = folder / "kubernetes.yaml"
    text = manifest_again(read_past_launch(folder), image)
    write_atomically(path, text.encode(), 0o666)
    return str(path)


def write_events(folder: Path, rows: Sequence[Row], board: ModuleType) -> str:
    """Write one folder per node, each a run in TensorBoard, replacing an earlier export; return the path."""
    shutil.rmtree(folder, ignore_errors=True)
    for node in dict.fromkeys(row["node"] for row in rows):
        with board.SummaryWriter(str(folder / node)) as writer:
            for row in (row for row in rows if row["node"] == node):
                for name, value in _figures(row):
                    writer.add_scalar(name, value, row["step"], walltime=row["time"])
    return str(folder)


def send_to_wandb(project: str, folder: Path, rows: Sequence[Row], wandb: ModuleType) -> str:
    """Send one run with all ranks in it (`node1/loss` and so on); return its name."""
    config = read_run_yml(folder / "run.yml")
    run = wandb.init(project=project, name=folder.resolve().name, dir=str(folder), config=config)
    for step, together in groupby(rows, key=itemgetter("step")):  # rows are sorted by step
        run.log({f"{r['node']}/{k}": v for r in together for k, v in _figures(r)}, step=step)
    run.finish()
    return f"wandb: {project}/{folder.resolve().name}"


def _figures(row: Row) -> Iterator[tuple[str, Any]]:
    return ((name, row[name]) for name in FIGURES if name in row)


def _library(name: str, remedy: str) -> ModuleType:
    """Import a library that only one kind of export needs.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed", remedy) from None


if __name__ == "__main__":
    sys.exit(main())
