"""Ranks the variants of each problem: by pairs of runs with the same seeds, with intervals. Pure.

Only the two runs of one repetition, with the same seeds, are compared: by medians over all runs, a variant whose runs
on hard seeds failed, or were limited by the host, would look quick. The best variant is the one that took less than
each other in the median of their pairs; the others follow by how much more they took. A run that missed the target took
longer than any that reached it.

Each variant is compared with the best by the ratios of their pairs: the geometric mean, and an interval of it, that of
Student of the mean of the logarithms, which holds for as few as two pairs if logarithms of ratios are normal. (A
bootstrap of three values would find a difference between equal variants in one of four cases.) Because the best is
chosen from the same runs, the intervals hold for all pairs of a problem's variants together: each of m pairs has an
interval of 1 - 0.05/m, by Bonferroni's inequality (Miller, Simultaneous Statistical Inference, 1981, chapter 2). So of
equal variants on one problem, at most 5 % of sweeps call any slower; each problem is a question of its own, whose
answer does not depend on what else is in the sweep. If 1 is in the interval, the two cannot be told apart. If a run of
a pair missed the target, the pairs that reached it are a selection, and there is no ratio.

Pairs over the same draw of links are not independent, as that draw may suit one of the two; nor are those of the same
seed. With several link seeds and several seeds, the mean of all logarithms scatters by the means of the link seeds and
by those of the seeds. Each has Student's interval, and the squares of their halves are added: the result holds at least
as often (Banerjee, Sankhya 22, 1960, for a sum of independent means). With one link seed the interval is about that
draw of links alone, and with one seed about that seed.

The interval of a median is that of the 95 % percentile bootstrap (Efron and Tibshirani, An Introduction to the
Bootstrap, chapter 13), of each variant alone; for three to five runs it is the range from the lowest to the highest
value. Runs that failed, or that the host limited, are counted but not ranked; nor is a run whose seconds of training
are unknown where others' are known: its wall seconds have startup and tests in them.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, median, stdev

from cluster.sweeps.cells import Cell, Problem
from cluster.sweeps.figures import Figures
from cluster.sweeps.student import student_t

RESAMPLES, LEAST_RUNS, LEAST_PAIRS = 2000, 3, 2
TAILS = 0.05  # of an interval, both together
LARGEST_LOG = 700.0  # of a float; two pairs of many variants say next to nothing
BEST, SLOWER, SAME, FEW = "best", "slower", "cannot be told apart from the best", "too few runs"
QUICKER = "quicker than the best in their pairs"  # possible if A beats B, B beats C, and C beats A
PARTLY, MISSED = "some pairs missed the target", "target not reached"
LIMITED, NO_RUN = "the host was the limit", "no run is done"
UNKNOWN = "its seconds of training are unknown"
BY_LINKS, BY_SEED = 0, 1  # the places of the link seed and of the seed in a repetition

Repetition = tuple[int, int | None]
Seconds = Mapping[Repetition, float]
"""Repetition -> the seconds of a variant's ranked run; infinite if it missed the target."""
Pairs = Mapping[Repetition, tuple[float, float]]
"""Repetition -> the seconds of two variants' runs."""
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
        median_s: seconds to the target, or of training; None unless more than half of the ranked runs reached it.
        interval_s: its interval; None for fewer than three runs, or if some did not reach the target.
        ratio: to the best variant, geometric mean over pairs; None for the best one, without pairs, or if a run missed
            the target.
        ratio_interval: its interval, which holds together with those of all other pairs; None for fewer than two pairs.
        best: best value of a test, median over runs.
        carried_mbyte: carried by links, median over runs.
        communication_share: likewise.
        limited: runs that the host limited.
        unknown: runs without seconds of training, where others have them.
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
    unknown: int
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
    tail = TAILS / 2
    return medians[int(tail * RESAMPLES)], medians[math.ceil((1 - tail) * RESAMPLES) - 1]


def ratio_interval(
    ratios: Mapping[Repetition, float],
    comparisons: int = 1,
    varied: Sequence[int] = (BY_SEED,),
) -> Interval | None:
    """Return the interval of the geometric mean of some ratios; None if something varied has fewer than two values.

    Args:
        ratios: of the pairs.
        comparisons: the number of such intervals that hold together in 95 % of cases.
        varied: what the problem's runs have several values of: BY_LINKS, BY_SEED.
    """
    logs = {repetition: math.log(ratio) for repetition, ratio in ratios.items()}
    groups = [_groups(logs, place) for place in varied]
    if not groups or min(map(len, groups)) < LEAST_PAIRS:
        return None
    middle = fmean(logs.values())
    half = math.hypot(*(_half(own, TAILS / comparisons) for own in groups))
    return math.exp(middle - half), math.exp(min(LARGEST_LOG, middle + half))


def _groups(logs: Mapping[Repetition, float], place: int) -> list[list[float]]:
    """Return the logarithms with the same link seed, or the same seed, together."""
    found: dict[int | None, list[float]] = {}
    for repetition, value in logs.items():
        found.setdefault(repetition[place], []).append(value)
    return list(found.values())


def _half(groups: Sequence[Sequence[float]], tails: float) -> float:
    """Return half of Student's interval of the mean of all values, which scatters by the means of the groups."""
    counts = [len(own) for own in groups]
    # For groups of one size, 1 / sqrt(their number).
    weights = math.hypot(*counts) / sum(counts)
    return student_t(tails, len(groups) - 1) * stdev(map(fmean, groups)) * weights


def run_seconds(figures: Figures) -> float:
    """Return the seconds that a run is ranked by; infinite if it did not reach its target, or took no time at all."""
    found = figures.wall_s if figures.loop_s is None else figures.loop_s
    if figures.target is not None:
        found = figures.reached_s
    return found if found is not None and found > 0 else math.inf


def _rank_one(problem: Problem, outcomes: Sequence[Outcome]) -> list[Line]:
    by_variant: dict[str, list[Outcome]] = {}
    for outcome in _alike(outcomes):
        by_variant.setdefault(outcome.cell.variant, []).append(outcome)
    seconds = {name: _ranked_seconds(own) for name, own in by_variant.items()}
    compared = {name: own for name, own in seconds.items() if math.isfinite(_middle(own))}
    others = [_line(problem, name, by_variant[name]) for name in seconds if name not in compared]
    if not compared:
        return others
    best, comparisons, varied = _best(compared), math.comb(len(compared), 2), _varied(compared)
    pairs = {name: _pairs(own, compared[best]) for name, own in compared.items() if name != best}
    rest = [
        _compared(_line(problem, name, by_variant[name]), pairs[name], comparisons, varied)
        for name in _order(pairs)
    ]
    return [replace(_line(problem, best, by_variant[best]), verdict=BEST), *rest, *others]


def _alike(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes that can be compared: without wall seconds if a run has seconds of training."""
    has_loop = any(one.figures and one.figures.loop_s is not None for one in outcomes)
    return [
        replace(one, figures=replace(one.figures, wall_s=None)) if has_loop and one.figures else one
        for one in outcomes
    ]


def _varied(compared: Mapping[str, Seconds]) -> list[int]:
    """Return of what the runs have several values: BY_LINKS, BY_SEED."""
    repetitions = [repetition for own in compared.values() for repetition in own]
    return [place for place in (BY_LINKS, BY_SEED) if len({one[place] for one in repetitions}) > 1]


def _best(compared: Mapping[str, Seconds]) -> str:
    """Return the variant that took less than each other in the median of their pairs.

    If none did, because some beat one another in a circle, return one of these.
    """
    by_median = sorted(compared, key=lambda name: _middle(compared[name]))
    best = by_median[0]
    for name in by_median[1:]:
        if _lag(_pairs(compared[name], compared[best])) < 0:
            best = name
    return best


def _order(pairs: Mapping[str, Pairs]) -> list[str]:
    """Return variants by how much longer than the best they took; those without pairs come last."""
    return sorted(pairs, key=lambda name: _lag(pairs[name]) if pairs[name] else math.inf)


def _lag(pairs: Pairs) -> float:
    """Return the median of the logarithms of ratios; 0 without pairs."""
    logs = [0.0 if own == best else math.log(own) - math.log(best) for own, best in pairs.values()]
    middle = median(logs) if logs else 0.0
    return 0.0 if math.isnan(middle) else middle  # half way between infinities


def _ranked_seconds(outcomes: Sequence[Outcome]) -> dict[Repetition, float]:
    """Return the seconds of successful runs that the host did not limit, by repetition."""
    return {
        one.cell.repetition: run_seconds(one.figures)
        for one in outcomes
        if one.figures is not None and _is_ranked(one.figures)
    }


def _is_ranked(figures: Figures) -> bool:
    return not figures.limits and _has_seconds(figures)


def _has_seconds(figures: Figures) -> bool:
    """Return whether it is known how long a run took; one that missed its target took too long."""
    return figures.target is not None or not (figures.loop_s is None and figures.wall_s is None)


def _middle(seconds: Seconds) -> float:
    return median(seconds.values()) if seconds else math.inf


def _pairs(own: Seconds, other: Seconds) -> Pairs:
    return {
        repetition: (s, other[repetition]) for repetition, s in own.items() if repetition in other
    }


def _line(problem: Problem, name: str, outcomes: Sequence[Outcome]) -> Line:
    """Return the line of a variant that is not compared with others."""
    own = _ranked_seconds(outcomes)
    known = [one.figures for one in outcomes if one.figures is not None]
    ranked = [one for one in known if _is_ranked(one)]
    limited = sum(1 for one in known if one.limits)
    reached = [value for value in own.values() if math.isfinite(value)]
    middle = _middle(own)
    return Line(
        problem,
        name,
        len(ranked),
        len(reached),
        middle if math.isfinite(middle) else None,
        bootstrap_interval(reached) if len(reached) == len(own) else None,
        None,
        None,
        _median_of([one.best for one in ranked]),
        _median_of([one.carried_mbyte for one in ranked]),
        _median_of([one.communication_share for one in ranked]),
        limited,
        len(known) - len(ranked) - limited,
        len(outcomes) - len(known),
        MISSED if ranked else LIMITED if limited else UNKNOWN if known else NO_RUN,
    )


def _compared(line: Line, pairs: Pairs, comparisons: int, varied: Sequence[int]) -> Line:
    """Return a line with what the variant's pairs with the best say; arguments as of `ratio_interval`."""
    if any(math.isinf(seconds) for pair in pairs.values() for seconds in pair):
        return replace(line, verdict=PARTLY)
    ratios = {repetition: own / best for repetition, (own, best) in pairs.items()}
    interval = ratio_interval(ratios, comparisons, varied)
    return replace(
        line,
        ratio=geometric_mean(ratios.values()) if ratios else None,
        ratio_interval=interval,
        verdict=_verdict(interval),
    )


def _median_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _verdict(interval: Interval | None) -> str:
    """Return the verdict on a variant that is compared with the best, by the interval of their ratio."""
    if interval is None:
        return FEW
    if interval[1] < 1:
        return QUICKER
    return SLOWER if interval[0] > 1 else SAME
