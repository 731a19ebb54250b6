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
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kept_runs
from kept_runs import Row, cell, loop_s, payload_to, steps_of, tests_bytes, write_table

from cluster import Cluster
from cluster.base.console import Console, print_table
from cluster.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.cli.command_line import hear_signals

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
                    write_table(args.out, "table", rows, COLUMNS)
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
    asked, name = settings(task, strategy, args), f"{task}-{strategy}"
    folder, summary = kept_runs.known_or_run(
        lambda: cluster, asked, args.out, name, verify=not args.no_verify
    )
    for_tests = tests_bytes(folder, summary)
    return make_row(task, strategy, args.targets[task], summary, steps_of(folder), for_tests)


def settings(task: str, strategy: str, args: argparse.Namespace) -> Row:
    """What decides a run: of a target it does not depend."""
    own = STRATEGIES[strategy].format(H=args.H).split()
    words = ["--task", task, "--strategy", strategy, *own]
    words += ["--steps", str(args.steps), "--eval-every", str(args.eval_every), "--eval", "after"]
    return kept_runs.settings(words, args.nodes, args.profile)


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


def communication_share(seconds: Mapping[str, float]) -> float:
    """Of a rank's seconds of training those in which it waited for others, or for what is on its way."""
    return round((seconds["transfer"] + seconds["waiting"]) / loop_s(seconds), 3)


def print_rows(rows: Sequence[Row]) -> None:
    """The table for readers: of each task, who was there first stands first."""
    order = {task: number for number, task in enumerate(dict.fromkeys(r["task"] for r in rows))}
    late = float("inf")
    ranked = sorted(rows, key=lambda r: (order[r["task"]], r["reached_s"] or late))
    header = ["TASK", "STRATEGY", "TO TARGET s", "STEP", "BEST", "SENT BY THEN MB"]
    header += ["CARRIED MB", "LOOP s", "COMMUNICATION", "STATUS"]
    names = [*("task", "strategy", "reached_s", "reached_step", "best", "reached_mbyte")]
    names += ["carried_mbyte", "loop_s", "communication_share", "status"]
    print_table(header, [[cell(row[name]) for name in names] for row in ranked])
    targets = dict.fromkeys(f"{row['task']} {row['target']:g}" for row in rows)
    print(f"targets: {', '.join(targets)}; - is never; tested is the average over all ranks")


if __name__ == "__main__":
    sys.exit(main())
