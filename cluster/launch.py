"""Run a program on every node, over links that were measured first.

    python -m cluster.launch --profile mobile
    python -m cluster.launch --profile mobile --strategy fedavg --set H=20 --steps 200 --json
    python -m cluster.launch --profile wan --nodes 4 -- train.py --epochs 2
    python -m cluster.launch --no-verify -- -m package.module --lr 0.1
    python -m cluster.launch --profile wan --schedule examples/storm.yml
    python -m cluster.launch --nodes 2 --nproc-per-node 4 -- train.py
    python -m cluster.launch --essential-ranks 0 -- actors_and_learner.py
    python -m cluster.launch --profile mobile --rank-order best
    python -m cluster.launch -f runs/20261121-101500-mobile-fedavg/run.yml

Brings the cluster up if it is not, shapes its links if they differ, measures every link and stops (exit 1)
where one is not what was asked for, or where this machine is too busy to tell (--allow-undecided goes on),
then starts the ranks over SSH with torchrun's environment, one on each node or as many as --nproc-per-node
says. Without `--` it trains (node.train; its options are taken here too: python -m node.train --help). With
`--` it runs your program, unchanged: its folder is copied to every node. What a rank writes into
$GRADWIRE_RUN_DIR comes back into the run folder: checkpoints, too, from which `--resume runs/NAME` goes on.

-f launches an earlier run again as it was: the same program and arguments, seeds, links, limits and order of ranks, on
the run's own cluster (or --name's), which is brought up as it was if it is not. What the run sent to its nodes is sent
as it is now.

Two pairs that are easily confused: --seed is the training's, --link-seed draws the links; --lr-schedule is
the learning rate's, --schedule changes links and nodes during the run.

Exit codes: 0 done, 1 the run or the cluster failed, 2 usage, 3 a bug of ours, 130 interrupted.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import sys
import threading
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.api import Cluster
from cluster.base.errors import PrerequisiteError, UsageError, unknown
from cluster.base.spec import DEFAULT_NAME, ClusterSpec
from cluster.cli.command_line import add_name, add_shape, add_size, make_parser, run_verb
from cluster.cli.live_options import add_http, served_page
from cluster.cli.report import print_summary
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.image import require_packages
from cluster.links.changes import parse_seconds
from cluster.live.live_run import LiveOptions
from cluster.run.experiment import Experiment
from cluster.run.job import make_job
from cluster.run.launch_again import experiment_again, refuse_other_cluster, resources_again
from cluster.run.past_run import PastLaunch, read_past_launch
from cluster.run.placement import place_ranks, resolve_max_restarts
from cluster.run.program import Program, fit_program, training, user_program
from cluster.run.rank_order import check_rank_order, resolve_rank_order
from cluster.run.results import MOST_RESULTS, parse_max_results
from cluster.run.run_folder import check_writable
from cluster.run.runner import RUNS_DIR
from cluster.schedule.events import check_nodes, check_schedule, check_slow_start, check_steps
from cluster.schedule.schedule_file import load_schedule
from cluster.up import cluster_of

if TYPE_CHECKING:
    from cluster.lifecycle.request import Request
    from cluster.live.http_page import HttpPage

LEAST_STALL_TIMEOUT_S = 3.0
SAID_WITH_FILE = {
    *("-f", "--file", "--name", "--json", "--plain", "--no-live", "--http", "--stall-timeout"),
    "--dry-run",
}


def main(argv: list[str] | None = None) -> int:
    """Launch a run."""
    words = sys.argv[1:] if argv is None else argv
    split = words.index("--") if "--" in words else len(words)
    parser = make_parser("cluster.launch", __doc__)
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="RUN.yml",
        help="launch an earlier run again as it was: run.yml of its folder, or the folder",
    )
    add_name(parser)
    add_size(parser)
    add_shape(parser, with_training=True)
    unproved = parser.add_mutually_exclusive_group()
    unproved.add_argument("--no-verify", action="store_true", help="do not measure the links first")
    unproved.add_argument(
        "--allow-undecided",
        action="store_true",
        help="run also over links of which a busy host lets nobody tell whether they are as asked;"
        " never over links that are broken",
    )
    parser.add_argument(
        "--folder", type=Path, help="what to send with your program (default: its own folder)"
    )
    # Trainer.fit says these two: docs/formats.md.
    parser.add_argument("--fit", type=Path, help=SUPPRESS)
    parser.add_argument("--attached", action="store_true", help=SUPPRESS)
    parser.add_argument(
        "--nproc-per-node",
        type=int,
        default=1,
        metavar="K",
        help="ranks on each node, which send nothing over links to one another (default: %(default)s)",
    )
    parser.add_argument(
        "--rank-order",
        metavar="NODE,NODE|best",
        help="nodes as their ranks follow one another, node1,node3,node2, or the order in which the links let an"
        " all-reduce be quickest; rank 0 stays on node1 (default: node1, node2, …)",
    )
    parser.add_argument(
        "--max-results",
        default=MOST_RESULTS,
        metavar="SIZE",
        help="fetch no more than this of what the ranks of a node left; what is larger stays there "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--schedule",
        type=Path,
        metavar="FILE",
        help="what happens to links and nodes during the run",
    )
    parser.add_argument(
        "--stall-timeout",
        metavar="TIME",
        help="end a run in which nothing has moved for so long, 2m, 90s: no output, no computing, no bytes sent"
        " (default: after 30 s it is said, and the run goes on)",
    )
    parser.add_argument(
        "--essential-ranks",
        metavar="R,R",
        help="ranks without which your program cannot go on, 0 or 0,2; where another one fails the run goes on"
        " (default: all)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="how often each rank that is not essential is started again after a failure (default: 3)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--plain", action="store_true", help="no screen on a terminal, lines alone, as elsewhere"
    )
    shown.add_argument(
        "--no-live",
        action="store_true",
        help="ask no node while the run goes on: no screen, nothing for `python -m cluster.watch`",
    )
    add_http(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, do nothing"
    )
    flags = [flag for action in parser._actions for flag in action.option_strings]

    def launch(args: Namespace) -> object:
        said = [word.partition("=")[0] for word in words[:split] if word.startswith("-")]
        return launch_verb(args, args.rest, words[split + 1 :], flags, said)

    return run_verb(parser, launch, words[:split], keep_rest=True)


def launch_verb(
    args: Namespace,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    said: Sequence[str],
) -> object:
    """The verb: everything is checked before anything is started.

    Args:
        args: parsed.
        rest: options that are not ours, for the training.
        program: what stands behind `--`.
        flags: all that there are.
        said: those that stand on the command line.
    """
    if args.attached:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    if program and rest:
        raise unknown("option", rest[0].partition("=")[0], flags)
    if args.http is not None and args.no_live:
        raise UsageError("--http and --no-live exclude each other", "leave one of them out")
    if args.fit and not program:
        raise UsageError("--fit without a program", "it is for Trainer.fit of node.exogym")
    parse_max_results(args.max_results)
    stall_timeout_s = _stall_timeout_s(args.stall_timeout) if args.stall_timeout else None
    past = _past(args, said, program)
    cluster = cluster_of(args)
    if past is not None:
        cluster = Cluster(past.spec.name, console=cluster.console)
        cluster.request = request_again(cluster.request, past)
    try:
        spec = cluster.planned()
        names = [node.name for node in spec.nodes]
        experiment = (
            _experiment(args, rest, program, flags, names)
            if past is None
            else experiment_again(past)
        )
        experiment = replace(experiment, stall_timeout_s=stall_timeout_s)
        _check(experiment, cluster, spec)
        if args.dry_run:
            return _print_plan(args, cluster, spec, experiment)
        check_writable(RUNS_DIR)
        with served_page(args.http) as page, cluster.alone:
            if past is None:
                cluster.up()
            else:
                bring_up_again(cluster, past)
            run = cluster.execute(experiment, _live_options(args, page))
    finally:
        cluster.close()
    if not args.json:
        print_summary(run)
    return run.summary


def _past(args: Namespace, said: Sequence[str], program: Sequence[str]) -> PastLaunch | None:
    """The run that -f names, on the cluster that --name does.

    Raises:
        UsageError: it is none, or something else is said that would decide what is run.
    """
    if args.file is None:
        return None
    if word := next((word for word in (*said, *program) if word not in SAID_WITH_FILE), ""):
        raise UsageError(
            f"-f and {word} exclude each other: run.yml says all that is run",
            f"leave it out; with -f go {', '.join(sorted(SAID_WITH_FILE - {'-f', '--file'}))}",
        )
    file: Path = args.file
    past = read_past_launch(file.parent if file.name == "run.yml" else file)
    is_named = "--name" in said or args.name != DEFAULT_NAME
    return replace(past, spec=replace(past.spec, name=args.name)) if is_named else past


def bring_up_again(cluster: Cluster, run: PastLaunch) -> None:
    """The cluster as a run had it: made so where there is none, else brought to what is asked for, if anything is.

    Raises:
        ClusterError: it is not what the run had.
    """
    if cluster.engine.cluster(cluster.name) is None:
        cluster.request = request_again(cluster.request, run)
    cluster.up()
    links, limits = cluster.settle().links, CpuLimits(cluster.engine, cluster.name).document()
    refuse_other_cluster(run, cluster.spec, links, limits)


def request_again(request: Request, run: PastLaunch) -> Request:
    """What makes the cluster of a run again, by the name that is asked for."""
    return replace(
        request,
        size=run.spec.size,
        image=run.spec.image,
        link_spec=run.link_spec,
        resources=resources_again(run),
    )


def _experiment(
    args: Namespace,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    nodes: Sequence[str],
) -> Experiment:
    """What the options ask for; they are checked before anything is started."""
    schedule = load_schedule(args.schedule) if args.schedule else ()
    ranks = len(place_ranks(nodes, args.nproc_per_node))
    check_rank_order(args.rank_order, nodes)
    return Experiment(
        _user_program(args, program) if program else _training(args, rest, flags, ranks),
        schedule,
        verify=not args.no_verify,
        allow_undecided=args.allow_undecided,
        nproc_per_node=args.nproc_per_node,
        rank_order=args.rank_order,
        max_results=args.max_results,
        max_restarts=args.max_restarts,
    )


def _check(experiment: Experiment, cluster: Cluster, spec: ClusterSpec) -> None:
    """All that can be checked before the cluster is there.

    Raises:
        UsageError: what cannot be.
    """
    program, schedule = experiment.program, experiment.schedule
    names = [node.name for node in spec.nodes]
    if needed := program.needed_packages:
        with suppress(PrerequisiteError):  # no engine answers: there is a plan all the same
            require_packages(cluster.engine, spec.image, needed)
    places = place_ranks(names, experiment.nproc_per_node, program.essential_ranks)
    resolve_max_restarts(experiment.max_restarts, places)
    check_steps(schedule, program.training.steps)
    check_nodes(schedule, names)
    if (link_spec := cluster.request.link_spec) is not None:
        check_schedule(schedule, link_spec.links(spec.nodes))
        check_slow_start(schedule, is_on=link_spec.profile.slow_start_after_idle)


def _live_options(args: Namespace, page: HttpPage | None) -> LiveOptions:
    on_terminal = sys.stderr.isatty() and not args.plain and not args.no_live
    if on_terminal:
        from cluster.live.terminal import can_draw  # and rich, which only a terminal needs

        on_terminal = can_draw()
    return LiveOptions(is_on=not args.no_live, on_terminal=on_terminal, page=page)


def _stall_timeout_s(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds < LEAST_STALL_TIMEOUT_S:
        raise UsageError(
            f"--stall-timeout {text} is too short to tell", f"{LEAST_STALL_TIMEOUT_S:.0f}s or more"
        )
    return seconds


def _end_with_stdin() -> None:
    """End as by SIGTERM when standard input does: who holds the other end has gone, in whatever way."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _user_program(args: Namespace, words: Sequence[str]) -> Program:
    """What stands behind `--`."""
    if args.fit:
        _refuse_essential_ranks(args)
        return fit_program(words, args.folder, args.fit)
    essential = _essential_ranks(args.essential_ranks) if args.essential_ranks else None
    return user_program(words, args.folder, essential)


def _essential_ranks(text: str) -> set[int]:
    words = text.split(",")
    if strange := [word for word in words if not re.fullmatch(r"\d{1,6}", word, re.ASCII)]:
        raise UsageError(f"--essential-ranks {text}: {strange[0]!r} is no rank", "0 or 0,2")
    return {int(word) for word in words}


def _refuse_essential_ranks(args: Namespace) -> None:
    if args.essential_ranks:
        raise UsageError(
            f"--essential-ranks {args.essential_ranks} is for programs of your own",
            "leave it out: of our training the task decides it",
        )


def _training(args: Namespace, rest: Sequence[str], flags: Sequence[str], ranks: int) -> Program:
    """node.train with the options that are not ours; a misspelt one of ours is named as such."""
    _refuse_essential_ranks(args)
    try:
        return training(rest, args.folder, ranks)
    except UsageError as error:
        for flag in (word.partition("=")[0] for word in rest):
            refused = f"unknown argument {flag!r}" in error.message
            if refused and difflib.get_close_matches(flag, flags, n=1, cutoff=0.8):
                raise unknown("option", flag, flags) from error
        raise


def _print_plan(
    args: Namespace, cluster: Cluster, spec: ClusterSpec, experiment: Experiment
) -> dict[str, object]:
    link_state = cluster.planned_link_state(spec)
    names = [node.name for node in spec.nodes]
    order = resolve_rank_order(experiment.rank_order, names, link_state, experiment.nproc_per_node)
    if order.words:
        cluster.console.say(order.words)
    job = make_job(experiment, spec, order.nodes, link_state)
    job.check()
    limits = cluster.planned_limits(spec)
    nodes = [asdict(node) | asdict(limits[node.name]) for node in spec.nodes]
    document = {"nodes": nodes} | job.document("RUN")
    if not args.json:
        print(json.dumps(document, indent=2))
    return document


if __name__ == "__main__":
    sys.exit(main())
