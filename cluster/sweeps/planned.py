"""Resolves the cells of a sweep into all that is needed to run them: programs, links, and digests.

All trainings are tested by one rule (TESTED). Otherwise strategies that agree on nothing before the end would have one
replica tested, and others their average; and the computing of ranks that go on while rank 0 tests would not be counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.secrets import without_secrets
from cluster.links.link_spec import LinkSpec, make_link_spec
from cluster.run.program import NO_STRATEGY, Program, folder_digest, training, user_program
from cluster.sweeps.cells import Cell, Problem, digest
from cluster.sweeps.sweep_file import Sweep

ANY_SEED = "1"  # that its arguments are checked with
TESTED = "Tested is, under every strategy, the average over all ranks, after the last step (--eval after)."


@dataclass(frozen=True)
class Planned:
    """A cell with all that is needed to run it.

    Attributes:
        cell: the cell.
        program: what its ranks run.
        link_spec: the links that it runs over.
        experiment: everything that decides its run, as JSON values.
        digest: digest of `experiment`, which names its record.
    """

    cell: Cell
    program: Program
    link_spec: LinkSpec
    experiment: Mapping[str, object]
    digest: str


def plan_runs(plan: Sweep, cells: Sequence[Cell], out: Path) -> list[Planned]:
    """Resolve and check all cells.

    Args:
        plan: the sweep.
        cells: its cells.
        out: folder for records.

    Raises:
        UsageError: a profile, topology, option or `out` is invalid, or `eval` is `during`.
    """
    given = Path(plan.folder) if plan.folder else None

    @cache  # starts a Python: once for all seeds
    def training_of(words: tuple[str, ...]) -> Program:
        drawn = (*words, "--seed", ANY_SEED)
        return _tested_alike(training(drawn, given, plan.nodes * plan.nproc_per_node), words)

    @cache
    def script_of(words: tuple[str, ...]) -> Program:
        return user_program([*plan.program, *words], given)

    @cache
    def files_of(folder: Path | None) -> str:
        if folder is None:
            return ""
        _refuse_inside(out.resolve(), folder.resolve())
        return folder_digest(folder)

    @cache
    def links_of(problem: Problem, link_seed: int) -> LinkSpec:
        return make_link_spec(
            problem.profile, problem.topology, link_seed, problem.wire, isolated=plan.isolated
        )

    found = []
    for cell in cells:
        program = (
            script_of(cell.words)
            if plan.program
            else _with_seed(training_of(cell.unseeded), cell.seed)
        )
        link_spec = links_of(cell.problem, cell.link_seed)
        experiment = _experiment(plan, program, files_of(program.folder), link_spec)
        found.append(Planned(cell, program, link_spec, experiment, digest(experiment)))
    return found


def rule_of_tests(planned: Sequence[Planned]) -> str:
    """Return TESTED if it applies to all runs; '' with scripts, or with a learner that tests by itself."""
    tested = {one.program.config.get("eval") for one in planned}
    return TESTED if tested == {"after"} else ""


def _with_seed(program: Program, seed: int | None) -> Program:
    """Return a training with its own seed, in place of ANY_SEED: nothing else of its configuration depends on it."""
    argv = list(program.argv)
    last = len(argv) - 1 - argv[::-1].index("--seed")
    argv[last + 1] = str(seed)
    return replace(program, argv=tuple(argv), config={**program.config, "seed": seed})


def _tested_alike(program: Program, words: Sequence[str]) -> Program:
    """Return a training with `--eval after`; unchanged if one rank learns alone, which tests alike in all runs.

    Raises:
        UsageError: the user asked for tests during the training.
    """
    config = program.config
    if config.get("strategy") == NO_STRATEGY or config.get("eval") != "during":
        return program
    if "--eval" in words:
        raise UsageError(f"eval: during, in a sweep. {TESTED}", "leave `eval` out")
    argv = (*program.argv, "--eval", "after")
    return replace(program, argv=argv, config={**config, "eval": "after"})


def _refuse_inside(out: Path, folder: Path) -> None:
    """Refuse to write into a folder that is sent, as that would change it; its `runs` is not sent.

    Raises:
        UsageError: `out` is in it.
    """
    if out.is_relative_to(folder) and "runs" not in out.relative_to(folder).parts:
        raise UsageError(
            f"--out {out} is in {folder}, which is sent to the nodes",
            "write elsewhere: --out FOLDER",
        )


def _experiment(
    plan: Sweep, program: Program, files: str, link_spec: LinkSpec
) -> dict[str, object]:
    return {
        "program": {
            "argv": without_secrets(program.argv),
            "config": program.config,
            "files": files,
        },
        "links": link_spec.origin(),
        "nodes": plan.nodes,
        "nproc_per_node": plan.nproc_per_node,
        "image": plan.image,
        "cpus": plan.cpus,
        "memory": plan.memory,
        "verify": plan.verify,
    }
