"""Studies of reinforcement learning over slow links: one command and one table per study.

    python examples/compare_rl.py staleness      # how old weights are, and should be: twenty minutes
    python examples/compare_rl.py corrections    # what helps against old experience: an hour and a half
    python examples/compare_rl.py broadcast      # a star, a chain and a tree of nine nodes: ten minutes
    python examples/compare_rl.py deltas         # how many weights change, by learning rate: five minutes
    python examples/compare_rl.py comm           # what agents that lose messages solve: two hours
    python examples/compare_rl.py seeds          # cart-pole and pendulum over wan, five seeds each: half an hour
    python examples/compare_rl.py seeds --quick  # --quick of any: two nodes, a few steps, a minute

PPO by strategy is a sweep: examples/sweeps/ppo.yml.

staleness: predicted ÷ measured age of actors' weights, over three profiles and with three pull intervals; `worst` is
the ratio of the actor farthest from 1. Uses --task mapf, whose weights (some 0.4 MB) take time on links, and whose
actors never stop acting: impala's weights have 37 kB, and its actors wait for the learner, which the prediction does
not model. 600 updates take a minute.

corrections: the return of impala by the treatment of old experience: nothing (none), V-trace (vtrace), rejecting
experience more than S updates behind (reject-S), or waiting for newer weights (pace-S). --pull-every makes it older.
The learning rate goes down to 0: at a constant one a good policy forgets now and then, so that the last test says
little. `window=2` for all: pieces in flight and queued come on top of S with pace-S, up to 4 updates, and with the
task's own window of 16 up to 18, so that no S would differ from `none`.
`kept_over_all_steps` is the mean length of the kept pieces ÷ that of all; impala's all have the same length, so it is
1. The learner tests between updates. Those seconds are not counted, but actors keep acting meanwhile.

broadcast: median seconds from the moment the learner publishes 8 MB of weights until the last of eight actors has
them, over uplinks that all copies share, beside the links' bound (docs/run-folder.md); all actors waited for `timed`
versions.

deltas: the share of weights whose bf16 value has changed since the version before, by learning rate (mapf, one version
per update): this is what `weights=delta` sends.

comm: the share of instances that mapf solves if agents do not get 0, 25, 50, 75 or 100 % of their messages, after
training that dropped none of them or half (--comm-loss).

seeds: the return of each seed, and the mean, averaging every 20 minibatches (pendulum: 32).

A line is the mean over the seeds whose runs are done; if a run failed, the line and the exit code say so. Into --out go
table (as printed), runs (a row per run) and curves (a row per test), as CSV and JSON, and each run by itself: a run
that is there already, with the same settings, is not repeated. --pictures draws SVG files, and needs matplotlib.
"""

import argparse
import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import kept_runs
from kept_runs import Row, cell, write_table
from rl_studies import COMM_LOSSES, FLAGS, STUDIES, Study

from cluster import Cluster
from cluster.base.console import Console, print_table
from cluster.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, ClusterError, UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.cli.command_line import hear_signals
from cluster.sweeps.figures import loop_s, payload_to, steps_of, training_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = [
    *("return_at_end", "best_return", "loop_s", "wall_s"),
    *("carried_mbyte", "env_steps", "rejected_share", "kept_over_all_steps"),
    *("predicted_age_s", "measured_age_s", "ratio", "worst"),
    *("broadcast_s", "bound_s", "broadcast_ratio", "timed", "changed"),
    *("stale_updates_median", "stale_updates_p95", "stale_median_s", "stale_p95_s"),
    *(f"success_at_{loss:g}" for loss in COMM_LOSSES),
]
POINT = ["step", "seconds", "bytes", "return"]


@dataclass
class Found:
    """The results so far: a row per run, a point per test."""

    rows: list[Row] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print and write the table; the exit code is 1 if a run failed."""
    args = parse(sys.argv[1:] if argv is None else argv)
    console = Console(program_output=sys.stderr)  # standard output is for the table
    args.out.mkdir(parents=True, exist_ok=True)
    hear_signals()
    found = Found()
    try:
        if args.pictures:
            require_matplotlib()
        for profile in args.profiles:
            run_over(profile, args, console, found)
    except ClusterError as error:  # finished runs are kept; the same command continues
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print_lines(STUDIES[args.study], found.rows)
    if args.pictures:
        print(f"drawn: {draw(args.out, args.study, found)}")
    return EXIT_FAILED if any(row["status"] == "failed" for row in found.rows) else EXIT_DONE


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags; each study has its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
    for name, study in STUDIES.items():
        own = studies.add_parser(name, help=study.what, description=study.what)
        for flag, how in FLAGS.items():
            if flag in study.defaults:
                own.add_argument(f"--{flag.replace('_', '-')}", **how)
        own.set_defaults(**{**study.defaults, **(study.quick if "--quick" in argv else {})})
    args = parser.parse_args(argv)
    if min(getattr(args, "max_staleness", [1])) < 1:
        parser.error("--max-staleness: 1 or more; without a bound there is `none`")
    folder = f"rl-{args.study}-quick" if args.quick else f"rl-{args.study}"
    args.out = args.out or PROJECT_DIR / "runs" / folder
    return args


def run_over(profile: str, args: argparse.Namespace, console: Console, found: Found) -> None:
    """Run all cases over a profile; the cluster comes up for the first one whose result is not known."""
    with ExitStack() as stack:

        @cache
        def cluster() -> Cluster:
            nodes = Cluster(args.name, nodes=args.nodes, profile=profile, console=console)
            return stack.enter_context(nodes)

        for case in STUDIES[args.study].cases(args, profile):
            console.say(f"=== {args.study}: {case.name}")
            asked = kept_runs.settings(case.words, args.nodes, profile)
            folder, summary = kept_runs.known_or_run(
                cluster, asked, args.out, f"{args.study}-{case.name}", verify=not args.no_verify
            )
            points = curve(case.label, steps_of(folder))
            found.rows.append(make_row(case.label, summary, points))
            found.points += [{"study": args.study} | point for point in points]
            write(args.out, args.study, found)


def curve(label: Row, steps: Sequence[Row]) -> list[Row]:
    """Return the results of tests, with the seconds of training and bytes of payload until then.

    A learner's own tests are not counted in its seconds. The bytes that its actors sent are not known step by step.
    """
    learns_alone = all(row["rank"] == 0 for row in steps)
    points, tested_s = [], 0.0
    for row in steps:
        if row["rank"] == 0 and "test_return" in row:
            seconds = round(row["elapsed_s"] - tested_s, 2)
            sent = None if learns_alone else payload_to(row, steps)
            values = (row["step"], seconds, sent, round(row["test_return"], 2))
            points.append(label | dict(zip(POINT, values, strict=True)))
            tested_s += row["eval_s"] if learns_alone else 0.0
    return points


def make_row(label: Row, summary: Mapping[str, Any], points: Sequence[Row]) -> Row:
    """Return the row of one run; `points` are its `curve`."""
    carried_bytes = training_bytes(summary)
    is_done = summary["status"] == "done"
    seconds: Mapping[str, float] = next(iter(summary["seconds"].values()), {})
    return {
        **label,
        "status": summary["status"],
        "return_at_end": points[-1]["return"] if points and is_done else None,
        "best_return": max((point["return"] for point in points), default=None),
        "loop_s": round(loop_s(seconds), 1) if seconds else None,
        "wall_s": round(summary["wall_s"], 1),
        "carried_mbyte": carried_bytes and round(carried_bytes / 1e6, 2),
        "env_steps": (summary.get("environments") or {}).get("steps"),
        **experience_figures(summary.get("experience") or {}),
        **success_figures(summary.get("tested") or {}),
        "run": Path(summary["folder"]).name,
    }


def experience_figures(experience: Mapping[str, Any]) -> Row:
    """Return the figures of a learner and its actors in summary.json; none for a run without actors."""
    if not experience:
        return {}
    actors = experience["actors"].values()
    ratios = [one["predicted_over_measured"] for one in actors if one["predicted_over_measured"]]
    updates, seconds = experience["staleness_updates"], experience["staleness_s"]
    mean_steps = experience["mean_steps"]
    broadcast = experience["broadcast"] or {}
    return {
        "env_steps": experience["env_steps"],
        "rejected_share": experience["rejected_share"],
        "kept_over_all_steps": experience["mean_steps_kept"] / mean_steps if mean_steps else None,
        "predicted_age_s": mean(one["predicted_weights_age_s"] for one in actors),
        "measured_age_s": mean(one.get("weights_age_s") for one in actors),
        "ratio": mean(ratios),
        "worst": worst(ratios),
        "ratios": " ".join(map(cell, ratios)),
        "broadcast_s": broadcast.get("seconds"),
        "bound_s": broadcast.get("bound_s"),
        "broadcast_ratio": broadcast.get("ratio"),
        "timed": broadcast.get("timed"),
        "changed": experience["changed"],
        "stale_updates_median": updates.get("median"),
        "stale_updates_p95": updates.get("p95"),
        "stale_median_s": seconds.get("median"),
        "stale_p95_s": seconds.get("p95"),
    }


def success_figures(tested: Mapping[str, float]) -> Row:
    """Return the shares of instances solved in the last test of mapf, by the share of dropped messages."""
    names = {loss: f"test_success_at_{loss:g}" if loss else "test_success" for loss in COMM_LOSSES}
    return {f"success_at_{loss:g}": tested.get(name) for loss, name in names.items()}


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return round(fmean(known), 4) if known else None


def worst(ratios: Iterable[float | None]) -> float | None:
    """Return the ratio farthest from 1, above or below; None if there are none."""
    return max((one for one in ratios if one), key=lambda one: abs(math.log(one)), default=None)


def table_lines(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Return the lines of the table."""
    lines = []
    for names in study.lines:
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
        lines += [
            dict(zip(names, key, strict=True)) | average(group) for key, group in groups.items()
        ]
    return [{name: line.get(name, "all") for name in study.columns} for line in lines]


def average(group: Sequence[Row]) -> Row:
    """Average runs that differ in their seeds, over those that are done."""
    done = [row for row in group if row["status"] == "done"]
    return {name: mean(row.get(name) for row in done) for name in FIGURES} | {
        "worst": worst(row.get("worst") for row in done),
        "ratios": "; ".join(row["ratios"] for row in done if "ratios" in row),
        "returns": " ".join(cell(row["return_at_end"]) for row in group),
        "runs": f"{len(done)}/{len(group)}",
        "status": "done" if len(done) == len(group) else "failed",
    }


def write(out: Path, name: str, found: Found) -> None:
    """Write table, runs and curves, each as CSV and JSON."""
    study = STUDIES[name]
    label = [column for column in study.columns if column in found.rows[0]]
    write_table(out, "table", table_lines(study, found.rows), study.columns)
    columns = dict.fromkeys(["profile", "seed", *label, "status", *FIGURES, "ratios", "run"])
    rows = [{column: row.get(column) for column in columns} for row in found.rows]
    write_table(out, "runs", rows, list(columns))
    if found.points:
        write_table(out, "curves", found.points, list(found.points[0]))


def print_lines(study: Study, rows: Sequence[Row]) -> None:
    """Print the table."""
    lines = table_lines(study, rows)
    header = [heading(column) for column in study.columns]
    print_table(header, [[cell(line[name]) for name in study.columns] for line in lines])
    print("figures are means over the seeds of runs that are done; - is none, or never")


def heading(column: str) -> str:
    """Return a column's displayed name, with its unit separate."""
    for suffix, unit in {"_s": " s", "_mbyte": " MB"}.items():
        if column.endswith(suffix):
            return column.removesuffix(suffix).replace("_", " ").upper() + unit
    return column.replace("_", " ").upper()


def require_matplotlib() -> None:
    """Check that pictures can be drawn, before anything starts.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--pictures wants matplotlib, which is not here", "pip install matplotlib")


def draw(out: Path, study: str, found: Found) -> Path:
    """Draw curves if tests have returns, else ages of weights; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    (draw_curves if found.points else draw_ages)(figure, found)
    path = out / f"{study}.svg"
    figure.savefig(path)
    return path


def draw_curves(figure: "Figure", found: Found) -> None:
    """Draw return against seconds, and against bytes (steps if unknown); all seeds of a case in one colour."""
    by_run: dict[tuple[object, ...], list[Row]] = {}
    for point in found.points:
        label = tuple(value for name, value in point.items() if name not in ("study", *POINT))
        by_run.setdefault(label, []).append(point)
    names = list(dict.fromkeys(" ".join(map(str, label[:-1])) for label in by_run))
    other = "step" if found.points[0]["bytes"] is None else "bytes"
    for axes, x in zip(figure.subplots(1, 2, sharey=True), ("seconds", other), strict=True):
        for label, points in by_run.items():
            colour = f"C{names.index(' '.join(map(str, label[:-1])))}"
            axes.plot([p[x] for p in points], [p["return"] for p in points], color=colour)
        for number, name in enumerate(names):
            axes.plot([], [], color=f"C{number}", label=name)
        axes.set(xlabel=x, ylabel="return of tests", xscale="linear" if x == "step" else "log")
    axes.legend(fontsize="small")


def draw_ages(figure: "Figure", found: Found) -> None:
    """Draw predicted against measured age of weights; on the line they are equal."""
    axes = figure.subplots()
    known = [row for row in found.rows if row.get("predicted_age_s") and row.get("measured_age_s")]
    for profile in dict.fromkeys(row["profile"] for row in known):
        own = [row for row in known if row["profile"] == profile]
        ages = [[row[name] for row in own] for name in ("measured_age_s", "predicted_age_s")]
        axes.scatter(*ages, label=profile)
    axes.axline((1, 1), slope=1, color="grey")
    axes.set(xlabel="measured age, s", ylabel="predicted age, s", xscale="log", yscale="log")
    axes.legend()


if __name__ == "__main__":
    sys.exit(main())
