"""The cells of a sweep: every single run, its arguments, and the order of the runs. Pure.

Cells run in blocks: each has every problem and variant once, with the same seeds, in a newly drawn order. Slow drifts,
as of a shared machine's speed over a day, thus affect all alike (a randomised complete block design: Montgomery, Design
and Analysis of Experiments, chapter 4).
"""

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.sweeps.sweep_file import MOST_CELLS, Options, Scalar, Sweep

TASK = ("task", "")
STRATEGY = ("strategy", "")
DIGEST_LETTERS = 12


@dataclass(frozen=True)
class Problem:
    """The setting in which variants are compared.

    Attributes:
        task: task of node.train; empty if not specified.
        profile, topology, wire: those of the links.
    """

    task: str
    profile: str
    topology: str
    wire: str


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        problem: its problem.
        variant: name of what is compared with the problem's other variants.
        link_seed: draws the links.
        seed: seed of the training; None if it has none.
        words: arguments of the program.
    """

    problem: Problem
    variant: str
    link_seed: int
    seed: int | None
    words: tuple[str, ...]

    @property
    def repetition(self) -> tuple[int, int | None]:
        """The seeds; two cells with the same ones are a pair."""
        return self.link_seed, self.seed

    @property
    def unseeded(self) -> tuple[str, ...]:
        """The arguments without the seed of the training."""
        return self.words[: len(self.words) - len(_seed_words(self.seed))]

    @property
    def name(self) -> str:
        """The problem, variant and seeds, for the user."""
        parts = [self.problem.task, self.problem.profile, self.problem.topology, self.variant]
        seeds = [f"links {self.link_seed}", *([] if self.seed is None else [f"seed {self.seed}"])]
        return ", ".join(part for part in (*parts, *seeds) if part)


def sweep_cells(sweep: Sweep) -> list[Cell]:
    """Return all cells of a sweep, in the order of the file.

    Raises:
        UsageError: there are too many, or two of a problem's variants have the same name or arguments.
    """
    if (count := _count(sweep)) > MOST_CELLS:
        raise UsageError(f"a sweep of {count} runs", f"at most {MOST_CELLS} runs")
    problems = itertools.product(sweep.profiles, sweep.topologies, sweep.wires)
    seeds: Sequence[int | None] = sweep.seeds or (None,)
    variants = list(_variants(sweep))
    cells = [
        Cell(Problem(task, *where), name, link_seed, seed, (*words, *_seed_words(seed)))
        for where in problems
        for task, name, words in variants
        for link_seed in sweep.link_seeds
        for seed in seeds
    ]
    _refuse_same_names(cells)
    _refuse_same_runs(cells)
    return cells


def _refuse_same_names(cells: Sequence[Cell]) -> None:
    """Refuse cells that nobody could tell apart: in the ranking, one would take the other's place.

    Raises:
        UsageError: names the variant.
    """
    found = set()
    for cell in cells:
        key = cell.problem, cell.variant, cell.repetition
        if key in found:
            raise UsageError(
                f"two variants are called {cell.variant}", "give them different names or options"
            )
        found.add(key)


def _refuse_same_runs(cells: Sequence[Cell]) -> None:
    """Refuse variants with the same arguments: they would share one record, and seem to be exactly as good.

    Raises:
        UsageError: names both.
    """
    found: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        where = cell.problem.profile, cell.problem.topology, cell.problem.wire, cell.link_seed
        first = found.setdefault((where, cell.words), cell)
        if first is not cell:
            raise UsageError(
                f"the variants {first.variant} and {cell.variant} are the same run",
                "give one of them another option, or repeat one with seed: [1, 2, 3]",
            )


def ordered(cells: Sequence[Cell], order_seed: int) -> list[Cell]:
    """Return the cells block by block, each block in an order of its own; deterministic for a seed."""
    blocks: dict[tuple[int, int | None], list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.repetition, []).append(cell)
    found = []
    for number, own in enumerate(blocks.values()):
        random.Random(f"{order_seed} {number}").shuffle(own)
        found += own
    return found


def digest(experiment: Mapping[str, object]) -> str:
    """Return the digest that identifies a cell, of everything that decides its run."""
    text = json.dumps(experiment, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def _count(sweep: Sweep) -> int:
    """Return the number of cells, before any of them is made: a few long lists multiply to more than memory holds."""
    variants = sum(
        math.prod(len(values) for values in {**sweep.options, **own}.values())
        for own in sweep.variants.values()
    )
    axes = (sweep.profiles, sweep.topologies, sweep.wires, sweep.link_seeds, sweep.seeds or (None,))
    return variants * math.prod(len(axis) for axis in axes)


def _variants(sweep: Sweep) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each variant's task, name and arguments."""
    for name, own in sweep.variants.items():
        options = {**sweep.options, **own}
        axes = [key for key, values in options.items() if len(values) > 1]
        for values in itertools.product(*options.values()):
            chosen = dict(zip(options, values, strict=True))
            told = [_label(key, chosen[key]) for key in axes if key != TASK]
            label = " ".join([*([name] if name else []), *told]) or _plain_name(sweep, options)
            words = tuple(itertools.chain.from_iterable(_words(*one) for one in chosen.items()))
            yield str(chosen.get(TASK, "")), label, words


def _plain_name(sweep: Sweep, options: Options) -> str:
    values = options.get(STRATEGY)
    return str(values[0]) if values else (sweep.program or ("training",))[0]


def _label(key: tuple[str, str], value: Scalar) -> str:
    return str(value) if key == STRATEGY else f"{key[1] or key[0]}={value}"


def _words(key: tuple[str, str], value: Scalar) -> tuple[str, ...]:
    flag, name = key
    if name:
        return f"--{flag}", f"{name}={value}"
    if isinstance(value, bool):
        return (f"--{flag}",) if value else ()
    return f"--{flag}", str(value)


def _seed_words(seed: int | None) -> tuple[str, ...]:
    return () if seed is None else ("--seed", str(seed))
