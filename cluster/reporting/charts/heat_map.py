"""A heat map: one figure per variant and problem; the stronger the colour, the nearer to the problem's best."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    row_px,
    spec,
)

FAINTEST = 0.12


@dataclass(frozen=True)
class HeatCell:
    """One variant on one problem.

    Attributes:
        label: the text in the cell.
        share: the problem's best figure over this one's, 0 to 1; None if there is no figure.
        words: details, for the tooltip.
    """

    variant: str
    problem: str
    label: str
    share: float | None
    words: str


def heat_map_chart(cells: Sequence[HeatCell], caption: str) -> Chart | None:
    """Return the chart; None if there are no cells."""
    if not cells:
        return None
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    problems = list(dict.fromkeys(cell.problem for cell in cells))
    rows: Rows = [
        {
            "variant": cell.variant,
            "problem": cell.problem,
            "label": cell.label,
            "shade": 0.0 if cell.share is None else FAINTEST + (1 - FAINTEST) * cell.share,
            "words": cell.words,
        }
        for cell in cells
    ]
    wide, narrow = (_spec(px, variants, problems) for px in (WIDE_PX, NARROW_PX))
    return Chart("heat_map", caption, wide, narrow, {"heat": rows})


def _spec(width_px: int, variants: list[str], problems: list[str]) -> Spec:
    label_px = 220 if width_px == WIDE_PX else 110
    axis: Spec = {"grid": False, "ticks": False}
    y: Spec = {"field": "variant", "type": "nominal", "sort": variants, "title": None}
    x: Spec = {"field": "problem", "type": "nominal", "sort": problems, "title": None}
    angle = 0 if len(problems) <= (6 if width_px == WIDE_PX else 2) else -40
    x |= {"axis": axis | {"orient": "top", "labelAngle": angle, "labelLimit": 160}}
    y |= {"axis": axis | {"labelLimit": label_px}}
    shade: Spec = {"field": "shade", "type": "quantitative", "scale": None, "legend": None}
    tooltip = [{"field": name} for name in ("variant", "problem", "words")]
    ink = {"condition": {"test": "datum.shade > 0.6", "value": colour("paper")}}
    return spec(width_px) | {
        "height": max(28, row_px(len(variants))) * len(variants),
        "data": {"name": "heat"},
        "encoding": {"y": y, "x": x, "tooltip": tooltip},
        "layer": [
            {
                "mark": {"type": "rect", "color": colour("compute")},
                "encoding": {"opacity": shade},
            },
            {
                "mark": {"type": "text"},
                "encoding": {
                    "text": {"field": "label", "type": "nominal"},
                    "color": ink | {"value": colour("ink")},
                },
            },
        ],
    }
