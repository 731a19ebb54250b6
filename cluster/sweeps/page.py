"""The report of a sweep: its ranking, a heat map, every run, and how to reproduce it. Pure."""

from collections.abc import Sequence

from cluster.reporting.charts.heat_map import HeatCell, heat_map_chart
from cluster.reporting.page import Page
from cluster.reporting.sections import Rows, Section, Table
from cluster.reporting.sentences import counted, seconds_words
from cluster.sweeps.cells import Problem
from cluster.sweeps.ranking import BEST, SLOWER, Interval, Line, Outcome

HEADER = [
    *("problem", "variant", "runs", "seconds", "bootstrap 95 %", "÷ best", "pairs 95 %"),
    *("best test", "carried MB", "communication", "host-limited", "failed", "verdict"),
]
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
    limited = [one.cell.name for one in outcomes if one.figures and one.figures.limits]
    notes = [f"the host was the limit, not ranked: {one}" for one in limited]
    found = [_ranking(lines, rule), _runs(outcomes, folders), _again(command)]
    lead = f"{lead_words(lines)} {_progress(outcomes, planned)}".strip()
    return Page("report of a sweep", name, lead, (), found, notes)


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
    slower = [one for one in others if one.verdict == SLOWER and one.ratio]
    where = problem_words(line.problem, lines)
    took = seconds_words(line.median_s or 0.0)
    if not others:
        return f"On {where}: {line.variant}, {took}."
    if not slower:
        return f"On {where} {line.variant} had the lowest median, {took}; no other is told apart from it."
    last = max(slower, key=lambda one: one.ratio or 0.0)
    return f"On {where} {line.variant} was first, {took}; {last.variant} took {last.ratio:.1f} times as long."


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
        "interval of their ratios (÷ best) the two cannot be told apart."
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
            [figures.reached_s, figures.reached_step, figures.best, figures.loop_s, figures.wall_s]
            if figures
            else [None] * 5
        )
        ended = "failed" if figures is None else "host-limited" if figures.limits else "done"
        rows.append([one.cell.name, ended, *values, folder])
    header = ["run", "ended", "to target s", "step", "best test", "loop s", "wall s", "folder"]
    sentence = f"{counted(len(rows), 'run')}, in the order in which they were made."
    return Section("runs", "Runs", sentence, (), [Table("runs", header, rows, is_open=True)])


def _again(command: str) -> Section:
    sentence = "What is done is not run again."
    return Section("reproduce", "How to reproduce", sentence, code=command)


def _verdict(line: Line) -> str:
    missed = f", reached by {line.reached} of {line.runs}" if line.reached < line.runs else ""
    return f"{line.verdict}{missed}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _interval(value: Interval | None) -> str:
    return "–" if value is None else f"{value[0]:.3g} to {value[1]:.3g}"
