"""The cells of a sweep with all that it takes to run them, resolved: programs, links, and by what they are known.

All trainings are tested by one rule (TESTED), whatever their strategy: strategies that agree on nothing before the end
would have one replica tested beside others' averages, and who goes on while rank 0 tests computes in no one's seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.secrets import without_secrets
from cluster.links.link_spec import LinkSpec, make_link_spec
from cluster.run.program import NO_STRATEGY, Program, folder_digest, training, user_program
from cluster.sweeps.cells import Cell, digest
from cluster.sweeps.sweep_file import Sweep

TESTED = "Tested is, under every strategy, the average over all ranks, after the last step (--eval after)."


@dataclass(frozen=True)
class Planned:
    """A cell with all that it takes to run it.

    Attributes:
        cell: what it is.
        program: what its ranks run.
        link_spec: over which links.
        experiment: all that decides its run, as JSON values.
        digest: of that; its record is known by it.
    """

    cell: Cell
    program: Program
    link_spec: LinkSpec
    experiment: Mapping[str, object]
    digest: str


def plan_runs(plan: Sweep, cells: Sequence[Cell], out: Path) -> list[Planned]:
    """All cells, checked.

    Args:
        plan: the sweep.
        cells: of it.
        out: where records will lie.

    Raises:
        UsageError: a profile, a topology, an option that cannot be, `eval: during`.
    """

    @cache
    def program_of(words: tuple[str, ...]) -> tuple[Program, str]:
        folder = Path(plan.folder) if plan.folder else None
        program = (
            user_program([*plan.program, *words], folder)
            if plan.program
            else _tested_alike(training(words, folder, plan.nodes * plan.nproc_per_node), words)
        )
        if program.folder is None:
            return program, ""
        _refuse_inside(out.resolve(), program.folder.resolve())
        return program, folder_digest(program.folder)

    @cache
    def links_of(cell: Cell) -> LinkSpec:
        problem = cell.problem
        return make_link_spec(
            problem.profile,
            problem.topology,
            cell.link_seed,
            problem.wire,
            isolated=plan.isolated,
        )

    found = []
    for cell in cells:
        program, files = program_of(cell.words)
        link_spec = links_of(cell)
        experiment = _experiment(plan, program, files, link_spec)
        found.append(Planned(cell, program, link_spec, experiment, digest(experiment)))
    return found


def rule_of_tests(planned: Sequence[Planned]) -> str:
    """TESTED where it holds for all runs; nothing is said of scripts, and of a learner that tests by itself."""
    tested = {one.program.config.get("eval") for one in planned}
    return TESTED if tested == {"after"} else ""


def _tested_alike(program: Program, words: Sequence[str]) -> Program:
    """A training with `--eval after`; where one rank learns alone it tests by itself, in the same way in all runs.

    Raises:
        UsageError: it is to test during the training.
    """
    config = program.config
    if config.get("strategy") == NO_STRATEGY or config.get("eval") != "during":
        return program
    if "--eval" in words:
        raise UsageError(f"eval: during, in a sweep. {TESTED}", "leave `eval` out")
    argv = (*program.argv, "--eval", "after")
    return replace(program, argv=argv, config={**config, "eval": "after"})


def _refuse_inside(out: Path, folder: Path) -> None:
    """What a sweep writes must not change what it sends; `runs` in a program's folder is not sent.

    Raises:
        UsageError: it would.
    """
    if out.is_relative_to(folder) and "runs" not in out.relative_to(folder).parts:
        raise UsageError(f"--out {out} is in {folder}, which is sent to the nodes", "elsewhere")


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
