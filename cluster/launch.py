"""Run a program on every node, one rank each, over links that were measured first.

    python -m cluster.launch --profile mobile
    python -m cluster.launch --profile mobile --strategy fedavg --set H=20 --steps 200 --json
    python -m cluster.launch --profile wan --nodes 4 -- train.py --epochs 2
    python -m cluster.launch --no-verify -- -m package.module --lr 0.1
    python -m cluster.launch --profile wan --schedule examples/storm.yml

Brings the cluster up if it is not, shapes its links if they differ, measures every link and stops (exit 1)
where one is not what was asked for, then starts the ranks over SSH with torchrun's environment. Without `--`
it trains (node.train; its options are taken here too: python -m node.train --help). With `--` it runs your
program, unchanged: its folder is copied to every node. What a rank writes into $GRADWIRE_RUN_DIR comes back
into the run folder: checkpoints, too, from which `--resume runs/NAME` goes on.

Exit codes: 0 done, 1 the run or the cluster failed, 2 usage, 3 a bug of ours, 130 interrupted.
"""

from __future__ import annotations

import difflib
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.cli import add_name, add_shape, add_size, make_parser, run_verb
from cluster.console import print_table
from cluster.errors import unknown
from cluster.overload import overload_sentence
from cluster.program import Program, training, user_program
from cluster.ranks import rank_environment
from cluster.run import Run
from cluster.schedule import check_nodes, check_schedule, check_steps, load_schedule
from cluster.testbed import Cluster
from cluster.up import cluster_of
from cluster.wanted import link_plans

BUCKETS = ("compute", "transfer", "waiting", "eval")  # that are shown
MOST_ROWS = 5


def main(argv: list[str] | None = None) -> int:
    """Launch a run."""
    words = sys.argv[1:] if argv is None else argv
    split = words.index("--") if "--" in words else len(words)
    parser = make_parser("cluster.launch", __doc__)
    add_name(parser)
    add_size(parser)
    add_shape(parser)
    parser.add_argument("--no-verify", action="store_true", help="do not measure the links first")
    parser.add_argument(
        "--folder", type=Path, help="what to send with your program (default: its own folder)"
    )
    parser.add_argument(
        "--schedule",
        type=Path,
        metavar="FILE",
        help="what happens to links and nodes during the run",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, do nothing"
    )
    flags = [flag for action in parser._actions for flag in action.option_strings]

    def launch(args: Namespace) -> object:
        return launch_verb(args, args.rest, words[split + 1 :], flags)

    return run_verb(parser, launch, words[:split], keep_rest=True)


def launch_verb(
    args: Namespace, rest: Sequence[str], program: Sequence[str], flags: Sequence[str]
) -> object:
    """The verb: everything is checked before anything is started."""
    if program and rest:
        raise unknown("option", rest[0].partition("=")[0], flags)
    chosen = user_program(program, args.folder) if program else _training(args, rest, flags)
    schedule = load_schedule(args.schedule) if args.schedule else ()
    check_steps(schedule, int(chosen.config.get("steps", 0)))
    cluster = cluster_of(args)
    nodes = cluster.planned().nodes
    check_nodes(schedule, [node.name for node in nodes])
    if cluster.wanted is not None:
        check_schedule(schedule, cluster.wanted.links(nodes))
    if args.dry_run:
        return _print_plan(args, cluster, chosen)
    try:
        run = cluster.up().launch(chosen, verify=not args.no_verify, schedule=schedule)
    finally:
        cluster.close()
    if not args.json:
        print_summary(run)
    return run.summary


def _training(args: Namespace, rest: Sequence[str], flags: Sequence[str]) -> Program:
    """node.train with the options that are not ours; a misspelt one of ours is named as such."""
    for word in rest:
        flag = word.partition("=")[0]
        if flag.startswith("--") and difflib.get_close_matches(flag, flags, n=1, cutoff=0.8):
            raise unknown("option", flag, flags)
    return training([*rest, "--seed", str(args.seed)], args.folder)


def _print_plan(args: Namespace, cluster: Cluster, program: Program) -> dict[str, object]:
    spec = cluster.planned()
    plans = link_plans(spec.nodes, cluster.wanted) if cluster.wanted else {}
    links = cluster.wanted.links(spec.nodes) if cluster.wanted else ()
    document: dict[str, object] = {
        "nodes": [asdict(node) for node in spec.nodes],
        "plans": plans,
        "argv": list(program.argv),
        "environment": {
            n.name: rank_environment(
                n, spec.nodes, links, "RUN", "RUN_DIR", 0, isolated=args.isolated
            )
            for n in spec.nodes
        },
    }
    if not args.json:
        print(json.dumps(document, indent=2))
    return document


def print_summary(run: Run) -> None:
    """What a user wants to know first, last."""
    summary = run.summary
    trained = any(summary["seconds"].values())  # another program counts no seconds
    print_table(
        [
            "NODE",
            "EXIT",
            *((f"{bucket.upper()} s" for bucket in BUCKETS) if trained else ()),
            "SENT MB",
        ],
        [
            [
                node,
                code,
                *(_seconds(summary, node) if trained else []),
                f"{_sent(summary, node) / 1e6:.1f}",
            ]
            for node, code in summary["exit_codes"].items()
        ],
    )
    _print_collectives(summary)
    accuracy = summary["test_accuracy"]
    if accuracy is not None:
        print(f"test accuracy {accuracy:.4f}   final loss {summary['final_loss']:.4f}")
    elif "validation_loss" in summary["tested"]:
        loss = summary["tested"]["validation_loss"]
        print(f"validation loss {loss:.4f}   final loss {summary['final_loss']:.4f}")
    print(f"wall {summary['wall_s']:.1f} s   {bytes_sentence(summary['bytes'])}")
    if summary["links"] and not summary["verified"]:
        print("the links were not measured (--no-verify)")
    if overload := overload_sentence(summary["host"]):
        print(overload)
    print(f"run   {run.folder}")


def _seconds(summary: dict[str, Any], node: str) -> list[str]:
    seconds = summary["seconds"].get(node, {})
    return [f"{seconds[key]:.1f}" if key in seconds else "-" for key in BUCKETS]


def _print_collectives(summary: dict[str, Any]) -> None:
    """Those that took most of the time, next to what these links could have done."""
    rows = summary["collectives"]
    if not rows:
        return
    print_table(
        ["COLLECTIVE", "FOR", "BYTES", "COUNT", "MEAN s", "BOUND s", "RATIO"],
        [
            [
                *(row[key] for key in ("kind", "purpose", "bytes", "count")),
                *(_figure(row[key], 3) for key in ("seconds", "bound_s")),
                _figure(row["ratio"], 2),
            ]
            for row in rows[:MOST_ROWS]
        ],
    )
    if len(rows) > MOST_ROWS:
        print(f"… and {len(rows) - MOST_ROWS} more: summary.json")
    if summary["bounds"]:
        print(f"bound: what the links, as {summary['bounds']}, allow at best")


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def bytes_sentence(carried: dict[str, Any]) -> str:
    """What the links carried, and how near that is to what the collectives must have made them carry."""
    text = f"links carried {carried['total'] / 1e6:.1f} MB"
    loop = carried["loop"]
    if not loop or not loop["ratio"]:
        return text
    text += f" ({loop['ratio']:.3f} of what the collectives need)"
    return f"{text}; more than 5 % off: {', '.join(loop['off'])}" if loop["off"] else text


def _sent(summary: dict[str, Any], node: str) -> int:
    links: dict[str, int] = summary["bytes"]["links"]
    return sum(count for link, count in links.items() if link.startswith(f"{node}->"))


if __name__ == "__main__":
    sys.exit(main())
