"""Attribution: where the time of collectives went, as a waterfall by part."""

from collections.abc import Sequence
from typing import TypedDict

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Spec,
    colour,
    quantitative,
    spec,
)
from cluster.reporting.run_data import Attribution

MEANINGS = {
    "skew": "waiting for the last rank",
    "distance": "the delay of links",
    "bytes": "the rates of links",
    "sharing": "several transfers on one link",
    "algorithm": "how gloo moves it",
    "window": "TCP's window, small after a pause or a loss",
    "loss": "packets sent again",
    "host": "a busy host",
    "unexplained": "what no part explains",
}
TOTAL = "measured"
ROUNDING_S = 5e-4
BEYOND = "less than the model"


class Bar(TypedDict):
    """The bar of one part."""

    part: str
    meaning: str
    from_s: float
    to_s: float
    end_s: float
    """The right end: for a negative part, its start."""
    seconds: float
    sign: str
    """The key of its colour."""
    label: str


def waterfall_rows(attribution: Attribution) -> list[Bar]:
    """Return the bars, each starting where the one before it ended, then the total."""
    rows: list[Bar] = []
    at_s = 0.0
    for part, value in attribution.seconds.items():
        rows.append(
            {
                "part": part,
                "meaning": MEANINGS.get(part, ""),
                "from_s": round(at_s, 4),
                "to_s": round(at_s + value, 4),
                "end_s": round(max(at_s, at_s + value), 4),
                "seconds": round(value, 4),
                "sign": _sign(part, value),
                "label": f"{_signed(value)} s",
            }
        )
        at_s += value
    rows.append(
        {
            "part": TOTAL,
            "meaning": "from the first rank's arrival to the last one's end",
            "from_s": 0.0,
            "to_s": round(at_s, 4),
            "end_s": round(at_s, 4),
            "seconds": round(at_s, 4),
            "sign": TOTAL,
            "label": f"{at_s:.1f} s",
        }
    )
    return rows


def _sign(part: str, value: float) -> str:
    if part == "unexplained":
        return part
    if part == "skew":
        return "skew"
    return "part" if value >= 0 else BEYOND


def _signed(value: float) -> str:
    return "0.0" if abs(value) < ROUNDING_S else f"{'+' if value > 0 else '−'}{abs(value):.1f}"


def attribution_chart(attribution: Attribution) -> Chart:
    """Return the chart of all collectives of a run."""
    rows = waterfall_rows(attribution)
    caption = (
        "Each bar is the time that one more effect adds, always in this order; the bars sum to the measured time. Time "
        "that two effects share counts for the earlier one."
    )
    wide, narrow = (_spec(px, rows) for px in (WIDE_PX, NARROW_PX))
    return Chart("attribution", caption, wide, narrow, {"attribution": rows})


def _spec(width_px: int, rows: Sequence[Bar]) -> Spec:
    is_wide = width_px == WIDE_PX
    names = [row["part"] for row in rows]
    labels = {row["part"]: f"{row['part']}: {row['meaning']}" for row in rows} if is_wide else {}
    y: Spec = {"field": "row" if is_wide else "part", "type": "nominal", "title": None}
    y |= {"sort": [labels.get(name, name) for name in names], "axis": {"labelLimit": 330}}
    signs = ["skew", "part", "unexplained", TOTAL, BEYOND]
    colours = ["waiting", "transfer", "other", "ink", "eval"]
    scale = {"domain": signs, "range": [colour(name) for name in colours]}
    x = quantitative("from_s", "seconds, all ranks' collectives one after the other")
    ends_s = [0.0, *(row["from_s"] for row in rows), *(row["end_s"] for row in rows)]
    room = 1.12 if is_wide else 1.25  # for figures after the bars
    x |= {"scale": {"nice": False, "domain": [min(ends_s), room * max(ends_s) or 1.0]}}
    text_x = {"field": "end_s", "type": "quantitative"}
    return spec(width_px) | {
        "height": 26 * len(rows),
        "data": {"name": "attribution"},
        "transform": [{"calculate": "datum.part + ': ' + datum.meaning", "as": "row"}],
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.66}},
                "encoding": {
                    "x": x,
                    "x2": {"field": "to_s"},
                    "color": {"field": "sign", "type": "nominal", "scale": scale, "legend": None},
                    "tooltip": [{"field": "part"}, {"field": "meaning"}, {"field": "seconds"}],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6},
                "encoding": {"x": text_x, "text": {"field": "label"}},
            },
        ],
    }
