"""Charts of several runs: overlaid curves of tests and losses, attributions as bars."""

from collections.abc import Callable, Sequence

from cluster.reporting.charts.learning import (
    AXES,
    MOST_POINTS,
    Clock,
    chosen_test,
    loss_rows,
)
from cluster.reporting.charts.theme import (
    LINE_LEGEND,
    NARROW_PX,
    RUN_KINDS,
    SCHEMA,
    WIDE_PX,
    Chart,
    Row,
    Rows,
    Spec,
    colour,
    frame,
    quantitative,
    row_px,
    spec,
)
from cluster.reporting.differences import series_of
from cluster.reporting.run_data import RunData
from cluster.reporting.values import number

DASHES = ([1, 0], [6, 3], [2, 2])
PART_COLOURS = {
    "skew": "waiting",
    "distance": "compute",
    "bytes": "transfer",
    "sharing": "rollout",
    "algorithm": "eval",
    "window": "checkpoint",
}
AXES_COMPARED = ("step", "at_s", "sent_mb")
MANY_TIMES = 10.0
SERIES = "A line a run; runs that differ only in their seed have the same colour."


def run_labels(runs: Sequence[RunData]) -> list[str]:
    """Return the runs' names, numbered if two are the same."""
    names = [run.name for run in runs]
    return [f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def losses_chart(runs: Sequence[RunData]) -> Chart | None:
    """Return the loss curves; None if no run recorded its loss twice."""
    caption = f"{SERIES} Means over ranks; of a long run, also over some steps at a time."
    return _curves("losses", "loss", caption, runs, lambda run: loss_rows(run.steps, Clock(run)))


def tests_chart(runs: Sequence[RunData]) -> Chart | None:
    """Return the curves of the most important test that a run made twice; None if none did."""
    name = chosen_test(*(run.measures for run in runs))
    if name is None:
        return None

    def rows(run: RunData) -> Rows:
        return Clock(run).rows(run.measures, name, MOST_POINTS)

    return _curves("tests", name.replace("_", " "), SERIES, runs, rows)


def _curves(
    name: str,
    title: str,
    caption: str,
    runs: Sequence[RunData],
    rows_of: Callable[[RunData], Rows],
) -> Chart | None:
    """Return a line for each run that has two points, against all that it cost."""
    labels, rows = run_labels(runs), list[Row]()
    series = series_of(runs, labels)
    for label, one, run in zip(labels, series, runs, strict=True):
        points = rows_of(run)
        rows += [{**p, "run": label, "series": one} for p in points] if len(points) > 1 else []
    if not rows:
        return None
    axes = [axis for axis in AXES_COMPARED if any(row.get(axis) for row in rows)]
    shown = list(dict.fromkeys(str(row["series"]) for row in rows))
    across = {axis: quantitative(axis, AXES[axis]) | _scale(axis, rows) for axis in axes}
    px = (WIDE_PX - 130) // len(axes)
    panels = [_panel(name, x, title, shown, px) for x in across.values()]
    narrow = [_panel(name, x, title, shown, NARROW_PX - 62) for x in across.values()]
    top: Spec = {"$schema": SCHEMA, **frame(), "autosize": {"type": "pad"}, "spacing": 24}
    return Chart(name, caption, top | {"hconcat": panels}, top | {"vconcat": narrow}, {name: rows})


def _scale(axis: str, rows: Rows) -> Spec:
    """Return the scale of an axis: logarithmic for bytes if some runs sent many times as much as others."""
    most: dict[object, float] = {}
    for row in (row for row in rows if axis == "sent_mb" and axis in row):
        most[row["run"]] = max(most.get(row["run"], 0.0), number(row[axis]) or 0.0)
    if not most or max(most.values()) < MANY_TIMES * min(most.values()):
        return {"axis": {"tickCount": 5}}
    ticks = [0, *(10**power for power in range(7))]
    return {"scale": {"type": "symlog"}, "axis": {"values": ticks, "format": ",d"}}


def _panel(name: str, x: Spec, title: str, series: list[str], width_px: int) -> Spec:
    colours = [colour(RUN_KINDS[i % len(RUN_KINDS)]) for i in range(len(series))]
    dashes = [DASHES[i // len(RUN_KINDS) % len(DASHES)] for i in range(len(series))]
    legend = LINE_LEGEND | {"columns": 1, "labelLimit": 300}
    figure = {"field": "value", "format": ".4f", "title": title}
    return {
        "width": width_px,
        "height": 180,
        "data": {"name": name},
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": x,
            "y": quantitative("value", title)
            | {"scale": {"zero": False}, "axis": {"tickCount": 4}},
            "color": {
                "field": "series",
                "scale": {"domain": series, "range": colours},
                "legend": legend,
            },
            "strokeDash": {
                "field": "series",
                "scale": {"domain": series, "range": dashes},
                "legend": legend,
            },
            "detail": {"field": "run"},
            "tooltip": [{"field": "series"}, {"field": "run"}, {"field": x["field"]}, figure],
        },
    }


def attributions_chart(runs: Sequence[RunData]) -> Chart | None:
    """Return the attributions as bars; None if no run has one."""
    known = [
        (label, run.attribution)
        for label, run in zip(run_labels(runs), runs, strict=True)
        if run.attribution
    ]
    if not known:
        return None
    parts = list(dict.fromkeys(part for _, one in known for part in one.seconds))
    rows: Rows = [
        {"run": label, "part": part, "order": parts.index(part), "seconds": round(value, 3)}
        for label, one in known
        for part, value in one.seconds.items()
    ]
    caption = "Left of zero: less time than the model predicts."
    wide, narrow = (_bars(px, [label for label, _ in known], parts) for px in (WIDE_PX, NARROW_PX))
    return Chart("attributions", caption, wide, narrow, {"parts": rows})


def _bars(width_px: int, labels: list[str], parts: list[str]) -> Spec:
    colours = [colour(PART_COLOURS.get(part, "muted")) for part in parts]
    y: Spec = {"field": "run", "type": "nominal", "sort": labels, "title": None}
    legend = {"columns": 4} if width_px == NARROW_PX else {}
    return spec(width_px) | {
        "height": row_px(len(labels)) * len(labels),
        "data": {"name": "parts"},
        "mark": {"type": "bar"},
        "encoding": {
            "y": y | {"axis": {"labelLimit": 260 if width_px == WIDE_PX else 120}},
            "x": quantitative("seconds", "seconds") | {"stack": "zero"},
            "color": {
                "field": "part",
                "scale": {"domain": parts, "range": colours},
                "legend": legend,
            },
            "order": {"field": "order"},
            "tooltip": [{"field": "run"}, {"field": "part"}, {"field": "seconds"}],
        },
    }
