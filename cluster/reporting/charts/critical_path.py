"""The critical path: seconds by rank and by link, one bar each, one piece per activity."""

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    quantitative,
    row_px,
    spec,
)
from cluster.reporting.run_data import CriticalPath, RunData

MOST_ROWS = 12
OTHERS, NOT_KNOWN = "others", "not known"
# Activities of ranks, then components of carrying; each with its colour.
KINDS = {
    "startup": "startup",
    "data": "data",
    "rollout": "rollout",
    "compute": "compute",
    "strategy": "strategy",
    "eval": "eval",
    "checkpoint": "checkpoint",
    "other": "other",
    "bytes": "transfer",
    "delay": "waiting",
    "window": "muted",
    NOT_KNOWN: "line",
}
LEAST_SHARE = 0.002  # of the path; less is not visible


def path_rows(path: CriticalPath) -> Rows:
    """Return rows {"who", "kind", "order", "seconds"}: the largest first, then all others, then what is not known."""
    names = list(path.by_who())
    shown = names if len(names) <= MOST_ROWS else names[: MOST_ROWS - 1]
    sums: dict[tuple[str, str], float] = {}
    for part in path.parts:
        who = part.who if part.who in shown else OTHERS
        key = who, part.kind if part.kind in KINDS else "other"
        sums[key] = sums.get(key, 0.0) + part.seconds
    if path.not_known_s:
        sums[NOT_KNOWN, NOT_KNOWN] = path.not_known_s
    order = [*shown, OTHERS, NOT_KNOWN]
    return [
        {"who": who, "kind": kind, "order": list(KINDS).index(kind), "seconds": round(s, 3)}
        for (who, kind), s in sorted(sums.items(), key=lambda item: order.index(item[0][0]))
        if s > LEAST_SHARE * path.wall_s
    ]


def path_chart(run: RunData) -> Chart | None:
    """Return the chart; None if the run has no critical path."""
    if run.path is None:
        return None
    rows = path_rows(run.path)
    caption = (
        "The critical path: the chain of computing and carrying that made the run as long as it was, from the first "
        "rank's start to the last one's end; starting up is not in it. All bars together are its length. Of a link: "
        "bytes by its rate, delay, and TCP's window, small after a pause."
    )
    wide, narrow = (_spec(px, rows) for px in (WIDE_PX, NARROW_PX))
    return Chart("critical_path", caption, wide, narrow, {"path": rows})


def _spec(width_px: int, rows: Rows) -> Spec:
    names = list(dict.fromkeys(row["who"] for row in rows))
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    scale = {"domain": kinds, "range": [colour(KINDS[kind]) for kind in kinds]}
    axis: Spec = {"labelLimit": 140, "grid": False}
    height = row_px(len(names))
    return spec(width_px) | {
        "height": height * len(names),
        "data": {"name": "path"},
        "mark": {"type": "bar", "height": {"band": 0.72}},
        "encoding": {
            "y": {"field": "who", "type": "nominal", "sort": names, "title": None, "axis": axis},
            "x": quantitative("seconds", "seconds of the critical path") | {"stack": "zero"},
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": scale,
                "legend": {"columns": 4} if width_px == NARROW_PX else {},
            },
            "order": {"field": "order"},
            "tooltip": [{"field": "who"}, {"field": "kind"}, {"field": "seconds"}],
        },
    }
