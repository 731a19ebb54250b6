"""Run every combination of an experiment's lists, on one cluster, and rank the results.

    python -m cluster.sweep examples/sweeps/strategies.yml
    python -m cluster.sweep --profile mobile,wan --strategy ddp,fedavg,diloco --seed 1,2,3 --steps 100
    python -m cluster.sweep sweep.yml --target test_accuracy=0.8 --steps 50     # flags override the file
    python -m cluster.sweep sweep.yml --predict mobile,poor      # the same runs on slower links, too
    python -m cluster.sweep sweep.yml --dry-run                  # all runs in order, and which are done
    python -m cluster.sweep sweep.yml --retry-failed

A sweep file is like an experiment.yml, with lists; cluster/sweeps/sweep_file.py shows all of its keys. Unlike an
experiment's, its paths are relative to the current folder, as on the command line, `verify` is true or false, and there
are no hosts, GPUs or schedules. Options not listed below are node.train's, with comma-separated lists.

Everything is checked before anything starts. Links are reshaped and measured between runs. Each block of runs has every
problem and variant once, in an order drawn by --order-seed. Finished runs are not repeated: the same command resumes a
sweep that was stopped. All trainings are tested alike: on the average over all ranks, after the last step. --predict
also ranks the runs as they would be on the links of other profiles (cluster/sweeps/predicted.py), where they might take
hours. The ranking, sweep.html, is written to --out, next to the records.

Exit codes: 0 done, 1 a run or the cluster failed, 2 usage, 3 a bug in gradwire, 130 interrupted.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.base.console import Console, command_line, eprint, print_table
from cluster.base.errors import (
    ContractBroken,
    ContractUndecided,
    RunFailed,
    UsageError,
)
from cluster.base.json_file import write_json
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.links.link_spec import LinkSpec
from cluster.links.profiles import Profile, load_profile
from cluster.reporting.page import cell_text
from cluster.reporting.write import write_page
from cluster.run.program import Program
from cluster.run.run_folder import check_writable
from cluster.run.runner import RUNS_DIR
from cluster.sweeps.cells import digest, ordered, sweep_cells
from cluster.sweeps.figures import Figures, run_figures
from cluster.sweeps.flags import LISTS, ONE_VALUE, with_flags
from cluster.sweeps.page import HEADER, lead_words, ranking_rows, sweep_page
from cluster.sweeps.planned import Planned, plan_runs, rule_of_tests
from cluster.sweeps.predicted import predicted_outcomes
from cluster.sweeps.ranking import Line, Outcome, rank
from cluster.sweeps.records import (
    DONE,
    FAILED,
    Record,
    alone_in,
    judged,
    read_record,
    write_record,
)
from cluster.sweeps.sweep_file import Sweep, load_document, parse_sweep

if TYPE_CHECKING:
    from cluster.api import Cluster

SWEEPS_DIR = RUNS_DIR / "sweeps"
NAME = "sweep"
MANY = 20  # trainings that differ in more than their seeds; each is checked in some 0.3 s


def main(argv: list[str] | None = None) -> int:
    """Run a sweep."""
    file, words = _split_file(sys.argv[1:] if argv is None else argv)
    parser = make_parser("cluster.sweep", __doc__)
    parser.usage = f"{parser.prog} [FILE] [OPTION …]"
    add_name(parser)
    add = parser.add_argument
    for key in ONE_VALUE:
        add(
            f"--{key.replace('_', '-')}",
            metavar="X",
            help=f"`{key}` of the file, the same for all runs",
        )
    for key in LISTS:
        add(
            f"--{key.replace('_', '-')}", metavar="X,Y", help=f"`{key}` of the file, one or several"
        )
    add(
        "--target",
        action="append",
        default=[],
        metavar="FIGURE=VALUE",
        help="figure of a test and the value to reach (repeatable)",
    )
    add("--no-verify", action="store_true", help="do not measure the links before each run")
    add("--isolated", action="store_true", help="nodes without a link cannot reach each other")
    add("--out", type=Path, help="folder for records and report (default: runs/sweeps/NAME)")
    add(
        "--order-seed",
        type=int,
        default=1,
        help="seed for the order of runs (default: %(default)s)",
    )
    add("--retry-failed", action="store_true", help="repeat failed runs")
    add("--dry-run", action="store_true", help="print what would be run, do nothing")
    return run_verb(parser, lambda args: sweep(args, file), words, keep_rest=True)


def _split_file(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Split off the file, first or after --json, because argparse would mistake an unknown option's value for it."""
    at = 1 if words[:1] == ["--json"] else 0
    if len(words) <= at or words[at].startswith("-"):
        return None, list(words)
    return Path(words[at]), [*words[:at], *words[at + 1 :]]


def sweep(args: Namespace, file: Path | None) -> dict[str, object]:
    """Run the verb; every run is checked before the first one starts."""
    document = with_flags(load_document(file) if file else {}, args, args.rest)
    plan = parse_sweep(document)
    profiles = [load_profile(name) for name in plan.predict]
    out = args.out or SWEEPS_DIR / (file.stem if file else f"flags-{digest(_runs_of(document))}")
    cells = ordered(sweep_cells(plan), args.order_seed)
    console = Console(program_output=sys.stderr)  # standard output is the ranking's
    if not plan.program and (count := len({cell.unseeded for cell in cells})) > MANY:
        console.say(f"checking the arguments of {count} trainings")
    planned = plan_runs(plan, cells, out)
    if args.dry_run:
        return _print_plan(args, planned, _to_run(out, planned, retry=args.retry_failed))
    check_writable(out)
    with alone_in(out):
        todo = _to_run(out, planned, retry=args.retry_failed)
        console.say(f"{len(planned)} runs, {len(planned) - len(todo)} of them known: {out}")
        is_complete = False
        try:
            if todo:
                cluster = _cluster(args, plan, console)
                if "nodes" not in document:
                    _refuse_to_shrink(cluster)
                _run_all(cluster, todo, out, plan)
            is_complete = True
        finally:  # predictions take their time: not while somebody waits for Ctrl-C
            wanted = profiles if is_complete else ()
            document, lines = _publish(out, plan, planned, wanted, console)
    if not args.json:
        _print(lines)
    if failed := document["failed"]:
        raise RunFailed(
            f"{failed} of {len(planned)} runs failed", "--retry-failed", document, see=str(out)
        )
    return document


def _runs_of(document: Mapping[str, object]) -> dict[str, object]:
    """Return what decides a sweep's runs: others of its keys rank or predict the same runs."""
    return {key: value for key, value in document.items() if key not in ("target", "predict")}


def _to_run(out: Path, planned: Sequence[Planned], *, retry: bool) -> list[Planned]:
    """Return what is not known; with `retry`, also what failed."""
    known = [(one, read_record(out, one.digest)) for one in planned]
    return [one for one, record in known if record is None or (retry and record.status == FAILED)]


def _cluster(args: Namespace, plan: Sweep, console: Console) -> Cluster:
    from cluster.api import Cluster

    return Cluster(
        args.name,
        nodes=plan.nodes,
        image=plan.image,
        cpus=plan.cpus,
        memory=plan.memory,
        console=console,
    )


def _refuse_to_shrink(cluster: Cluster) -> None:
    """Refuse to remove nodes of an existing cluster if neither the sweep's file nor a flag gives `nodes`.

    Raises:
        UsageError: the cluster has more nodes than the sweep uses.
    """
    size, there = cluster.request.size or 0, cluster.engine.cluster(cluster.name)
    if there is not None and there.size > size:
        cluster.close()
        raise UsageError(
            f"cluster {cluster.name!r} has {there.size} nodes, a sweep without `nodes` is for {size}",
            f"use all: --nodes {there.size}; remove the others: --nodes {size}; use another cluster: --name NAME",
        )


def _run_all(cluster: Cluster, todo: Sequence[Planned], out: Path, plan: Sweep) -> None:
    """Run them one after the other; each is recorded as soon as it has ended.

    Raises:
        ClusterError: the cluster is in use or cannot be brought up; the records so far stay.
    """
    in_force: LinkSpec | None = None
    try:
        with cluster.alone:
            for number, one in enumerate(todo, start=1):
                cluster.console.say(f"=== {number} of {len(todo)}: {one.cell.name}")
                if one.link_spec != in_force:
                    in_force = one.link_spec
                    cluster.request = replace(cluster.request, link_spec=in_force)
                    cluster.up()
                record = _run(cluster, one.program, plan)
                write_record(out, one.digest, one.experiment, record)
    finally:
        cluster.close()


def _run(cluster: Cluster, program: Program, plan: Sweep) -> Record:
    """Run one cell; return its record, also if its ranks failed, or its links did not hold or changed."""
    try:
        run = cluster.launch(program, verify=plan.verify, nproc_per_node=plan.nproc_per_node)
    except RunFailed as failure:
        cluster.console.fail(failure)
        summary = failure.document if isinstance(failure.document, dict) else {}
        folder = Path(summary["folder"]) if "folder" in summary else None
        return Record(FAILED, folder, failure.message, summary)
    except (ContractBroken, ContractUndecided) as failure:
        cluster.console.fail(failure)
        return Record(FAILED, None, failure.message, {})
    record = judged(Record(DONE, run.folder, "", run.summary))
    if record.reason:
        cluster.console.say(f"not ranked: {record.reason}")
    return record


def _publish(
    out: Path,
    plan: Sweep,
    planned: Sequence[Planned],
    profiles: Sequence[Profile],
    console: Console,
) -> tuple[dict[str, object], list[Line]]:
    """Write sweep.json and the report of the runs so far, also as predicted on the links of other profiles.

    Returns:
        the --json document and the ranking.
    """
    known = [(one, record) for one in planned if (record := read_record(out, one.digest))]
    outcomes = [Outcome(one.cell, _figures(record, plan)) for one, record in known]
    rows = [_row(*one, outcome) for one, outcome in zip(known, outcomes, strict=True)]
    lines = rank(outcomes)
    document: dict[str, object] = {
        "folder": str(out),
        "planned": len(planned),
        "known": len(known),
        "failed": sum(1 for _, record in known if record.status == FAILED),
        "ranking": [asdict(line) for line in lines],
        "runs": rows,
    }
    write_json(out / f"{NAME}.json", document)  # now, as predictions take their time
    if profiles:
        records = [record for _, record in known]
        lines = rank([*outcomes, *_predict(outcomes, records, profiles, console)])
        document["ranking"] = [asdict(line) for line in lines]
        write_json(out / f"{NAME}.json", document)
    folders = [record.folder.name if record.folder else record.reason for _, record in known]
    rule = rule_of_tests(planned)
    page = sweep_page(out.name, lines, outcomes, len(planned), folders, command_line(), rule)
    written = write_page(page, out, NAME)
    if written.missing:
        eprint(written.missing)
    console.say(f"report {written.files[0]}")
    return document, lines


def _predict(
    outcomes: Sequence[Outcome],
    records: Sequence[Record],
    profiles: Sequence[Profile],
    console: Console,
) -> list[Outcome]:
    """Return what the runs would have come to on the links of other profiles; say what cannot be told."""
    done = [
        (outcome, record.folder)
        for outcome, record in zip(outcomes, records, strict=True)
        if outcome.figures is not None and record.folder is not None
    ]
    if done:
        names = ", ".join(profile.name for profile in profiles)
        console.say(f"predicting {len(done)} runs on the links of {names}")
    predicted: list[Outcome] = []
    for outcome, folder in done:
        found, reasons = predicted_outcomes(outcome, folder, profiles)
        predicted += found
        for reason in reasons:
            console.say(f"not predicted: {reason}")
    return predicted


def _figures(record: Record, plan: Sweep) -> Figures | None:
    if record.status != DONE or record.folder is None:
        return None
    return run_figures(record.folder, record.summary, plan.targets)


def _row(one: Planned, record: Record, outcome: Outcome) -> dict[str, object]:
    return {
        "digest": one.digest,
        **asdict(one.cell.problem),
        "variant": one.cell.variant,
        "link_seed": one.cell.link_seed,
        "seed": one.cell.seed,
        "words": list(one.cell.words),
        "status": record.status,
        "reason": record.reason,
        "folder": str(record.folder) if record.folder else None,
        "figures": asdict(outcome.figures) if outcome.figures else None,
    }


def _print_plan(
    args: Namespace, planned: Sequence[Planned], todo: Sequence[Planned]
) -> dict[str, object]:
    rows = [
        [one.digest, "to run" if one in todo else "known", one.cell.name, " ".join(one.cell.words)]
        for one in planned
    ]
    if not args.json:
        print_table(["CELL", "STATE", "RUN", "ARGUMENTS"], rows)
    return {
        "cells": [dict(zip(("digest", "state", "run", "words"), row, strict=True)) for row in rows]
    }


def _print(lines: Sequence[Line]) -> None:
    print_table(
        [name.strip().upper() for name in HEADER],
        [[cell_text(value).replace("–", "-") for value in row] for row in ranking_rows(lines)],
    )
    if lead := lead_words(lines):
        print(lead)


if __name__ == "__main__":
    sys.exit(main())
