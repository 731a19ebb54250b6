"""Charts of several runs: overlaid loss curves, attributions as bars."""

from collections.abc import Sequence

from cluster.reporting.charts.learning import AXES, Clock, loss_rows
from cluster.reporting.charts.theme import (
    LINE_LEGEND,
    NARROW_PX,
    RUN_KINDS,
    SCHEMA,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    frame,
    quantitative,
    row_px,
    spec,
)
from cluster.reporting.run_data import RunData

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


def run_labels(runs: Sequence[RunData]) -> list[str]:
    """Return the runs' names, numbered if two are the same."""
    names = [run.name for run in runs]
    return [f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def losses_chart(runs: Sequence[RunData]) -> Chart | None:
    """Return the loss curves; None if no run recorded its loss twice."""
    rows: Rows = []
    labels = run_labels(runs)
    for label, run in zip(labels, runs, strict=True):
        points = loss_rows(run.steps, Clock(run))
        rows += [{**point, "run": label} for point in points] if len(points) > 1 else []
    if not rows:
        return None
    axes = [axis for axis in AXES_COMPARED if any(row.get(axis) for row in rows)]
    panels = [_panel(axis, labels, (WIDE_PX - 130) // len(axes)) for axis in axes]
    narrow = [_panel(axis, labels, NARROW_PX - 62) for axis in axes]
    top: Spec = {"$schema": SCHEMA, **frame(), "autosize": {"type": "pad"}, "spacing": 24}
    caption = (
        "A line a run: the mean over its ranks; of a long run, also over some steps at a time."
    )
    return Chart(
        "losses", caption, top | {"hconcat": panels}, top | {"vconcat": narrow}, {"losses": rows}
    )


def _panel(axis: str, labels: list[str], width_px: int) -> Spec:
    colours = [colour(RUN_KINDS[i % len(RUN_KINDS)]) for i in range(len(labels))]
    dashes = [DASHES[i // len(RUN_KINDS) % len(DASHES)] for i in range(len(labels))]
    legend = LINE_LEGEND | {"columns": 1, "labelLimit": 300}
    return {
        "width": width_px,
        "height": 180,
        "data": {"name": "losses"},
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": quantitative(axis, AXES[axis]) | {"axis": {"tickCount": 5}},
            "y": quantitative("value", "loss")
            | {"scale": {"zero": False}, "axis": {"tickCount": 4}},
            "color": {
                "field": "run",
                "scale": {"domain": labels, "range": colours},
                "legend": legend,
            },
            "strokeDash": {
                "field": "run",
                "scale": {"domain": labels, "range": dashes},
                "legend": legend,
            },
            "tooltip": [{"field": "run"}, {"field": axis}, {"field": "value", "format": ".4f"}],
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
