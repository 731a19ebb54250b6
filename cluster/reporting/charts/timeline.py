"""The timeline: a lane per rank with what it did, a lane per link with what it carried, and a schedule's events."""

from cluster.reporting.charts.theme import (
    MOST_LANES,
    NARROW_PX,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    cut_words,
    kind_scale,
    row_axis,
    row_px,
    spec,
)
from cluster.reporting.lanes import KINDS, Slice, slices, thinned
from cluster.reporting.link_stretches import carried_mb, joined
from cluster.reporting.run_data import LinkStretch, RunData

MOST_DRAWN = 6_000  # pieces of a static picture, in which pieces of one colour are one mark
MOST_ZOOMED = 60_000
MOST_RULES = 200
MOST_LINKS, LEAST_SHARE = (
    12,
    0.05,
)  # lanes; of the busiest link's bytes: acknowledgements have less
MOST_STRETCHES, MOST_ZOOMED_STRETCHES = 240, 2_000  # per link
LEVELS = 6  # shades
GAP = "links:"  # a separate row between ranks and links


def timeline_chart(run: RunData) -> Chart | None:
    """Return the chart; None if nothing is known about any moment."""
    found, links = slices(run, MOST_LANES), busy_links(run)
    if not found and not links:
        return None
    names = [rank.name for rank in run.ranks[:MOST_LANES]] if found else []
    names += [GAP, *links] if links and names else links
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in found)]
    events: Rows = [
        {"at_s": round(one.at_s, 3), "what": one.what} for one in run.events[:MOST_RULES]
    ]
    caption = ""
    if found:
        caption = "A lane a rank. Waiting: a slower rank had not come yet. Transfer: all were there, bytes under way."
        caption += cut_words(len(run.ranks), MOST_LANES, "ranks")
    if "rollout" in kinds:
        caption += " A learner waits for experience." if "waiting" in kinds else ""
        caption += " Of actors only from when to when they acted is known."
    if links:
        caption += " A lane a link, of those that carried most: the stronger its colour, the nearer it was to its rate."
    if events:
        caption += f" Dashed lines: {_acted(len(run.events))}."
    caption = caption.strip()
    wide, narrow = (_spec(px, names, kinds, has_events=bool(events)) for px in (WIDE_PX, NARROW_PX))
    data = {
        "slices": _rows(run, thinned(found, MOST_ZOOMED)),
        "carried": link_rows(run, links, MOST_ZOOMED_STRETCHES),
        "events": events,
    }
    few = {
        "slices": _rows(run, thinned(found, MOST_DRAWN)),
        "carried": link_rows(run, links, MOST_STRETCHES),
    }
    return Chart("timeline", caption, wide, narrow, data, few)


def _acted(actions: int) -> str:
    if actions <= MOST_RULES:
        return "what the schedule did"
    return f"the first {MOST_RULES} of {actions:,} actions of the schedule"


def busy_links(run: RunData) -> list[str]:
    """Return the links that get a lane: the busiest ones whose traffic can be seen, in the order of `run.links`."""
    sums = {name: carried_mb(some) for name, some in run.stretches.items()}
    most = max(sums.values(), default=0.0)
    busiest = sorted(sums, key=lambda name: -sums[name])[:MOST_LINKS]
    shown = {name for name in busiest if sums[name] > LEAST_SHARE * most}
    return [link.name for link in run.links if link.name in shown]


def link_rows(run: RunData, links: list[str], most: int) -> Rows:
    """Return what links carried, shaded by how near that is to their rates; rows of one shade are consecutive."""
    shaded = [
        (_shade(one), name, one) for name in links for one in joined(run.stretches[name], most)
    ]
    return [
        {
            "rank": name,
            "a": round(one.start_s, 3),
            "b": round(one.end_s, 3),
            "shade": shade,
            "mbyte_s": round(one.mbyte_s, 3),
            "rate": round(one.rate_mbyte_s, 3),
        }
        for shade, name, one in sorted(shaded, key=lambda item: item[0])
        if shade
    ]


def _shade(one: LinkStretch) -> float:
    """Return how near a link's throughput is to its rate, 0 to 1, in steps."""
    share = one.mbyte_s / one.rate_mbyte_s if one.rate_mbyte_s else float(one.mbyte_s > 0)
    return round(round(min(1.0, share) * LEVELS) / LEVELS, 2)


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
    mark: Spec = {"type": "rect", "height": {"band": 0.76 if height > 12 else 0.92}, "clip": True}
    lanes: Spec = {
        "data": {"name": "slices"},
        "params": [
            {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
        ],
        "mark": mark,
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
    links: Spec = {
        "data": {"name": "carried"},
        "mark": mark | {"color": colour("transfer")},
        "encoding": {
            "y": {"field": "rank", **row_axis(names)},
            "x": {"field": "a", "type": "quantitative"},
            "x2": {"field": "b"},
            "fillOpacity": {
                "field": "shade",
                "type": "quantitative",
                "scale": None,
                "legend": None,
            },
            "tooltip": [
                {"field": "rank", "title": "link"},
                {"field": "mbyte_s", "title": "carried MB/s"},
                {"field": "rate", "title": "rate MB/s"},
                {"field": "a", "title": "from s", "type": "quantitative", "format": ".3f"},
                {"field": "b", "title": "to s", "type": "quantitative", "format": ".3f"},
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
    layers = [lanes, links, rules] if has_events else [lanes, links]
    return spec(width_px, height_px=height * len(names)) | {"layer": layers}
