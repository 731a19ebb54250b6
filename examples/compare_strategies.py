"""Which strategy gets there first on a bad network? Each of them trains; one table tells.

    python examples/compare_strategies.py                       # all, on four nodes over mobile links: some hours
    python examples/compare_strategies.py --quick               # three of them, two nodes, a few steps: two minutes
    python examples/compare_strategies.py --tasks language --strategies ddp diloco --steps 100
    python examples/compare_strategies.py --target fashion-mnist=0.8 --profile wan

For each task and strategy: seconds until a step after which a test reaches the task's target, what links had to carry
in all, how much of its time rank 0 spent communicating. What never got there says how far it came. Tested is, under
every strategy, the average over all ranks of what they had after that step: of the outer parameters where there are
some, else of the replicas. All tests are made after the last step (--eval after), so that they take no time from
training, and nobody computes or sends while others test; what they send is not in the table. Results go into --out as
table.csv and table.json, and each by itself: what is there already, with the same settings, is not run again.
"""

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster import Cluster, training
from cluster.accounting.metrics_table import metric_rows
from cluster.accounting.wire_bytes import parse_sent
from cluster.base.console import Console, print_table
from cluster.base.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    ClusterError,
    RunFailed,
    UsageError,
)
from cluster.base.paths import PROJECT_DIR
from cluster.cli.command_line import hear_signals
from cluster.links.profiles import load_profile
from cluster.run.run_folder import last_events

# What each is run with, {H} by --H; all else is as node.train has it. DeMo steps by signs: its rate is a small one.
STRATEGIES = {
    "ddp": "",
    "fedavg": "--set H={H}",
    "localsgd": "--set H={H} --set start_after=10",
    "diloco": "--set H={H}",
    "streaming-diloco": "--set H={H} --set fragments=4",
    "eager-diloco": "--set H={H}",
    "sparta": "--set p=0.005",
    "sparta-diloco": "--set H={H} --set p=0.005",
    "demo": "--optimizer sgd --lr 0.001",
    "powersgd": "--set rank=4",
    "gossip": "--set graph=ring",
}
QUICK = {
    "nodes": 2,
    "steps": 12,
    "H": 4,
    "eval_every": 4,
    "strategies": ["ddp", "fedavg", "diloco"],
    "tasks": ["fashion-mnist"],
    "target": ["fashion-mnist=0.6"],
    "no_verify": True,
    "out": PROJECT_DIR / "runs" / "compare-quick",
}
COLUMNS = [
    *("task", "strategy", "status", "steps", "target", "reached_s", "reached_step", "best"),
    *("reached_mbyte", "carried_mbyte", "loop_s", "communication_share", "run"),
]
Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """What a task is to reach: a figure of its tests, and a value of it."""

    figure: str
    value: float
    higher: bool

    def is_reached(self, value: float) -> bool:
        """Whether a test's value is good enough."""
        return value >= self.value if self.higher else value <= self.value

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None of none."""
        return (max if self.higher else min)((round(v, 4) for v in values), default=None)


TARGETS = {
    "fashion-mnist": Target("test_accuracy", 0.85, higher=True),
    "language": Target("validation_loss", 2.7, higher=False),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is not there yet, print and write the table; the exit code is 1 where a run failed."""
    args = parse(sys.argv[1:] if argv is None else argv)
    console = Console(program_output=sys.stderr)  # standard output is the table's
    args.out.mkdir(parents=True, exist_ok=True)
    hear_signals()
    rows = []
    try:
        with Cluster(args.name, nodes=args.nodes, profile=args.profile, console=console) as cluster:
            for task in args.tasks:
                for strategy in args.strategies:
                    console.say(f"=== {task}, {strategy}")
                    rows.append(known_or_run(cluster, task, strategy, args))
                    write_table(args.out, rows)
    except ClusterError as error:  # what is done is there; the same command goes on
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print_rows(rows)
    return EXIT_FAILED if any(row["status"] == "failed" for row in rows) else EXIT_DONE


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The flags; `targets` in place of --target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="TASK")
    add("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES), metavar="STRATEGY")
    add("--nodes", type=int, default=4)
    add("--profile", default="mobile")
    add("--steps", type=int, default=200, help="of every rank (default %(default)s)")
    add("--H", type=int, default=20, help="of them between two exchanges (default %(default)s)")
    add("--eval-every", type=int, default=20, help="steps between two tests (default %(default)s)")
    add("--target", action="append", default=[], metavar="TASK=VALUE", help="another than ours")
    add("--name", default="compare", help="the cluster (default %(default)s)")
    add("--out", type=Path, default=PROJECT_DIR / "runs" / "compare")
    add("--no-verify", action="store_true", help="do not measure the links before each run")
    add("--quick", action="store_true", help="a short form, to see that it works")
    if "--quick" in argv:
        parser.set_defaults(**QUICK)
    args = parser.parse_args(argv)
    try:
        args.targets = parse_targets(args.target)
    except ValueError:
        parser.error(f"--target TASK=VALUE, where TASK is one of {', '.join(TARGETS)}")
    return args


def parse_targets(words: Iterable[str]) -> dict[str, Target]:
    """The target of every task.

    Raises:
        ValueError: a word is no TASK=VALUE.
    """
    targets = dict(TARGETS)
    for word in words:
        task, _, value = word.partition("=")
        if task not in targets:
            raise ValueError(f"no task {task}")
        targets[task] = Target(targets[task].figure, float(value), targets[task].higher)
    return targets


def known_or_run(cluster: Cluster, task: str, strategy: str, args: argparse.Namespace) -> Row:
    """The row of one task and strategy: from an earlier time, if it was asked for in the same way, or of a new run."""
    target = args.targets[task]
    asked = settings(task, strategy, args)
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    path = args.out / f"{task}-{strategy}-{digest}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if known and Path(known["folder"]).is_dir():
        folder, summary = Path(known["folder"]), known["summary"]
    else:
        folder, summary = run(cluster, asked["words"], verify=not args.no_verify)
        if summary["status"] == "done":  # what failed is tried again the next time
            known = {"asked": asked, "folder": str(folder), "summary": summary}
            path.write_text(json.dumps(known, indent=2) + "\n")
    return make_row(task, strategy, target, summary, _steps(folder), tests_bytes(folder, summary))


def _steps(folder: Path) -> list[Row]:
    try:
        return metric_rows(folder)
    except UsageError:
        return []  # it failed before its first step


def settings(task: str, strategy: str, args: argparse.Namespace) -> Row:
    """What decides a run: of a target it does not depend."""
    own = STRATEGIES[strategy].format(H=args.H).split()
    words = ["--task", task, "--strategy", strategy, *own]
    words += ["--steps", str(args.steps), "--eval-every", str(args.eval_every), "--eval", "after"]
    # Not by its name alone: a file of the same name may say something else now.
    profile = asdict(load_profile(args.profile))
    return {"words": words, "nodes": args.nodes, "profile": profile}


def run(cluster: Cluster, words: Sequence[str], *, verify: bool) -> tuple[Path, Row]:
    """One training: its folder and summary, also of one that failed."""
    try:
        summary = cluster.launch(training(words), verify=verify).summary
    except RunFailed as failure:
        cluster.console.fail(failure)
        summary = dict(failure.document)  # type: ignore[call-overload]
    return Path(summary["folder"]), summary


def make_row(
    task: str,
    strategy: str,
    target: Target,
    summary: Mapping[str, Any],
    steps: Sequence[Row],
    for_tests: int,
) -> Row:
    """What one run tells; `steps` are those of `cluster.accounting.metrics_table`, `for_tests` bytes on the links."""
    tests = [row for row in steps if row["rank"] == 0 and target.figure in row]
    first = next((row for row in tests if target.is_reached(row[target.figure])), None)
    seconds: Mapping[str, float] = next(iter(summary["seconds"].values()), {})
    return {
        "task": task,
        "strategy": strategy,
        "status": summary["status"],
        "steps": max((row["step"] for row in steps), default=0),
        "target": target.value,
        "reached_s": first and round(first["elapsed_s"], 1),
        "reached_step": first and first["step"],
        "best": target.best(row[target.figure] for row in tests),
        "reached_mbyte": first and round(payload_to(first, steps) / 1e6, 1),
        "carried_mbyte": round((summary["bytes"]["total"] - for_tests) / 1e6, 1),
        "loop_s": round(loop_s(seconds), 1) if seconds else None,
        "communication_share": communication_share(seconds) if seconds else None,
        "run": Path(summary["folder"]).name,
    }


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


def communication_share(seconds: Mapping[str, float]) -> float:
    """Of a rank's seconds of training those in which it waited for others, or for what is on its way."""
    return round((seconds["transfer"] + seconds["waiting"]) / loop_s(seconds), 3)


def write_table(out: Path, rows: Sequence[Row]) -> None:
    """table.csv and table.json; what a run does not have stays empty, or null."""
    (out / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    with (out / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def print_rows(rows: Sequence[Row]) -> None:
    """The table for readers: of each task, who was there first stands first."""
    order = {task: number for number, task in enumerate(dict.fromkeys(r["task"] for r in rows))}
    late = float("inf")
    ranked = sorted(rows, key=lambda r: (order[r["task"]], r["reached_s"] or late))
    header = ["TASK", "STRATEGY", "TO TARGET s", "STEP", "BEST", "SENT BY THEN MB"]
    header += ["CARRIED MB", "LOOP s", "COMMUNICATION", "STATUS"]
    names = [*("task", "strategy", "reached_s", "reached_step", "best", "reached_mbyte")]
    names += ["carried_mbyte", "loop_s", "communication_share", "status"]
    print_table(header, [[_cell(row[name]) for name in names] for row in ranked])
    targets = dict.fromkeys(f"{row['task']} {row['target']:g}" for row in rows)
    print(f"targets: {', '.join(targets)}; - is never; tested is the average over all ranks")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
