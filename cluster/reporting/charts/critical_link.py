"""The critical link over time: what it could carry, what it carried, and its queue; after mahimahi's graphs.

mm-throughput-graph draws the capacity as an area behind the line of the throughput, mm-delay-graph the delay below
(github.com/ravinet/mahimahi, scripts/). Here the delay is that of the queue: its backlog divided by the rate.
"""

from cluster.reporting.charts.theme import (
    NARROW_PX,
    SCHEMA,
    WIDE_PX,
    Chart,
    Rows,
    Spec,
    colour,
    frame,
    quantitative,
)
from cluster.reporting.link_stretches import carried_mb, grouped, mean_of
from cluster.reporting.run_data import LinkStretch, RunData

MOST_DRAWN, MOST_ZOOMED = 300, 5_000
LEAST_RATE = 1e-3  # MB/s: below it a queue does not drain, and its delay is undefined


def critical_link(run: RunData) -> str:
    """Return the link on which the critical path stayed longest, else the one that carried most; '' if unknown."""
    if run.path is not None and run.path.carrier in run.stretches:
        return run.path.carrier
    return max(run.stretches, key=lambda name: carried_mb(run.stretches[name]), default="")


def queue_ms(one: LinkStretch) -> float | None:
    """Return how long a byte at the end of the queue will wait; None in an outage, and if nobody looked at it."""
    if one.backlog_bytes is None or one.rate_mbyte_s < LEAST_RATE:
        return None
    return one.backlog_bytes / one.rate_mbyte_s / 1e3


def critical_link_chart(run: RunData) -> Chart | None:
    """Return the chart; None if no link was seen carrying anything."""
    name = critical_link(run)
    if not name:
        return None
    stretches = run.stretches[name]
    caption = (
        "Grey: the capacity of the link. Orange: its mean throughput between two samples. Below, in blue: the queueing "
        "delay at each sample, which is the backlog of the queue divided by the capacity; nothing where it is unknown."
    )
    wide, narrow = _spec(WIDE_PX - 72), _spec(NARROW_PX - 66)
    data = {"carried": _rows(grouped(stretches, MOST_ZOOMED))}
    return Chart(
        "critical_link",
        caption,
        wide,
        narrow,
        data,
        {"carried": _rows(grouped(stretches, MOST_DRAWN))},
    )


def _rows(groups: list[list[LinkStretch]]) -> Rows:
    """Return two rows per group, its start and its end, so that the lines between them form steps.

    The queue is the longest that was looked at: by the mean rate of a group, none of them may have been as long.
    """
    rows: Rows = []
    for group in groups:
        one = mean_of(group)
        queue = max((ms for some in group if (ms := queue_ms(some)) is not None), default=None)
        same = {
            "carried": round(one.mbyte_s, 3),
            "rate": round(one.rate_mbyte_s, 3),
            "queue_ms": None if queue is None else round(queue, 1),
        }
        rows += [{"at_s": round(at_s, 2), **same} for at_s in (one.start_s, one.end_s)]
    return rows


def _spec(width_px: int) -> Spec:
    x = quantitative("at_s", None) | {"scale": {"nice": False}}
    below = x | {"title": "seconds since the first rank started"}
    tooltip = [
        {"field": "at_s", "title": "s"},
        {"field": "carried", "title": "carried MB/s"},
        {"field": "rate", "title": "rate MB/s"},
        {"field": "queue_ms", "title": "queue ms"},
    ]
    y = quantitative("rate", "MB/s") | {"axis": {"tickCount": 4}, "stack": None}
    capacity: Spec = {
        "mark": {"type": "area", "color": colour("line"), "opacity": 0.7},
        "encoding": {"x": x, "y": y},
    }
    carried: Spec = {
        "mark": {"type": "area", "color": colour("transfer"), "opacity": 0.85},
        "encoding": {"x": x, "y": y | {"field": "carried"}, "tooltip": tooltip},
    }
    queue: Spec = {
        "mark": {"type": "area", "color": colour("compute"), "opacity": 0.85},
        "encoding": {
            "x": below,
            "y": quantitative("queue_ms", "queue, ms") | {"axis": {"tickCount": 3}, "stack": None},
            "tooltip": tooltip,
        },
    }
    top: Spec = {"$schema": SCHEMA, **frame(), "autosize": {"type": "pad"}, "spacing": 10}
    return top | {
        "data": {"name": "carried"},
        "resolve": {"scale": {"x": "shared"}},
        "vconcat": [
            {"width": width_px, "height": 150, "layer": [capacity, carried]},
            {"width": width_px, "height": 60, **queue},
        ],
    }
