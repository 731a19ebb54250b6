"""The look of charts: colours as CSS variables, so that one picture serves light and dark; sizes; Vega-Lite's config.

The colours of kinds are based on Okabe and Ito's palette, darkened for white and lightened for black paper until each
has a contrast of 3 to 1 with it (WCAG 1.4.11); tests/unit/test_report_page.py measures that, and how far apart they are
for readers with one of three kinds of colour blindness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Spec = dict[str, object]
Row = Mapping[str, object]
Rows = list[Row]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
WIDE_PX, NARROW_PX = 940, 344
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

# Kind -> (on light paper, on dark paper).
KIND_COLOURS = {
    "compute": ("#0b5fa5", "#4fa3e0"),
    "strategy": ("#160896", "#4c4cf6"),
    "transfer": ("#b53a00", "#f07f3c"),
    "waiting": ("#b08c00", "#f0f69c"),
    "eval": ("#00785a", "#2fc79b"),
    "rollout": ("#7a1f6b", "#f2c2e4"),
    "checkpoint": ("#5b5fc7", "#a3a6f5"),
    "startup": ("#7d838c", "#80868f"),
    "data": ("#4a2a06", "#97600f"),
    "other": ("#8d939c", "#6f757e"),
}
OTHER_COLOURS = {
    "paper": ("#ffffff", "#14171b"),
    "panel": ("#f5f6f8", "#1c2026"),
    "ink": ("#1b1f24", "#e6e9ed"),
    "muted": ("#5c6570", "#9aa3ae"),
    "line": ("#d9dde2", "#333a43"),
    "good": ("#00734f", "#3ecf97"),
    "bad": ("#b3261e", "#ff8a80"),
    "unknown": ("#7a5c00", "#e3c04d"),
}
# Runs on one page: also based on Okabe and Ito.
RUN_KINDS = ("compute", "transfer", "eval", "rollout", "waiting", "checkpoint")


@dataclass(frozen=True)
class Chart:
    """One picture, in two widths, from the same data.

    Attributes:
        name: unique on the page.
        caption: what it shows and how to read it, in a sentence.
        wide, narrow: specifications that refer to data by name.
        data: name -> all rows.
        few: name -> fewer rows, for a static picture without zoom; only names that have too many rows.
    """

    name: str
    caption: str
    wide: Spec
    narrow: Spec
    data: Mapping[str, Sequence[Row]]
    few: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def colour(name: str) -> str:
    """Return the CSS variable of a colour, of a kind or of the page."""
    return f"var(--{name})"


def kind_scale(kinds: list[str]) -> Spec:
    """Return a colour scale: kinds in this order, each always in its own colour."""
    return {"domain": kinds, "range": [colour(kind) for kind in kinds]}


def spec(width_px: int, *, height_px: int | None = None) -> Spec:
    """Return what all specifications start with."""
    size: Spec = {"width": width_px, **({} if height_px is None else {"height": height_px})}
    return {"$schema": SCHEMA, **size, **frame()}


def frame() -> Spec:
    """Return the settings of the whole picture, whether it has one view or several."""
    return {
        "background": "transparent",
        "padding": 2,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG,
    }


CONFIG: Spec = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "tickColor": colour("line"),
        "gridColor": colour("line"),
        "gridWidth": 0.6,
        "labelColor": colour("muted"),
        "titleColor": colour("muted"),
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelFontWeight": "normal",
        "tickSize": 3,
        "labelPadding": 5,
    },
    "axisY": {"ticks": False},
    "legend": {
        "orient": "top",
        "direction": "horizontal",
        "title": None,
        "labelColor": colour("ink"),
        "labelFontSize": 11,
        "symbolType": "square",
        "symbolSize": 90,
        "symbolStrokeWidth": 0,
        "columnPadding": 12,
        "offset": 6,
    },
    "text": {"color": colour("ink"), "fontSize": 11},
    "title": {"color": colour("muted"), "fontSize": 11, "fontWeight": "normal", "anchor": "start"},
    "mark": {"aria": False, "tooltip": False},
}


def quantitative(field_name: str, title: str | None = None) -> Spec:
    """Return an axis of numbers."""
    return {
        "field": field_name,
        "type": "quantitative",
        "title": title,
        "axis": {"tickCount": 6},
    }


def row_axis(names: list[str]) -> Spec:
    """Return an axis of row labels: all if they are few, else some."""
    axis: Spec = {"labelLimit": 110, "labelOverlap": True, "grid": False}
    return {"type": "nominal", "title": None, "scale": {"domain": names}, "axis": axis}


def cut_words(total: int, most: int, what: str) -> str:
    """Return the end of a caption if not all are drawn."""
    return f" Shown: the first {most:,} of {total:,} {what}." if total > most else ""


MOST_LANES = 1000  # one for each rank, below one another
LINE_LEGEND: Spec = {"symbolType": "stroke", "symbolStrokeWidth": 2}


def row_px(rows: int) -> int:
    """Return the height of a row; many rows must share a page."""
    return 26 if rows <= 8 else 18 if rows <= 16 else 11 if rows <= 32 else 8
