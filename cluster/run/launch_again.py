"""What it takes to launch a run again, from its run.yml. Pure, but for looking whether what it sends is still there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.base.errors import UsageError, shown
from cluster.engine.resources import ResourceRequest, make_resource_request
from cluster.run.past_run import HINT, PastRun, essential_of, is_words, number
from cluster.run.program import NODE_TRAIN, Program

OLDER = "this run is of an older gradwire, which did not keep what it takes to launch it again"


@dataclass(frozen=True)
class Options:
    """How a run was launched, besides its program.

    Attributes:
        verify: whether its links were measured first.
        allow_undecided: whether it went on over links that a busy host let nobody judge.
        max_results: how much of what ranks left was fetched of one node.
        max_restarts: of ranks that were not essential; None where all were.
    """

    verify: bool
    allow_undecided: bool
    max_results: str
    max_restarts: int | None


def options_again(run: PastRun) -> Options:
    """How to launch it; raises as `program_again`."""
    config = run.config
    all_essential = essential_of(config, run.folder) is None
    return Options(
        verify=config.get("verify") is not False,
        allow_undecided=config.get("allow_undecided") is True,
        max_results=f"{number(config, 'max_results_bytes', run.folder)}b",
        max_restarts=None if all_essential else number(config, "max_restarts", run.folder),
    )


def resources_again(run: PastRun) -> ResourceRequest:
    """What its nodes could use.

    Raises:
        UsageError: run.yml does not say it, or it cannot be.
    """
    cpus, memory, gpus = (limits_of(run, key) for key in ("cpus", "memory_bytes", "gpus"))
    return make_resource_request(cpus, memory, gpus)


def limits_of(run: PastRun, key: str) -> Mapping[str, float | str | None]:
    """One limit, by node; raises as `resources_again`."""
    said = run.config.get("limits") or {}
    if not isinstance(said, dict) or not all(isinstance(own, dict) for own in said.values()):
        raise UsageError(f"{run.folder / 'run.yml'}: limits are {shown(said)}", HINT)
    return {node: own[key] for node, own in said.items() if key in own}


def program_again(run: PastRun) -> Program:
    """What a run launched, to be launched again.

    Raises:
        UsageError: run.yml does not say enough of it, or what it needs is not there any more.
    """
    said, path = run.config.get("program"), run.folder / "run.yml"
    if not isinstance(said, dict) or not {"name", "resume", "order"} <= said.keys():
        raise UsageError(f"{path}: {OLDER}", "launch it anew, and try that run")
    argv = said.get("argv")
    words = [said["name"], said.get("folder"), said["resume"], said["order"]]
    if not is_words(argv) or not argv or not is_words(words):
        raise UsageError(f"{path}: program is {shown(said)}", HINT)
    if said["order"]:
        raise UsageError(f"{path}: Trainer.fit launched this run", "run its script again by itself")
    folders = [Path(word) if word else None for word in (said["folder"], said["resume"])]
    for folder in folders:
        if folder is not None and not os.path.isdir(folder):  # noqa: PTH112 - raises for some names
            raise UsageError(f"{folder}, which this run sent to its nodes, is not there any more")
    essential = essential_of(run.config, run.folder)
    return Program(
        name=said["name"],
        argv=tuple(argv),
        folder=folders[0],
        config=dict(run.recorded.training),
        resume=folders[1],
        essential_ranks=None if essential is None else frozenset(essential),
    )


def with_option(program: Program, name: str, value: str) -> Program:
    """A training with another value of its strategy's option.

    Raises:
        UsageError: it is no training of ours.
    """
    if program.argv[: len(NODE_TRAIN)] != NODE_TRAIN:
        raise UsageError(f"--set {name}={value} is for node.train", "the run of a strategy")
    options = program.config.get("strategy_options")
    config = {
        **program.config,
        "strategy_options": {**(options if isinstance(options, dict) else {}), name: value},
    }
    return replace(program, argv=(*program.argv, "--set", f"{name}={value}"), config=config)
