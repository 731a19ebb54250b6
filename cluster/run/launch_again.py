"""Rebuilds the experiment of a run from its run.yml. Pure, except for checking that the files to send still exist."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from cluster.base.errors import ClusterError, UsageError, shown
from cluster.base.secrets import SECRET
from cluster.base.spec import ClusterSpec, name_flag
from cluster.engine.resources import ResourceRequest, make_resource_request
from cluster.links.changes import LONGEST_S
from cluster.run.experiment import Experiment
from cluster.run.launch_words import LEAST_STALL_TIMEOUT_S, NEVER_S, parse_verify
from cluster.run.past_run import (
    HINT,
    PastLaunch,
    essential_of,
    is_words,
    number,
    same_links,
)
from cluster.run.program import NODE_TRAIN, Program
from cluster.run.request import Request
from cluster.schedule.events import Event
from cluster.schedule.record import read_events
from protocol.link import Link

OLDER = "this run is of an older gradwire, which did not keep what it takes to launch it again"


@dataclass(frozen=True)
class Repetition(Experiment):
    """The experiment of an earlier run, as a value of its own; a launch refuses clusters that differ from the run's.

    Attributes:
        run: the earlier run; None: it may be repeated over any links, on nodes with any limits.
    """

    run: PastLaunch | None = field(default=None, repr=False)

    def check(self, spec: ClusterSpec, links: Sequence[Link], limits: Mapping[str, object]) -> None:
        """Check that a cluster is as during the run, unless another one was asked for; as `refuse_other_cluster`."""
        if self.run is None:
            return
        asked = replace(self.request, name=self.run.spec.name, slot=None, hosts=None)
        if asked == request_again(self.run):
            refuse_other_cluster(self.run, spec, links, limits)


def experiment_again(run: PastLaunch) -> Experiment:
    """Return the experiment that a run launched; raises like `program_again`."""
    config = run.config
    program = program_again(run)
    all_essential = program.essential_ranks is None
    return Experiment(
        request_again(run),
        program,
        schedule_again(run),
        verify=_verify(config.get("verify", True), run.folder),
        allow_undecided=config.get("allow_undecided") is True,
        nproc_per_node=run.places[0].local_world_size,
        rank_order=",".join(run.nodes),
        max_results=f"{number(config, 'max_results_bytes', run.folder)}b",
        max_restarts=None if all_essential else number(config, "max_restarts", run.folder),
        stall_timeout_s=_stall_timeout_s(run),
        shared=config.get("shared") is True,
    )


def _verify(said: object, folder: Path) -> str:
    """Return `verify` of a run.yml; older ones have true or false.

    Raises:
        UsageError: it is invalid.
    """
    try:
        return parse_verify(said)
    except UsageError as error:
        raise UsageError(f"{folder / 'run.yml'}: verify: {error.message}", error.hint) from None


def request_again(run: PastLaunch) -> Request:
    """Return a request for the cluster of a run, in any free slot; raises like `resources_again`."""
    spec = run.spec
    return Request(spec.name, spec.size, None, spec.image, run.link_spec, resources_again(run))


def schedule_again(run: PastLaunch) -> tuple[Event, ...]:
    """Return the events of the run's schedule.

    Raises:
        UsageError: run.yml lacks them, they are invalid, or a trace file is gone or has changed.
    """
    if run.config.get("schedule") and "events" not in run.config:
        raise UsageError(
            f"{run.folder}: it had a schedule, and {OLDER}",
            "run its command again: `command` in run.yml",
        )
    return read_events(run.config.get("events") or [], str(run.folder / "run.yml"))


def _stall_timeout_s(run: PastLaunch) -> float | None:
    """Return the stall timeout of a run; None: the default, or an older run.yml without it."""
    said = run.config.get("stall_timeout_s")
    return checked_stall_timeout_s(said, f"{run.folder / 'run.yml'}: stall_timeout_s")


def checked_stall_timeout_s(said: object, what: str) -> float | None:
    """Return a stall timeout in seconds, 0 for never, or None for the default; `what` names it in the error.

    Raises:
        UsageError: it is none of these, or out of the flag's bounds.
    """
    if said is None:
        return None
    if (
        isinstance(said, int | float)
        and not isinstance(said, bool)
        and (said == NEVER_S or LEAST_STALL_TIMEOUT_S <= said <= LONGEST_S)
    ):
        return float(said)
    raise UsageError(
        f"{what} is {shown(said)}",
        f"{LEAST_STALL_TIMEOUT_S:g} to {LONGEST_S:.0f} seconds, or {NEVER_S:g} for never",
    )


def refuse_other_cluster(
    run: PastLaunch, spec: ClusterSpec, links: Sequence[Link], limits: Mapping[str, object]
) -> None:
    """Check that a cluster is the same as during a run.

    Args:
        run: the earlier run.
        spec: the cluster.
        links: its links in force.
        limits: the limits of its nodes, in the form of run.yml.

    Raises:
        ClusterError: it differs; the message says how.
    """
    if (spec.size, spec.image) != (run.spec.size, run.spec.image):
        has = f"{spec.size} nodes of {spec.image}, not {run.spec.size} of {run.spec.image}"
    elif not same_links(links, run.links):
        has = "other links than the run had"
    elif limits != run.config.get("limits"):
        has = "nodes that may use more, or less, than in the run"
    else:
        return
    raise ClusterError(
        f"cluster {spec.name!r} is up, and has {has}",
        f"python -m cluster.down{name_flag(spec.name)}, then launch again: it is brought up as it was",
    )


def resources_again(run: PastLaunch) -> ResourceRequest:
    """Return the resources that the run's nodes could use.

    Raises:
        UsageError: the limits in run.yml are invalid.
    """
    cpus, memory, gpus = (limits_of(run, key) for key in ("cpus", "memory_bytes", "gpus"))
    return make_resource_request(cpus, memory, gpus)


def limits_of(run: PastLaunch, key: str) -> Mapping[str, float | str | None]:
    """Return one limit, by node; raises like `resources_again`."""
    said = run.config.get("limits") or {}
    if not isinstance(said, dict) or not all(isinstance(own, dict) for own in said.values()):
        raise UsageError(f"{run.folder / 'run.yml'}: limits are {shown(said)}", HINT)
    return {node: own[key] for node, own in said.items() if key in own}


def program_again(run: PastLaunch) -> Program:
    """Return the program of a run, to be launched again.

    Raises:
        UsageError: run.yml lacks a part of it, a folder to send is gone, or Trainer.fit launched it.
    """
    said, path = run.config.get("program"), run.folder / "run.yml"
    if not isinstance(said, dict) or not {"name", "resume", "order"} <= said.keys():
        raise UsageError(f"{path}: {OLDER}", "launch the program anew, and name the new run")
    argv = said.get("argv")
    words = [said["name"], said.get("folder"), said["resume"], said["order"]]
    if not is_words(argv) or not argv or not is_words(words):
        raise UsageError(f"{path}: program is {shown(said)}", HINT)
    if said["order"]:
        raise UsageError(f"{path}: Trainer.fit launched this run", "run its script again")
    folders = [Path(word) if word else None for word in (said["folder"], said["resume"])]
    for folder in folders:
        if folder is not None and not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir may raise
            raise UsageError(f"{folder}, which this run sent to its nodes, is not there any more")
    _refuse_unknown_secrets(argv, path)
    essential = essential_of(run.config, run.folder)
    return Program(
        name=said["name"],
        argv=tuple(argv),
        folder=folders[0],
        config=dict(run.training),
        resume=folders[1],
        essential_ranks=None if essential is None else frozenset(essential),
    )


def _refuse_unknown_secrets(argv: Sequence[str], path: Path) -> None:
    for before, word in pairwise(["", *argv]):
        if SECRET in word:
            name = before if word == SECRET else word.partition(f"={SECRET}")[0]
            raise UsageError(
                f"{path} does not keep the value of {name}, which is secret",
                "run its command again, with the value: `command` in run.yml",
            )


def with_option(program: Program, name: str, value: str) -> Program:
    """Return a training with another value of a strategy's option.

    Raises:
        UsageError: the program is not node.train.
    """
    if program.argv[: len(NODE_TRAIN)] != NODE_TRAIN:
        raise UsageError(f"--set {name}={value} is for node.train", "name a run of node.train")
    options = program.config.get("strategy_options")
    config = {
        **program.config,
        "strategy_options": {**(options if isinstance(options, dict) else {}), name: value},
    }
    return replace(program, argv=(*program.argv, "--set", f"{name}={value}"), config=config)
