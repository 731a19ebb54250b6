"""Run a program on every node, over links that are measured first.

    python -m cluster.launch --profile mobile
    python -m cluster.launch --profile mobile --strategy fedavg --set H=20 --steps 200 --json
    python -m cluster.launch --profile wan --nodes 4 -- train.py --epochs 2
    python -m cluster.launch --no-verify -- -m package.module --lr 0.1
    python -m cluster.launch --profile wan --schedule examples/storm.yml
    python -m cluster.launch --nodes 2 --nproc-per-node 4 -- train.py
    python -m cluster.launch --essential-ranks 0 -- actors_and_learner.py
    python -m cluster.launch --profile mobile --rank-order best
    python -m cluster.launch -f experiment.yml
    python -m cluster.launch -f runs/20261121-101500-mobile-fedavg/run.yml

Brings the cluster up if it is down, shapes its links if they differ, and measures every link, or only takes a look if
they were proved before and nothing about them has changed (--verify). Stops (exit 1) if a link is not as asked, or if
this machine is too busy to tell (--allow-undecided continues). Then starts the ranks over SSH with torchrun's
environment, one per node or --nproc-per-node of them. Without `--` it trains (node.train; its options are accepted here
too: python -m node.train --help). With `--` it runs your program, unchanged: its folder is copied to every node. What a
rank writes to $GRADWIRE_RUN_DIR is copied back to the run folder, including checkpoints: `--resume runs/NAME` continues
from them.

-f experiment.yml launches what that file says: `kind: experiment`, and a key for each flag (examples/experiment.yml has
them all). Flags override the file, and the file overrides environment variables.

-f runs/NAME repeats an earlier run: the same program and arguments, seeds, links, limits, schedule and rank order, on
the run's own cluster (or --name's), which is brought up as it was if it is down. Files that the run sent to its nodes
are sent in their current state; a trace file must be unchanged.

Easily confused: --seed is for the training, --link-seed for drawing the links; --lr-schedule is for the learning rate,
--schedule changes links and nodes during the run.

Exit codes: 0 done, 1 the run or the cluster failed, 2 usage, 3 a bug in gradwire, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cluster.api import Cluster
from cluster.base.errors import PrerequisiteError, UsageError, unknown
from cluster.base.spec import DEFAULT_NAME, ClusterSpec
from cluster.cli.command_line import run_verb
from cluster.cli.launch_options import launch_parser
from cluster.cli.launch_program import launch_program
from cluster.cli.live_options import check_port, served_page
from cluster.cli.parser import offered_flags
from cluster.cli.print_summary import print_summary
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.image import require_packages
from cluster.live.live_run import LiveOptions
from cluster.run.experiment import Experiment
from cluster.run.experiment_file import ExperimentFile, read_experiment_file
from cluster.run.job import make_job
from cluster.run.launch_again import (
    Repetition,
    experiment_again,
    refuse_other_cluster,
    request_again,
)
from cluster.run.launch_words import NONE, parse_stall_timeout_s
from cluster.run.past_run import PastLaunch, read_past_launch
from cluster.run.rank_order import check_rank_order, resolve_rank_order
from cluster.run.rank_placement import place_ranks, resolve_max_restarts
from cluster.run.results import parse_max_results
from cluster.run.run_folder import check_writable
from cluster.run.runner import RUNS_DIR
from cluster.schedule.events import check_events
from cluster.schedule.schedule_file import load_schedule
from cluster.up import cluster_of, console_of

if TYPE_CHECKING:
    from cluster.live.http_page import HttpPage
    from cluster.run.request import Request

SAID_WITH_RUN = {
    *("-f", "--file", "--name", "--json", "--plain", "--no-live", "--http", "--stall-timeout"),
    "--dry-run",
}

SAME_AS = {"--no-verify": "--verify"}  # flags of one value: both override its key in a file


def main(argv: list[str] | None = None) -> int:
    """Launch a run."""
    words = sys.argv[1:] if argv is None else argv
    split = words.index("--") if "--" in words else len(words)
    parser = launch_parser(__doc__)
    flags = offered_flags(parser)

    def launch(args: Namespace) -> object:
        said = [_flag(word) for word in words[:split] if word.startswith("-")]
        said += [SAME_AS[word] for word in said if word in SAME_AS]
        return launch_verb(args, args.rest, words[split + 1 :], flags, said)

    return run_verb(parser, launch, words[:split], keep_rest=True)


def _flag(word: str) -> str:
    """Return the flag of a word: --nodes of --nodes=3, -f of -fruns/NAME."""
    return "-f" if word.startswith("-f") else word.partition("=")[0]


def launch_verb(
    args: Namespace,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    said: Sequence[str],
) -> object:
    """Run the verb; everything is checked before anything is started.

    Args:
        args: the parsed arguments.
        rest: options that are not ours, for the training.
        program: the words after `--`.
        flags: all flags of launch that its help shows.
        said: the flags on the command line.
    """
    if args.attached:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    if args.http is not None and args.no_live:
        raise UsageError("--http and --no-live exclude each other", "leave one of them out")
    check_port(args.http)
    plan = make_plan(args, rest, program, flags, said)
    cluster, spec, experiment = plan.cluster, plan.spec, plan.experiment
    try:
        if args.dry_run:
            return _print_plan(args, cluster, spec, experiment)
        check_writable(RUNS_DIR)
        with served_page(args.http) as page, cluster.alone:
            if plan.past is None:
                cluster.up()
            else:
                bring_up_again(cluster, plan.past)
            run = cluster.execute(experiment, _live_options(args, page))
    finally:
        cluster.close()
    if not args.json:
        print_summary(run)
    return run.summary


def load_experiment(path: Path | str) -> Experiment:
    """Load an experiment.yml, or an earlier run's run.yml; `Cluster.of(experiment)` is its cluster.

    An earlier run is only repeated on a cluster as the run's: a launch refuses others.

    Raises:
        UsageError: the file is neither, or invalid; names path and key.
    """
    parser = launch_parser(None)
    args = parser.parse_args([f"--file={path}"])
    plan = make_plan(args, (), (), [], ())
    plan.cluster.close()
    past, experiment = plan.past, plan.experiment
    return experiment if past is None else Repetition(**vars(experiment), run=past)


class Plan(NamedTuple):
    """A checked launch that has not started yet.

    Attributes:
        cluster: the cluster, not brought up yet.
        spec: the cluster's spec once it is up.
        experiment: the experiment to run on it.
        past: the earlier run that is launched again; None: this is not a repetition.
    """

    cluster: Cluster
    spec: ClusterSpec
    experiment: Experiment
    past: PastLaunch | None


def make_plan(
    args: Namespace,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    said: Sequence[str],
) -> Plan:
    """Return the plan that the flags, or a file, ask for; arguments as of `launch_verb`.

    Raises:
        UsageError: something is invalid; nothing was started.
    """
    file = read_experiment_file(args.file) if args.file is not None else None
    if args.file is not None and file is None:
        return _plan_again(args, (*said, *rest), program)
    with _naming(file):
        if file is not None:
            file.set_over(args, said, with_program=not program)
            rest = rest if program or file.program else (*file.options, *rest)
            program = program or file.program
        return _plan_anew(args, rest, program, flags)


@contextmanager
def _naming(file: ExperimentFile | None) -> Iterator[None]:
    """Put the file's name in front of usage errors, if there is a file."""
    try:
        yield
    except UsageError as error:
        if file is None or error.message.startswith(f"{file.path}: "):
            raise
        raise UsageError(f"{file.path}: {error.message}", error.hint) from error


def _plan_anew(
    args: Namespace, rest: Sequence[str], program: Sequence[str], flags: Sequence[str]
) -> Plan:
    _refuse_contradictions(args, rest, program, flags)
    cluster = cluster_of(args)
    try:
        spec = cluster.planned()
        names = [node.name for node in spec.nodes]
        experiment = _experiment(args, cluster.request, rest, program, flags, names)
        _check(experiment, cluster, spec)
    except BaseException:
        cluster.close()
        raise
    return Plan(cluster, spec, experiment, None)


def _plan_again(args: Namespace, said: Sequence[str], program: Sequence[str]) -> Plan:
    """Return the plan to launch the run that -f names again; `said`: all words that are not values of our flags."""
    past = _past(args, said, program)
    experiment = experiment_again(past)
    if args.stall_timeout:
        limit_s = parse_stall_timeout_s(args.stall_timeout)
        experiment = replace(experiment, stall_timeout_s=limit_s)
    cluster = Cluster.of(experiment, console_of(args))
    try:
        spec = cluster.planned()
        _check(experiment, cluster, spec)
    except BaseException:
        cluster.close()
        raise
    return Plan(cluster, spec, experiment, past)


def _refuse_contradictions(
    args: Namespace, rest: Sequence[str], program: Sequence[str], flags: Sequence[str]
) -> None:
    if program and rest:
        raise unknown("option", rest[0].partition("=")[0], flags)
    if args.verify == NONE and args.allow_undecided:
        raise UsageError(
            "--allow-undecided and --no-verify exclude each other: links that are not measured are not undecided",
            "leave one of them out",
        )
    if args.fit and not program:
        raise UsageError(
            "--fit without a program: Trainer.fit of node.exogym passes both", "leave --fit out"
        )


def _past(args: Namespace, said: Sequence[str], program: Sequence[str]) -> PastLaunch:
    """Return the run that -f names, on the cluster that --name gives.

    Raises:
        UsageError: it is not a run, or other flags or a program are given that would change what is run.
    """
    if word := next((word for word in (*said, *program) if word not in SAID_WITH_RUN), ""):
        raise UsageError(
            f"-f and {word} exclude each other: run.yml says all that is run",
            f"leave it out; -f goes only with {', '.join(sorted(SAID_WITH_RUN - {'-f', '--file'}))}",
        )
    file: Path = args.file
    past = read_past_launch(file.parent if file.name == "run.yml" else file)
    is_named = "--name" in said or args.name != DEFAULT_NAME
    return replace(past, spec=replace(past.spec, name=args.name)) if is_named else past


def bring_up_again(cluster: Cluster, run: PastLaunch) -> None:
    """Bring up the cluster that a run had: create it if there is none, else reconcile it with `cluster.request`.

    Raises:
        ClusterError: the cluster differs from the run's.
    """
    if cluster.engine.cluster(cluster.name) is None:
        cluster.request = request_again(run)
    cluster.up()
    links, limits = cluster.settle().links, CpuLimits(cluster.engine, cluster.name).document()
    refuse_other_cluster(run, cluster.spec, links, limits)


def _experiment(
    args: Namespace,
    request: Request,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    nodes: Sequence[str],
) -> Experiment:
    """Return the experiment that the options ask for, validated before anything is started."""
    is_file = isinstance(args.schedule, Path)  # otherwise the events in experiment.yml
    schedule = load_schedule(args.schedule) if is_file else args.schedule or ()
    ranks = len(place_ranks(nodes, args.nproc_per_node))
    check_rank_order(args.rank_order, nodes)
    parse_max_results(args.max_results)
    stall_timeout_s = parse_stall_timeout_s(args.stall_timeout) if args.stall_timeout else None
    return Experiment(
        request,
        launch_program(args, rest, program, flags, ranks),
        schedule,
        verify=args.verify,
        allow_undecided=args.allow_undecided,
        nproc_per_node=args.nproc_per_node,
        rank_order=args.rank_order,
        max_results=args.max_results,
        max_restarts=args.max_restarts,
        stall_timeout_s=stall_timeout_s,
        shared=args.shared,
    )


def _check(experiment: Experiment, cluster: Cluster, spec: ClusterSpec) -> None:
    """Check everything that can be checked before the cluster is up.

    Raises:
        UsageError: something is impossible.
    """
    program = experiment.program
    names = [node.name for node in spec.nodes]
    if needed := program.needed_packages:
        with suppress(PrerequisiteError):  # a plan needs no engine
            require_packages(cluster.engine, spec.image, needed)
    places = place_ranks(names, experiment.nproc_per_node, program.essential_ranks)
    resolve_max_restarts(experiment.max_restarts, places)
    link_spec = cluster.request.link_spec
    check_events(
        experiment.schedule,
        nodes=names,
        steps=program.training.steps,
        links=link_spec.links(spec.nodes) if link_spec else None,
        slow_start_after_idle=link_spec is None or link_spec.profile.slow_start_after_idle,
    )


def _live_options(args: Namespace, page: HttpPage | None) -> LiveOptions:
    on_terminal = sys.stderr.isatty() and not args.plain and not args.no_live
    if on_terminal:
        from cluster.live.terminal import can_draw  # imports rich, which only a terminal needs

        on_terminal = can_draw()
    return LiveOptions(is_on=not args.no_live, on_terminal=on_terminal, page=page)


def _end_with_stdin() -> None:
    """Send ourselves SIGTERM when standard input ends: the process at its other end is gone, for whatever reason."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


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
    asked = job.experiment({name: limit.document() for name, limit in limits.items()})
    document = {"experiment": asked, "nodes": nodes} | job.document("RUN")
    if not args.json:
        print(json.dumps(document, indent=2))
    return document


if __name__ == "__main__":
    sys.exit(main())
