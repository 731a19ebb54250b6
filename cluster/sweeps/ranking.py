"""Ranks the variants of each problem: medians over repetitions, intervals, and pairs by seed. Pure.

The interval of a median is that of the 95 % percentile bootstrap (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 13); for three to five runs it is the range from the lowest to the highest value.

A variant is compared with the best one of its problem by the ratios of the two runs of each repetition: their geometric
mean, and Student's 95 % interval of the mean of their logarithms, which holds for as few as two pairs if logarithms of
ratios are normal; a bootstrap of three values would find a difference between equal variants in one of four cases. If 1
is in the interval, the two cannot be told apart. Runs that failed, or that the host limited, are counted but not
ranked.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median, stdev

from cluster.sweeps.cells import Cell, Problem
from cluster.sweeps.figures import Figures

RESAMPLES, LEAST_RUNS, LEAST_PAIRS = 2000, 3, 2
TAIL = 0.025  # at each end
# Student's t at 0.975 for 1, 2, … degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2); for more the last value.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
BEST, SLOWER, SAME, FEW = "best", "slower", "cannot be told apart from the best", "too few runs"
MISSED, LIMITED, NO_RUN = "target not reached", "the host was the limit", "no run is done"

Interval = tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    """A cell that has run, and its figures; None if it failed."""

    cell: Cell
    figures: Figures | None


@dataclass(frozen=True)
class Line:
    """One variant on one problem.

    Attributes:
        runs: ranked runs.
        reached: ranked runs that reached the target; all if there is none.
        median_s: seconds to the target, or of training; None unless more than half of the runs reached it.
        interval_s: its interval; None for fewer than three runs, or if some did not reach the target.
        ratio: to the best variant, geometric mean over pairs; None for the best one, or without pairs.
        ratio_interval: its interval; None for fewer than two pairs.
        best: best value of a test, median over runs.
        carried_mbyte: carried by links, median over runs.
        communication_share: likewise.
        limited: runs that the host limited.
        failed: runs that failed.
        verdict: one of this module's verdicts.
    """

    problem: Problem
    variant: str
    runs: int
    reached: int
    median_s: float | None
    interval_s: Interval | None
    ratio: float | None
    ratio_interval: Interval | None
    best: float | None
    carried_mbyte: float | None
    communication_share: float | None
    limited: int
    failed: int
    verdict: str


def rank(outcomes: Sequence[Outcome]) -> list[Line]:
    """Return the ranking problem by problem, the best variant of each first."""
    problems = dict.fromkeys(outcome.cell.problem for outcome in outcomes)
    return [
        line
        for problem in problems
        for line in _rank_one(problem, [one for one in outcomes if one.cell.problem == problem])
    ]


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % bootstrap interval of the median of some values; None for fewer than three."""
    if len(values) < LEAST_RUNS:
        return None
    draw = random.Random(1)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(TAIL * RESAMPLES)], medians[math.ceil((1 - TAIL) * RESAMPLES) - 1]


def ratio_interval(ratios: Sequence[float]) -> Interval | None:
    """Return Student's 95 % interval of the geometric mean of some ratios; None for fewer than two."""
    if len(ratios) < LEAST_PAIRS:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    t = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    half = t * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


def run_seconds(figures: Figures) -> float:
    """Return the seconds that a run is ranked by; infinite if it did not reach its target."""
    if figures.target is not None:
        return math.inf if figures.reached_s is None else figures.reached_s
    found = figures.wall_s if figures.loop_s is None else figures.loop_s
    return math.inf if found is None else found


def _rank_one(problem: Problem, outcomes: Sequence[Outcome]) -> list[Line]:
    by_variant: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_variant.setdefault(outcome.cell.variant, []).append(outcome)
    seconds = {name: _ranked_seconds(own) for name, own in by_variant.items()}
    order = sorted(by_variant, key=lambda name: _middle(seconds[name]))
    first = order[0] if math.isfinite(_middle(seconds[order[0]])) else None
    return [_line(problem, name, by_variant[name], seconds, first) for name in order]


def _ranked_seconds(outcomes: Sequence[Outcome]) -> dict[tuple[int, int | None], float]:
    """Return the seconds of successful runs that the host did not limit, by repetition."""
    return {
        one.cell.repetition: run_seconds(one.figures)
        for one in outcomes
        if one.figures is not None and not one.figures.limits
    }


def _middle(seconds: Mapping[tuple[int, int | None], float]) -> float:
    return median(seconds.values()) if seconds else math.inf


def _line(
    problem: Problem,
    name: str,
    outcomes: Sequence[Outcome],
    seconds: Mapping[str, Mapping[tuple[int, int | None], float]],
    first: str | None,
) -> Line:
    own = seconds[name]
    known = [one.figures for one in outcomes if one.figures is not None]
    ranked = [one for one in known if not one.limits]
    reached = [value for value in own.values() if math.isfinite(value)]
    middle = _middle(own)
    ratios = _ratios(own, seconds[first]) if first not in (None, name) else []
    interval = ratio_interval(ratios)
    return Line(
        problem,
        name,
        len(ranked),
        len(reached),
        middle if math.isfinite(middle) else None,
        bootstrap_interval(reached) if len(reached) == len(own) else None,
        geometric_mean(ratios) if ratios else None,
        interval,
        _median_of([one.best for one in ranked]),
        _median_of([one.carried_mbyte for one in ranked]),
        _median_of([one.communication_share for one in ranked]),
        sum(1 for one in known if one.limits),
        len(outcomes) - len(known),
        _verdict(name == first, len(ranked), len(known), middle, interval),
    )


def _ratios(
    own: Mapping[tuple[int, int | None], float], best: Mapping[tuple[int, int | None], float]
) -> list[float]:
    """Return the ratio for each repetition in which both runs reached the target."""
    return [
        seconds / best[key]
        for key, seconds in own.items()
        if math.isfinite(seconds)
        and math.isfinite(best.get(key, math.inf))
        and min(seconds, best[key]) > 0
    ]


def _median_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _verdict(
    is_best: bool,
    ranked: int,
    known: int,
    middle: float,
    interval: Interval | None,
) -> str:
    if not ranked:
        return LIMITED if known else NO_RUN
    if not math.isfinite(middle):
        return MISSED
    if is_best:
        return BEST
    if interval is None:
        return FEW
    return SLOWER if interval[0] > 1 else SAME
