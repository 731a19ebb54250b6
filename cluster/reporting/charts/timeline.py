"""The timeline: a lane a rank, with what it did, and the schedule's events across all of them."""

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    kind_scale,
    row_axis,
    row_px,
    spec,
)
from cluster.reporting.lanes import KINDS, Slice, slices, thinned
from cluster.reporting.run_data import RunData

MOST_DRAWN = 6_000  # pieces of a picture; pieces of one colour are one mark in it
MOST_ZOOMED = 60_000
MOST_RULES = 200


def timeline_chart(run: RunData) -> Chart | None:
    """None where nothing is known of any moment."""
    found = slices(run)
    if not found:
        return None
    names = [rank.name for rank in run.ranks]
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in found)]
    events: Rows = [
        {"at_s": round(one.at_s, 3), "what": one.what} for one in run.events[:MOST_RULES]
    ]
    caption = "A lane a rank. Waiting: a slower rank had not come yet. Transfer: all were there, bytes on their way."
    if any(one.kind == "rollout" for one in found):
        caption += " Of actors only from when to when they acted is known."
    caption += " Dashed lines: what the schedule did." if events else ""
    wide, narrow = (_spec(px, names, kinds, has_events=bool(events)) for px in (WIDE_PX, NARROW_PX))
    data = {"slices": _rows(run, thinned(found, MOST_ZOOMED)), "events": events}
    few = {"slices": _rows(run, thinned(found, MOST_DRAWN))}
    return Chart("timeline", caption, wide, narrow, data, few)


def _rows(run: RunData, found: list[Slice]) -> Rows:
    return [
        {
            "rank": run.rank_name(one.rank),
            "kind": one.kind,
            "a": round(one.start_s, 3),
            "b": round(one.end_s, 3),
            **({"step": one.step} if one.step else {}),
            **({"of": one.label} if one.label else {}),
        }
        for one in found
    ]


def _spec(width_px: int, names: list[str], kinds: list[str], *, has_events: bool) -> Spec:
    height = row_px(len(names))
    lanes: Spec = {
        "data": {"name": "slices"},
        "params": [
            {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
        ],
        "mark": {"type": "rect", "height": {"band": 0.76 if height > 12 else 0.92}, "clip": True},
        "encoding": {
            "y": {"field": "rank", **row_axis(names)},
            "x": {
                "field": "a",
                "type": "quantitative",
                "title": "seconds since the first rank started",
                "scale": {"nice": False},
                "axis": {"tickCount": 8 if width_px == WIDE_PX else 5},
            },
            "x2": {"field": "b"},
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": kind_scale(kinds),
                "legend": {"columns": 4} if width_px == NARROW_PX else {},
            },
            "tooltip": [
                {"field": "rank"},
                {"field": "kind"},
                {"field": "a", "title": "from s", "type": "quantitative", "format": ".3f"},
                {"field": "b", "title": "to s", "type": "quantitative", "format": ".3f"},
                {"field": "step"},
                {"field": "of"},
            ],
        },
    }
    rules: Spec = {
        "data": {"name": "events"},
        "mark": {"type": "rule", "color": colour("ink"), "strokeDash": [4, 3], "clip": True},
        "encoding": {
            "x": {"field": "at_s", "type": "quantitative"},
            "tooltip": [{"field": "what"}, {"field": "at_s"}],
        },
    }
    layers = [lanes, rules] if has_events else [lanes]
    return spec(width_px, height_px=height * len(names)) | {"layer": layers}
