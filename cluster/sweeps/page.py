"""The report of a sweep: its ranking, a heat map, every run, and how to reproduce it. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from cluster.base.wording import counted, first_names, times_as_long
from cluster.reporting.charts.heat_map import HeatCell, heat_map_chart
from cluster.reporting.page import Page
from cluster.reporting.sections import Rows, Section, Table
from cluster.reporting.sentences import seconds_words
from cluster.reporting.values import word
from cluster.sweeps.cells import Problem
from cluster.sweeps.ranking import (
    BEST,
    FEW,
    LIMITED,
    MISSED,
    NO_RUN,
    PARTLY,
    QUICKER,
    SAME,
    SLOWER,
    UNKNOWN,
    Interval,
    Line,
    Outcome,
)

HEADER = [
    *("problem", "variant", "runs", "seconds", "bootstrap 95 %", "÷ best", "pairs 95 %"),
    *("best test", "carried MB", "communication", "host-limited", "failed", "verdict"),
]
MOST_NAMED = 3
MOST_NAME, MOST_COMMAND = 500, 2000  # characters
UNLIKE = {
    SAME: "not told apart from it",
    QUICKER: "quicker in their pairs with it",
    PARTLY: "not compared, as some pairs missed the target",
    MISSED: "short of the target",
    FEW: "not compared, for too few runs",
    LIMITED: "not ranked, as the host was the limit",
    UNKNOWN: "not ranked, as the seconds of training are unknown",
    NO_RUN: "without a run that is done",
}
"""Verdict on those that are not slower -> what a sentence calls them."""
CAPTION = (
    "Seconds, in the median over runs: to the target, or of training where there is none. The stronger its colour, "
    "the nearer to the best of its column."
)


def sweep_page(
    name: str,
    lines: Sequence[Line],
    outcomes: Sequence[Outcome],
    planned: int,
    folders: Sequence[str],
    command: str,
    rule: str = "",
) -> Page:
    """Return the report of a sweep.

    Args:
        name: the sweep.
        lines: its ranking.
        outcomes: its cells that have run.
        planned: number of its cells.
        folders: run folders, parallel to `outcomes`.
        command: reproduces the sweep.
        rule: a sentence on how trainings are tested, or ''.
    """
    lines = [_as_text(line) for line in lines]
    limited = [one.cell.name for one in outcomes if one.figures and one.figures.limits]
    notes = [f"the host was the limit, not ranked: {word(one, MOST_NAME)}" for one in limited]
    found = [_ranking(lines, rule), _runs(outcomes, folders), _again(command)]
    lead = f"{lead_words(lines)} {_progress(outcomes, planned)}".strip()
    return Page("report of a sweep", word(name), lead, (), found, notes)


def _as_text(line: Line) -> Line:
    """Return a line with names that can be written: names of files, and arguments, need not be text."""
    names = {key: word(value, MOST_NAME) for key, value in asdict(line.problem).items()}
    return replace(line, problem=Problem(**names), variant=word(line.variant, MOST_NAME))


def lead_words(lines: Sequence[Line]) -> str:
    """Return sentences on the best variant of each problem, and its lead."""
    return " ".join(_first_words(one, lines) for one in lines if one.verdict == BEST)


def problem_words(problem: Problem, lines: Sequence[Line]) -> str:
    """Return what distinguishes a problem from the sweep's others; its profile in any case."""
    others = [line.problem for line in lines]
    parts = [
        value
        for key in ("task", "profile", "topology", "wire")
        if (value := getattr(problem, key))
        and (key == "profile" or len({getattr(one, key) for one in others}) > 1)
    ]
    return ", ".join(parts)


def ranking_rows(lines: Sequence[Line]) -> Rows:
    """Return a row for each line; HEADER has the columns."""
    return [
        [
            *(problem_words(line.problem, lines), line.variant, line.runs),
            *(_rounded(line.median_s), _interval(line.interval_s)),
            *(_rounded(line.ratio), _interval(line.ratio_interval)),
            *(line.best, line.carried_mbyte, line.communication_share),
            *(line.limited, line.failed, _verdict(line)),
        ]
        for line in lines
    ]


def _first_words(line: Line, lines: Sequence[Line]) -> str:
    others = [one for one in lines if one.problem == line.problem and one is not line]
    where = problem_words(line.problem, lines)
    took = f"{seconds_words(line.median_s or 0.0)}{_reached(line)}"
    if not others:
        return f"On {where}: {line.variant}, {took}."
    if all(one.verdict == SAME for one in others):
        return f"On {where} {line.variant} was first, {took}; no other is told apart from it."
    slower = [one for one in others if one.verdict == SLOWER]
    last = max(slower, key=lambda one: one.ratio or 0.0, default=None)
    told = [f"{last.variant} took {times_as_long(last.ratio)}"] if last and last.ratio else []
    for verdict, words in UNLIKE.items():
        names = [one.variant for one in others if one.verdict == verdict]
        told += [f"{words}: {first_names(names, MOST_NAMED)}"] if names else []
    return f"On {where} {line.variant} was first, {took}; {'; '.join(told)}."


def _progress(outcomes: Sequence[Outcome], planned: int) -> str:
    if len(outcomes) == planned:
        return ""
    return f"{len(outcomes)} of {counted(planned, 'run')} have been made so far."


def _ranking(lines: Sequence[Line], rule: str) -> Section:
    best_s = {line.problem: line.median_s for line in lines if line.verdict == BEST}
    cells = [_heat_cell(line, best_s.get(line.problem), lines) for line in lines]
    chart = heat_map_chart(cells, CAPTION)
    sentence = (
        "A variant is compared with the best of its problem by the runs that have the same seeds; where 1 lies in the "
        "interval of their ratios (÷ best) the two cannot be told apart. All pairs of a problem together are within "
        "such intervals in 95 % of sweeps, whichever of them is the best. With one link seed, that is for its draw of "
        "links alone."
    )
    table = Table("ranking", HEADER, ranking_rows(lines), is_open=True)
    return Section(
        "ranking", "Ranking", f"{sentence} {rule}".rstrip(), [chart] if chart else [], [table]
    )


def _heat_cell(line: Line, best_s: float | None, lines: Sequence[Line]) -> HeatCell:
    seconds = line.median_s
    label = "–" if seconds is None else f"{seconds:.3g} s"
    share = best_s / seconds if best_s and seconds else None
    words = f"{label}, {_verdict(line)}"
    return HeatCell(line.variant, problem_words(line.problem, lines), label, share, words)


def _runs(outcomes: Sequence[Outcome], folders: Sequence[str]) -> Section:
    rows: Rows = []
    for one, folder in zip(outcomes, folders, strict=True):
        figures = one.figures
        values = (
            [
                *(_rounded(figures.reached_s), figures.reached_step, figures.best),
                *(_rounded(figures.loop_s), _rounded(figures.wall_s)),
            ]
            if figures
            else [None] * 5
        )
        ended = "failed" if figures is None else "host-limited" if figures.limits else "done"
        rows.append([word(one.cell.name, MOST_NAME), ended, *values, word(folder, MOST_NAME)])
    header = ["run", "ended", "to target s", "step", "best test", "loop s", "wall s", "folder"]
    sentence = f"{counted(len(rows), 'run')}, in the order in which they were made."
    return Section("runs", "Runs", sentence, (), [Table("runs", header, rows, is_open=True)])


def _again(command: str) -> Section:
    sentence = "What is done is not run again."
    return Section("reproduce", "How to reproduce", sentence, code=word(command, MOST_COMMAND))


def _verdict(line: Line) -> str:
    lost = f", {counted(line.unknown, 'run')} without seconds of training" if line.unknown else ""
    return f"{line.verdict}{_reached(line)}{lost}"


def _reached(line: Line) -> str:
    return f", reached by {line.reached} of {line.runs}" if line.reached < line.runs else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _interval(value: Interval | None) -> str:
    return "–" if value is None else f"{value[0]:.3g} to {value[1]:.3g}"
