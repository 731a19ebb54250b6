"""Rank the single changes that would have made a run faster, by the seconds saved, and try them.

    python -m cluster.whatif runs/20261121-101500-mobile-fedavg
    python -m cluster.whatif runs/20261121-101500-mobile-fedavg --try 2
    python -m cluster.whatif runs/20261121-101500-mobile-fedavg --try 1 --repeat 3 --json
    python -m cluster.whatif runs/20261121-101500-mobile-fedavg --profile wan,poor    # the run on others' links

Predicts savings from what the run recorded: a link with twice the rate or half the delay, another rank order, no slow
start after pauses, smaller numbers between ranks (cluster/accounting/alternatives.py). --try N launches the best N on
the run's own cluster, which is brought up as it was if it is down: the same program, arguments and seeds, over links
verified before each run if the run's were. Each round starts with the unchanged run as its baseline, because a
machine's speed varies by the hour. Links are restored in any case. Results go into the run folder, as whatif.json.

--profile predicts how long the same run would take over the links of other profiles
(cluster/accounting/other_links.py).
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.accounting.alternatives import Alternative, predict
from cluster.accounting.other_links import RunModel
from cluster.base.console import Console, print_table
from cluster.base.errors import RunFailed, UsageError
from cluster.cli.command_line import make_parser, run_verb, typed_flags
from cluster.launch import bring_up_again
from cluster.links.profiles import Profile, load_profile
from cluster.reporting.after_run import report_run
from cluster.run.experiment import Experiment
from cluster.run.launch_again import experiment_again, with_option
from cluster.run.past_run import PastRun, consistent, read_past_run
from cluster.run.trials import (
    ON_LINKS,
    Measured,
    ProfileRow,
    Trial,
    WhatIf,
    changed_plans,
    choose_trials,
    measure,
    profile_row,
    whatif_document,
    write_document,
)

if TYPE_CHECKING:
    from cluster.api import Cluster

MOST_ROWS = 12
MOST_REPEATS = 100


def main(argv: list[str] | None = None) -> int:
    """Rank changes of a run, and try some."""
    parser = make_parser("cluster.whatif", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN_FOLDER", help="runs/<time>-<profile>-<what>")
    add("--name", help="cluster for --try (default: the run's own)")
    add(
        "--try",
        dest="tries",
        type=int,
        default=0,
        metavar="N",
        help="launch the run again unchanged, and with each of the best N changes (default: none)",
    )
    add(
        "--repeat",
        type=int,
        default=1,
        metavar="K",
        help="rounds of these launches (default: %(default)s)",
    )
    add(
        "--profile",
        dest="profiles",
        metavar="X,Y",
        help="predict the run over the links of these profiles instead",
    )
    typed = typed_flags(argv)
    return run_verb(parser, lambda args: whatif(args, typed), argv)


def whatif(args: Namespace, typed: Sequence[str]) -> WhatIf:
    """Run the verb: print and return the predictions and trials.

    A --profile that is not among the `typed` flags came from the environment, and may be meant for launches.
    """
    if "--try" in typed and "--profile" not in typed:
        args.profiles = None
    if args.tries < 0 or not 1 <= args.repeat <= MOST_REPEATS:
        raise UsageError(
            f"--try {args.tries} --repeat {args.repeat}",
            f"--try 0 or more, --repeat 1 to {MOST_REPEATS}",
        )
    names = [] if args.profiles is None else args.profiles.split(",")
    profiles = [load_profile(name) for name in names]
    if profiles and args.tries:
        raise UsageError("--profile predicts, and --try launches", "leave one of them out")
    run = read_past_run(args.folder)
    if profiles:
        return _over(run, profiles, as_json=args.json)
    if args.name:
        run = replace(run, spec=replace(run.spec, name=args.name))
    predicted = _predict(run)
    trials, baselines = choose_trials(predicted, args.tries), list[Measured]()
    if args.tries and not trials:
        raise UsageError(f"{run.folder}: nothing that could be tried would help", "leave --try out")
    if trials:
        console = Console(program_output=sys.stderr)  # standard output is the table's
        attempt = _Attempt(run, experiment_again(run), console, predicted)
        attempt.all(trials, baselines, args.repeat)
        report_run(run.folder, console.say, is_named=True)  # with what came of the trials
    document = whatif_document(run, predicted, trials, baselines)
    if not args.json:
        _print(run, predicted, document)
    return document


def _over(run: PastRun, profiles: Sequence[Profile], *, as_json: bool) -> WhatIf:
    """Return, and print, how long the run would take over the links of these profiles."""
    with consistent(run):
        model = RunModel(run.recorded)
        rows = [profile_row(run, model, profile) for profile in profiles]
    document = whatif_document(run, (), (), (), rows)
    if not as_json:
        _print_profiles(run, rows)
    return document


def _predict(run: PastRun) -> Sequence[Alternative]:
    """Return what would have helped.

    Raises:
        UsageError: the run's records are inconsistent, or too large to be replayed.
    """
    with consistent(run):
        predicted = predict(run.recorded)
    if predicted is None:
        raise UsageError(
            f"{run.folder}: its collectives are too many, or too large, to be replayed",
            "name a run of fewer steps",
        )
    return predicted


@dataclass(frozen=True)
class _Attempt:
    """Launches of a run as it was, and with changes.

    Attributes:
        run: the original run.
        experiment: the experiment that it launched.
        console: for messages.
        predicted: all changes, for whatif.json.
    """

    run: PastRun
    experiment: Experiment
    console: Console
    predicted: Sequence[Alternative]

    def all(self, trials: Sequence[Trial], baselines: list[Measured], repeat: int) -> None:
        """Launch the baseline and all trials in turn, `repeat` times; each result is written at once.

        Raises:
            ClusterError: the cluster differs from the run's, or is in use; RunFailed: a run did not complete.
        """
        from cluster.api import Cluster

        spec = self.run.spec
        cluster = Cluster(spec.name, console=self.console)
        try:
            with cluster.alone:
                bring_up_again(cluster, self.run)
                for _ in range(repeat):
                    baselines.append(self._launch(cluster, "as it was"))
                    for trial in trials:
                        trial.runs.append(self._try(cluster, trial.change))
                        document = whatif_document(self.run, self.predicted, trials, baselines)
                        write_document(self.run.folder, document)
        finally:
            cluster.close()

    def _try(self, cluster: Cluster, change: Alternative) -> Measured:
        with (
            cluster.changed(partial(changed_plans, change=change))
            if change.what in ON_LINKS
            else nullcontext()
        ):
            return self._launch(cluster, change.words, change)

    def _launch(self, cluster: Cluster, words: str, change: Alternative | None = None) -> Measured:
        """Launch the same program with the same arguments, except for `change`, verifying links as the run did."""
        self.console.say(f"=== {words}")
        experiment = self.experiment
        if change is not None and change.what == "rank_order":
            experiment = replace(experiment, rank_order=change.of)
        if change is not None and change.what == "codec":
            program = with_option(experiment.program, "codec", change.of)
            experiment = replace(experiment, program=program)
        done = cluster.execute(experiment)
        measured = measure(done.folder, list(done.summary["exit_codes"]))
        if measured is None:
            raise RunFailed(f"{done.folder}: its ranks recorded no end, so nothing can be compared")
        self.console.say(f"=== {words}: {measured.seconds:.1f} s")
        return measured


def _print(run: PastRun, predicted: Sequence[Alternative], document: WhatIf) -> None:
    """Print the table of changes, with the achieved savings beside the predicted ones."""
    whole_s = document["took_s"]
    tried = {(one["what"], one["of"]): one["achieved_collectives_s"] for one in document["tried"]}
    rows = [
        [
            one.words,
            _figure(one.saves_s),
            _figure(tried.get((one.what, one.of))),
            f"{one.saves_s / whole_s:.0%}" if one.saves_s is not None and whole_s else "-",
            one.note,
        ]
        for one in predicted[:MOST_ROWS]
    ]
    print_table(["CHANGE", "SAVES s", "ACHIEVED s", "OF THE RUN", "NOTE"], rows)
    if len(predicted) > MOST_ROWS:
        print(f"… and {len(predicted) - MOST_ROWS} more: --json")
    took = f" of {whole_s:.1f} s" if whole_s else ""
    print(
        f"predicted by the links as {run.source}, for collectives of {document['collectives_s']:.1f} s{took}"
    )
    if tried:
        print(f"achieved by collectives, beside runs as it was: {run.folder / 'whatif.json'}")


def _print_profiles(run: PastRun, rows: Sequence[ProfileRow]) -> None:
    """Print the run as it was, and over the links of each profile."""
    whole_s, here = run.took_s, run.link_spec.profile.name
    table = [[here, _figure(whole_s), "1.00" if whole_s else "-", f"as it was, links {run.source}"]]
    for row in rows:
        took_s = row["took_s"]
        times = f"{took_s / whole_s:.2f}" if took_s is not None and whole_s else "-"
        table.append([row["profile"], _figure(took_s), times, row["note"]])
    print_table(["PROFILE", "RUN s", "TIMES", "NOTE"], table)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
