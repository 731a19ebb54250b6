"""The content of a report, in order: sections of a sentence, charts, tables and logs. Pure: knows no files.

Any RunData, from a folder or of a run in progress, gives the same sections.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.reporting import sentences
from cluster.reporting.charts.attribution import MEANINGS, attribution_chart
from cluster.reporting.charts.critical_link import critical_link, critical_link_chart
from cluster.reporting.charts.critical_path import path_chart
from cluster.reporting.charts.helped import change_words, helped_chart, tried_words
from cluster.reporting.charts.learning import learning_chart, staleness_chart
from cluster.reporting.charts.links import matrix_chart, topology_chart
from cluster.reporting.charts.seconds import BUCKETS, seconds_chart, seconds_rows
from cluster.reporting.charts.theme import Chart
from cluster.reporting.charts.timeline import timeline_chart
from cluster.reporting.run_data import RunData, Tail, exit_word

MOST_TABLE_ROWS = 200
Cell = str | int | float | None
Rows = list[list[Cell]]


@dataclass(frozen=True)
class Table:
    """Rows of figures and words; an unknown figure is None.

    Attributes:
        is_open: whether it is shown at once, not only on request.
    """

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    is_open: bool = False

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        """The rows that pages to read show; report.csv has all."""
        return self.rows[:MOST_TABLE_ROWS]

    @property
    def cut_note(self) -> str:
        """Says that not all rows are shown; '' if they are."""
        if len(self.rows) <= MOST_TABLE_ROWS:
            return ""
        return f"The first {MOST_TABLE_ROWS} of {len(self.rows):,} rows; the .csv file beside this one has all."


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        key: unique on the page.
        sentence: a summary that is sufficient by itself.
        code: a command to copy; '' if there is none.
    """

    key: str
    title: str
    sentence: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    tails: Sequence[Tail] = ()
    code: str = ""


def sections(run: RunData) -> list[Section]:
    """Return all sections that have content; the failure comes first if no rank has counted its seconds."""
    found = [
        _seconds(run),
        *_causes(run),
        *_helped(run),
        *_attribution(run),
        *_timeline(run),
        *_critical_link(run),
        _links(run),
        *_learning(run),
        *_experience(run),
        *_collectives(run),
        *_host(run),
        _reproduce(run),
    ]
    failed = _failed(run)
    return [*failed, *found] if not any(rank.seconds for rank in run.ranks) else [*found, *failed]


def _charts(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _seconds(run: RunData) -> Section:
    pieces = seconds_rows(run)
    known = {row["bucket"] for row in pieces}
    buckets = [bucket for bucket in BUCKETS if bucket in known]
    by_rank: dict[str, dict[str, float]] = {}
    for row in pieces:
        by_rank.setdefault(row["rank"], {})[row["bucket"]] = row["seconds"]
    header = ["rank", "exit", "restarts", *(f"{bucket} s" for bucket in buckets), "total s"]
    rows: Rows = [
        [
            r.name,
            exit_word(r.exit_code),
            r.restarts,
            *(by_rank.get(r.name, {}).get(b, 0.0) for b in buckets),
        ]
        + [round(r.total_s, 3) if r.seconds else None]
        for r in run.ranks
    ]
    table = Table("ranks", header, rows, is_open=not buckets and bool(rows))
    sentence = f"{sentences.where_time_went(run)} {sentences.path_words(run)}".strip()
    charts, tables = _charts(seconds_chart(run), path_chart(run)), [table, *_path(run)]
    return Section("seconds", "Where the time went", sentence, charts, tables)


def _causes(run: RunData) -> list[Section]:
    if not run.causes:
        return []
    rows: Rows = [[one.words, round(one.seconds, 3)] for one in run.causes]
    table = Table("causes", ["cause", "cost s"], rows, is_open=len(rows) > 1)
    return [Section("causes", "What slowed it down", sentences.slowed_by(run), [], [table])]


def _helped(run: RunData) -> list[Section]:
    if not run.what_if and run.attribution is None:
        return []
    rows: Rows = [
        [change_words(one), round(one.saves_s, 3), tried_words(one)] for one in run.what_if
    ]
    table = Table("what_if", ["change", "saves s, predicted", "tried"], rows)
    words = sentences.would_have_helped(run)
    charts, tables = _charts(helped_chart(run)), [table] if rows else []
    return [Section("helped", "What would have helped", words, charts, tables)]


def _path(run: RunData) -> list[Table]:
    """Return the critical path by rank and link, and by activity; not cut to what a chart has room for."""
    if run.path is None:
        return []
    whole, order = run.path.wall_s, list(run.path.by_who())
    parts = sorted(run.path.parts, key=lambda one: (order.index(one.who), -one.seconds))
    rows: Rows = [
        [one.who, one.kind, round(one.seconds, 3), round(100 * one.seconds / whole, 1)]
        for one in parts
    ]
    unknown_s = run.path.not_known_s
    rows += [["not known", "", round(unknown_s, 3), round(100 * unknown_s / whole, 1)]]
    return [Table("critical_path", ["rank or link", "of", "seconds", "%"], rows)]


def _attribution(run: RunData) -> list[Section]:
    if run.attribution is None:
        return []
    parts = list(run.attribution.seconds)
    whole: list[Cell] = ["all", "", None, *(round(run.attribution.seconds[p], 3) for p in parts)]
    rows: Rows = [whole] + [
        [row.kind, row.purpose, row.size_bytes, *(round(seconds.get(p, 0.0), 3) for p in parts)]
        for row, seconds in run.attribution.rows
    ]
    table = Table("attribution", ["kind", "for", "bytes", *(f"{p} s" for p in parts)], rows)
    meaning: Rows = [[part, MEANINGS.get(part, "")] for part in parts]
    legend = Table("parts", ["part", "meaning"], meaning)
    sentence = sentences.attributed(run.attribution)
    charts = [attribution_chart(run.attribution)]
    return [
        Section("attribution", "What collectives waited for", sentence, charts, [table, legend])
    ]


def _timeline(run: RunData) -> list[Section]:
    charts = _charts(timeline_chart(run))
    if not charts and not run.events:
        return []
    rows: Rows = [[round(one.at_s, 3), one.what] for one in run.events]
    tables = [Table("events", ["after s", "the schedule"], rows, is_open=True)] if rows else []
    return [Section("timeline", "Timeline", sentences.timeline_words(run), charts, tables)]


def _critical_link(run: RunData) -> list[Section]:
    name, charts = critical_link(run), _charts(critical_link_chart(run))
    if not charts:
        return []
    words = sentences.critical_link_words(run, name)
    return [Section("critical_link", f"The critical link: {name}", words, charts)]


def _links(run: RunData) -> Section:
    header = ["link", "verdict", "rate MB/s", "delay ms", "jitter ms", "loss %"]
    header += ["goodput MB/s", "asked", "RTT ms", "asked", "carried bytes"]
    rows: Rows = [
        [link.name, link.verdict or "not measured", link.asked_mbyte_s, link.delay_ms]
        + [link.jitter_ms, link.loss_pct, link.goodput_mbyte_s, link.expected_goodput_mbyte_s]
        + [link.rtt_ms, link.expected_rtt_ms, link.carried_bytes]
        for link in run.links
    ]
    tables = [Table("links", header, rows)] if rows else []
    charts = _charts(matrix_chart(run), topology_chart(run))
    return Section("links", "Links", sentences.links_words(run), charts, tables)


def _learning(run: RunData) -> list[Section]:
    charts = _charts(learning_chart(run))
    if not charts and not run.tested:
        return []
    rows: Rows = [[name.replace("_", " "), value] for name, value in run.tested.items()]
    rows += [["training loss, rank 0", run.final_loss]] if run.final_loss is not None else []
    table = Table("tested", ["at the end", "value"], rows)
    return [
        Section(
            "learning",
            "What was learnt",
            sentences.learning_words(run),
            charts,
            [table] if rows else [],
        )
    ]


def _experience(run: RunData) -> list[Section]:
    if run.experience is None:
        return []
    columns = (
        "pieces",
        "steps",
        "lives",
        "connections",
        "weights_age_s",
        "predicted_weights_age_s",
    )
    rows: Rows = [
        [name, *(actor.get(c) for c in columns)] for name, actor in run.experience.actors.items()
    ]
    header = ["actor", *(column.replace("_s", " s").replace("_", " ") for column in columns)]
    table = Table("actors", header, rows, is_open=True)
    sentence = sentences.experience_words(run)
    return [Section("experience", "Experience", sentence, _charts(staleness_chart(run)), [table])]


def _collectives(run: RunData) -> list[Section]:
    if not run.collectives:
        return []
    header = ["collective", "for", "bytes", "count", "mean s"]
    header += ["gloo at best s", "mean ÷ gloo at best", "links at best s"]
    rows: Rows = [
        [
            *(row.kind, row.purpose, row.size_bytes, row.count, row.seconds),
            *(row.gloo_bound_s, row.ratio, row.links_bound_s),
        ]
        for row in run.collectives
    ]
    unbounded = sum(row.unbounded for row in run.collectives)
    bound = f" {sentences.bounds_words(run.bounds, unbounded)}" if run.bounds else ""
    sentence = sentences.collectives_words(run.collectives) + bound
    table = Table("collectives", header, rows, is_open=True)
    return [Section("collectives", "Collectives", sentence, (), [table])]


def _host(run: RunData) -> list[Section]:
    if not run.limits:
        return []
    sentence = f"This machine, and not the links, was the limit: {'; '.join(run.limits)}."
    return [Section("host", "The host", sentence)]


def _reproduce(run: RunData) -> Section:
    known = (
        "This command makes the same links and starts the same program again."
        if run.command
        else ""
    )
    rows = [[name, value] for name, value in run.facts.items()]
    tables = [Table("facts", ["", ""], rows, is_open=True)] if rows else []
    sentence = known or "The folder does not say which command made this run."
    return Section("reproduce", "How to reproduce", sentence, (), tables, code=run.command)


def _failed(run: RunData) -> list[Section]:
    if run.status == "done" or not run.tails:
        return []
    return [Section("failed", "What failed", sentences.failed_words(run), tails=run.tails)]
