"""Links: a matrix of measured over asked values, and the topology with what it carried."""

import math

from cluster.reporting.charts.theme import (
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    spec,
)
from cluster.reporting.run_data import LinkFigures, RunData

MOST_DRAWN_NODES = 16  # with more, the topology cannot be read
MOST_LABELLED = 12  # with more, figures in cells cannot be read
MOST_NAMED_LINKS = 8
BEND = 0.2  # of a link's length: separates the two directions
POINTS = 9
LEVELS = 8  # shades of what was carried
VERDICTS = ("holds", "undecided", "broken", "not measured")
VERDICT_COLOURS = ("compute", "unknown", "bad", "muted")


def link_names(run: RunData) -> list[str]:
    """Return the nodes of ranks, in rank order, then other nodes that have links."""
    known = dict.fromkeys(run.nodes)
    return list(known | dict.fromkeys(end for link in run.links for end in (link.src, link.dst)))


def link_rows(run: RunData) -> Rows:
    """Return one row per link: ends, verdict, measured over asked, carried MB, and a shade for that."""
    most = max((link.carried_bytes or 0.0 for link in run.links), default=0.0)
    return [
        {
            "src": link.src,
            "dst": link.dst,
            "verdict": link.verdict or "not measured",
            "shade": _shade(link, most),
            "label": "" if link.speed_ratio is None else f"{link.speed_ratio:.2f}",
            "link": link.name,
            "rate": _words(link.asked_mbyte_s, "MB/s"),
            "delay": _words(link.delay_ms, "ms"),
            "goodput": _beside(link.goodput_mbyte_s, link.expected_goodput_mbyte_s, "MB/s"),
            "rtt": _beside(link.rtt_ms, link.expected_rtt_ms, "ms"),
            "carried": _words((link.carried_bytes or 0.0) / 1e6, "MB"),
        }
        for link in run.links
    ]


def _shade(link: LinkFigures, most_bytes: float) -> float:
    """Return 0.15 for a link that carried nothing, up to 1 for the one that carried most."""
    share = (link.carried_bytes or 0.0) / most_bytes if most_bytes else 0.0
    return round(0.15 + 0.85 * round(share * LEVELS) / LEVELS, 3)


def _words(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.3g} {unit}"


def _beside(measured: float | None, asked: float | None, unit: str) -> str:
    return f"{_words(measured, unit)}, asked {_words(asked, unit)}" if measured is not None else "-"


TOOLTIP = [
    {"field": name} for name in ("link", "verdict", "rate", "delay", "goodput", "rtt", "carried")
]


def matrix_chart(run: RunData) -> Chart | None:
    """Return the matrix; None if nothing is shaped."""
    if not run.links:
        return None
    names = link_names(run)
    labelled = len(names) <= MOST_LABELLED and any(link.speed_ratio for link in run.links)
    caption = "From the row's node to the column's. The stronger its colour, the more it carried in this run."
    caption += " Figures: measured goodput ÷ asked." if labelled else ""
    caption += " Blue is proved, yellow undecided, red broken, grey not measured."
    wide, narrow = (_matrix(px, names, labelled=labelled) for px in (WIDE_PX // 2 - 16, NARROW_PX))
    return Chart("links", caption, wide, narrow, {"links": link_rows(run)})


def _matrix(width_px: int, names: list[str], *, labelled: bool) -> Spec:
    axis: Spec = {"labelLimit": 80, "labelOverlap": True, "grid": False, "ticks": False}
    y: Spec = {"field": "src", "type": "nominal", "sort": names, "title": "from", "axis": axis}
    x: Spec = {"field": "dst", "type": "nominal", "sort": names, "title": "to"}
    x |= {"axis": axis | {"orient": "top", "labelAngle": 0 if len(names) <= 6 else -90}}
    scale = {"domain": list(VERDICTS), "range": [colour(name) for name in VERDICT_COLOURS]}
    cells: Spec = {
        "mark": {"type": "rect", "cornerRadius": 2 if len(names) <= MOST_DRAWN_NODES else 0},
        "encoding": {
            "fill": {"field": "verdict", "type": "nominal", "scale": scale, "legend": None},
            "fillOpacity": {
                "field": "shade",
                "type": "quantitative",
                "scale": None,
                "legend": None,
            },
            "tooltip": TOOLTIP,
        },
    }
    text: Spec = {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "text": {"field": "label"},
            "color": {
                "condition": {"test": "datum.shade > 0.5", "value": colour("paper")},
                "value": colour("ink"),
            },
        },
    }
    layers = [cells, text] if labelled else [cells]
    side_px = max(90, min(width_px - 60, 44 * len(names), 430))
    bands: Spec = {"paddingInner": 0.06 if len(names) <= MOST_DRAWN_NODES else 0, "domain": names}
    return spec(min(width_px, side_px + 90), height_px=side_px) | {
        "data": {"name": "links"},
        "encoding": {"x": x | {"scale": bands}, "y": y | {"scale": bands}},
        "layer": layers,
    }


def topology_chart(run: RunData) -> Chart | None:
    """Return the topology; None if nothing is shaped, or there are too many nodes."""
    names = link_names(run)
    if not run.links or not 2 <= len(names) <= MOST_DRAWN_NODES:
        return None
    places = {name: _place(index, len(names)) for index, name in enumerate(names)}
    lines = [row for link in run.links for row in _curve(link, places, run)]
    heads = [_head(link, places, run) for link in run.links]
    nodes: Rows = [
        {"node": name, "x": round(1.27 * x, 4), "y": round(1.17 * y, 4), "px": x, "py": y}
        for name, (x, y) in places.items()
    ]
    caption = "Every arrow is a link. The thicker, the more it carried."
    caption += (
        " Figures: the rate that was asked for." if len(run.links) <= MOST_NAMED_LINKS else ""
    )
    low = min(y for _, y in places.values())  # an odd number of nodes leaves the bottom free
    wide, narrow = (_topology(px, low) for px in (WIDE_PX // 2 - 16, NARROW_PX))
    return Chart(
        "topology", caption, wide, narrow, {"lines": lines, "heads": heads, "nodes": nodes}
    )


def _place(index: int, count: int) -> tuple[float, float]:
    """Return a node's place on a circle, clockwise from the top."""
    angle = math.pi / 2 - 2 * math.pi * index / count
    return round(math.cos(angle), 4), round(math.sin(angle), 4)


def _point(
    link: LinkFigures, places: dict[str, tuple[float, float]], t: float
) -> tuple[float, float]:
    """Return a point on a quadratic Bezier curve that bends to the right of its direction."""
    (ax, ay), (bx, by) = places[link.src], places[link.dst]
    cx, cy = (ax + bx) / 2 + BEND * 2 * (by - ay) / 2, (ay + by) / 2 - BEND * 2 * (bx - ax) / 2
    u = 1 - t
    return u * u * ax + 2 * u * t * cx + t * t * bx, u * u * ay + 2 * u * t * cy + t * t * by


def _curve(link: LinkFigures, places: dict[str, tuple[float, float]], run: RunData) -> Rows:
    most = max((one.carried_bytes or 0.0 for one in run.links), default=0.0)
    rows: Rows = []
    for index in range(POINTS):
        x, y = _point(link, places, 0.08 + 0.84 * index / (POINTS - 1))
        row = {"link": link.name, "i": index, "x": round(x, 3), "y": round(y, 3)}
        rows.append(
            row | {"verdict": link.verdict or "not measured", "width": _width_px(link, most)}
        )
    return rows


def _width_px(link: LinkFigures, most_bytes: float) -> float:
    share = (link.carried_bytes or 0.0) / most_bytes if most_bytes else 0.0
    return round(1.0 + 4.0 * share, 2)


def _head(
    link: LinkFigures, places: dict[str, tuple[float, float]], run: RunData
) -> dict[str, object]:
    """Return the head of a link's arrow, with its verdict and label."""
    (x, y), (px, py) = _point(link, places, 0.90), _point(link, places, 0.84)
    mx, my = _point(link, places, 0.5)
    label = _words(link.asked_mbyte_s, "MB/s") if len(run.links) <= MOST_NAMED_LINKS else ""
    return {
        "link": link.name,
        "x": round(x, 3),
        "y": round(y, 3),
        "mx": round(mx, 3),
        "my": round(my, 3),
        "angle": round(90 - math.degrees(math.atan2(y - py, x - px)), 1),
        "verdict": link.verdict or "not measured",
        "label": label,
    }


def _topology(width_px: int, low: float) -> Spec:
    side_px = min(width_px, 330)
    bottom, top = low - 0.45, 1.45
    height_px = round(side_px * (top - bottom) / 2.9)
    across: Spec = {"axis": None, "type": "quantitative"}
    across |= {"scale": {"domain": [-1.45, 1.45], "nice": False}}
    up: Spec = across | {"scale": {"domain": [bottom, top], "nice": False}}
    at = {"x": {"field": "x", **across}, "y": {"field": "y", **up}}
    scale = {"domain": list(VERDICTS), "range": [colour(name) for name in VERDICT_COLOURS]}
    hue: Spec = {"field": "verdict", "type": "nominal", "scale": scale, "legend": None}
    lines: Spec = {
        "data": {"name": "lines"},
        "mark": {"type": "line", "opacity": 0.75, "strokeCap": "round"},
        "encoding": at
        | {
            "detail": {"field": "link"},
            "order": {"field": "i"},
            "stroke": hue,
            "strokeWidth": {
                "field": "width",
                "type": "quantitative",
                "scale": None,
                "legend": None,
            },
        },
    }
    heads: Spec = {
        "data": {"name": "heads"},
        "mark": {"type": "point", "shape": "triangle", "filled": True, "size": 70, "opacity": 1},
        "encoding": at
        | {
            "fill": hue,
            "angle": {"field": "angle", "type": "quantitative", "scale": None},
            "tooltip": [{"field": "link"}, {"field": "verdict"}],
        },
    }
    labels: Spec = {
        "data": {"name": "heads"},
        "mark": {"type": "text", "fontSize": 10, "color": colour("ink")},
        "encoding": {
            "x": {"field": "mx", **across},
            "y": {"field": "my", **up},
            "text": {"field": "label"},
        },
    }
    dots: Spec = {
        "data": {"name": "nodes"},
        "mark": {"type": "circle", "size": 110, "color": colour("ink"), "opacity": 1},
        "encoding": {"x": {"field": "px", **across}, "y": {"field": "py", **up}},
    }
    names: Spec = {
        "data": {"name": "nodes"},
        "mark": {"type": "text", "fontSize": 11},
        "encoding": at | {"text": {"field": "node"}},
    }
    # An outline in the paper's colour, drawn first, keeps labels readable over lines.
    around = labels | {
        "mark": {"type": "text", "fontSize": 10, "stroke": colour("paper"), "strokeWidth": 5}
    }
    return spec(side_px, height_px=height_px) | {
        "layer": [lines, heads, around, labels, dots, names]
    }
