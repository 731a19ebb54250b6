"""What would have helped: seconds that each improvement would have saved, and did save when tried."""

from collections.abc import Sequence

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    quantitative,
    spec,
)
from cluster.reporting.run_data import RunData, WhatIf

WORDS = {"rate": "{} at twice the rate", "delay": "{} at half the delay"}
MOST_ROWS = 12


def change_words(change: WhatIf) -> str:
    """Return the change in words."""
    return WORDS.get(change.what, f"{change.what} of {{}}" if change.what else "{}").format(
        change.carrier
    )


def tried_words(change: WhatIf) -> str:
    """Return the seconds saved when it was tried, or `not tried`."""
    return "not tried" if change.achieved_s is None else f"tried: {change.achieved_s:.1f} s"


def helped_chart(run: RunData) -> Chart | None:
    """Return the chart; None if nothing was predicted, or nothing would help."""
    changes = sorted(run.what_if, key=lambda one: -one.saves_s)[:MOST_ROWS]
    if not changes:
        return None
    rows: Rows = [
        {
            "change": change_words(change),
            "saves_s": round(change.saves_s, 3),
            "achieved_s": change.achieved_s,
            "label": f"−{change.saves_s:.1f} s, {tried_words(change)}",
        }
        for change in changes
    ]
    caption = "Predicted by replaying the collectives with one thing better."
    was_tried = any(change.achieved_s is not None for change in changes)
    caption += " A diamond is what was saved when it was tried." if was_tried else ""
    names = [change_words(change) for change in changes]
    ends_s = [0.0, *(c.saves_s for c in changes), *(c.achieved_s or 0.0 for c in changes)]
    wide, narrow = (_spec(px, names, ends_s, was_tried=was_tried) for px in (WIDE_PX, NARROW_PX))
    return Chart("helped", caption, wide, narrow, {"helped": rows})


def _spec(width_px: int, names: Sequence[str], ends_s: Sequence[float], *, was_tried: bool) -> Spec:
    """Return the specification; if narrow, each bar's name stands above it, where there is room."""
    is_wide = width_px == WIDE_PX
    y: Spec = {"field": "change", "type": "nominal", "sort": list(names), "title": None}
    y |= {"axis": {"labelLimit": 260} if is_wide else None}
    x = quantitative("saves_s", "seconds saved, predicted")
    room = 1.35 if is_wide else 1.75  # for words after the bars
    x |= {"scale": {"nice": False, "domain": [min(ends_s), room * max(ends_s) or 1.0]}}
    bar: Spec = {"type": "bar", "color": colour("compute"), "height": 15 if is_wide else 10}
    label: Spec = {"type": "text", "align": "left", "dx": 8}
    layers: list[Spec] = [
        {"mark": bar, "encoding": {"x": x}},
        {"mark": label, "encoding": {"x": x, "text": {"field": "label"}}},
    ]
    if not is_wide:
        name = {
            "type": "text",
            "align": "left",
            "dy": -13,
            "color": colour("muted"),
            "limit": width_px,
        }
        layers.append({"mark": name, "encoding": {"x": {"datum": 0}, "text": {"field": "change"}}})
    if was_tried:
        layers.append(_tried())
    return spec(width_px) | {
        "height": (28 if is_wide else 40) * len(names),
        "data": {"name": "helped"},
        "encoding": {"y": y},
        "layer": layers,
    }


def _tried() -> Spec:
    return {
        "transform": [{"filter": "isValid(datum.achieved_s)"}],
        "mark": {
            "type": "point",
            "shape": "diamond",
            "filled": True,
            "size": 110,
            "color": colour("ink"),
        },
        "encoding": {"x": {"field": "achieved_s", "type": "quantitative"}},
    }
