"""Several runs on one page: a table, their attributions, and their overlaid curves of tests and losses. Pure."""

from collections.abc import Sequence

from cluster.base.wording import counted, times_as_long
from cluster.reporting.charts.compare import (
    attributions_chart,
    losses_chart,
    run_labels,
    tests_chart,
)
from cluster.reporting.differences import differences
from cluster.reporting.notes import first_shown
from cluster.reporting.page import Page
from cluster.reporting.run_data import RunData
from cluster.reporting.sections import Rows, Section, Table
from cluster.reporting.sentences import (
    TEST_DIGITS,
    bytes_words,
    seconds_words,
    tested_words,
)

MOST_RUNS = 50


def comparison_page(runs: Sequence[RunData]) -> Page:
    """Return a page that shows the runs side by side."""
    shown = runs[:MOST_RUNS]
    notes = [f"{run.name}: {note}" for run in shown for note in run.notes]
    notes += first_shown("runs", len(runs), MOST_RUNS)
    found = [_table(shown), *_tests(shown), *_losses(shown), *_attributions(shown)]
    found.append(_commands(shown))
    return Page("comparison of runs", counted(len(shown), "run"), _lead(shown), (), found, notes)


def _lead(runs: Sequence[RunData]) -> str:
    done = [run for run in runs if run.status == "done" and run.wall_s is not None]
    failed = (
        counted(len(runs) - len(done), "run") + " of them did not come to a good end. "
        if len(done) < len(runs)
        else ""
    )
    if len(done) < 2:
        return f"{failed}Too few came to their end to be compared."
    fastest, slowest = (f(done, key=lambda run: run.wall_s or 0.0) for f in (min, max))
    times = times_as_long((slowest.wall_s or 0.0) / max(1e-9, fastest.wall_s or 0.0))
    return (
        f"{failed}{fastest.name} was the fastest, {seconds_words(fastest.wall_s or 0.0)}; "
        f"{slowest.name} took {times}."
    )


def _table(runs: Sequence[RunData]) -> Section:
    names = [name for name in TEST_DIGITS if any(name in run.tested for run in runs)]
    differ = differences(runs)
    header = [
        "run",
        *(["differs in"] if any(differ) else []),
        "ended",
        "links",
        "host",
        "wall s",
        "steps",
    ]
    header += [
        *(name.replace("_", " ") for name in names),
        "final loss",
        "carried MB",
        "collectives s",
        "what",
    ]
    rows: Rows = [
        [label, *([words] if any(differ) else [])]
        + [run.status, run.proof.words, _host(run), run.wall_s, run.steps_done]
        + [
            *(run.tested.get(name) for name in names),
            run.final_loss,
            _mb(run),
            _transfer_s(run),
            run.title,
        ]
        for label, words, run in zip(run_labels(runs), differ, runs, strict=True)
    ]
    limited = [run.name for run in runs if run.limits]
    warning = (
        f" The host was the limit of {', '.join(limited)}: their seconds say little of links."
        if limited
        else ""
    )
    best = [f"{run.name}: {tested_words(run)}{_carried(run)}" for run in runs if tested_words(run)]
    sentence = (
        f"{'; '.join(best[:3])}{' …' if len(best) > 3 else ''}."
        if best
        else "No run was tested at its end."
    )
    return Section(
        "runs", "Runs", sentence + warning, (), [Table("runs", header, rows, is_open=True)]
    )


def _host(run: RunData) -> str:
    return (
        "nobody knows" if run.limits is None else "was the limit" if run.limits else "not the limit"
    )


def _carried(run: RunData) -> str:
    return "" if run.bytes.total is None else f", {bytes_words(run.bytes.total)}"


def _mb(run: RunData) -> float | None:
    return None if run.bytes.total is None else round(run.bytes.total / 1e6, 1)


def _transfer_s(run: RunData) -> float | None:
    if run.attribution is None:
        return None
    return round(sum(s for part, s in run.attribution.seconds.items() if part != "skew"), 2)


def _tests(runs: Sequence[RunData]) -> list[Section]:
    chart = tests_chart(runs)
    sentence = "What tests during the runs gave, against what it cost."
    return [Section("tests", "Tests", sentence, [chart])] if chart else []


def _losses(runs: Sequence[RunData]) -> list[Section]:
    chart = losses_chart(runs)
    sentence = "Mean loss over ranks, against what it cost."
    return [Section("losses", "Loss", sentence, [chart])] if chart else []


def _attributions(runs: Sequence[RunData]) -> list[Section]:
    chart = attributions_chart(runs)
    if chart is None:
        return []
    parts = list(
        dict.fromkeys(part for run in runs if run.attribution for part in run.attribution.seconds)
    )
    rows: Rows = [
        [label, *(round(run.attribution.seconds.get(part, 0.0), 3) for part in parts)]
        for label, run in zip(run_labels(runs), runs, strict=True)
        if run.attribution
    ]
    table = Table("attribution", ["run", *(f"{part} s" for part in parts)], rows)
    sentence = "Where the time of collectives went, run by run, in seconds of all collectives one after the other."
    return [Section("attribution", "Collectives", sentence, [chart], [table])]


def _commands(runs: Sequence[RunData]) -> Section:
    rows: Rows = [
        [label, run.command or "not known"]
        for label, run in zip(run_labels(runs), runs, strict=True)
    ]
    return Section(
        "reproduce",
        "How to reproduce",
        "The commands that made these runs.",
        (),
        [Table("facts", ["", ""], rows, is_open=True)],
    )
