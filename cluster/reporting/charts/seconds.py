"""Where the time went: one bar per rank, one piece per bucket of seconds."""

from typing import TypedDict

from cluster.reporting.charts.theme import (
    MOST_LANES,
    NARROW_PX,
    WIDE_PX,
    Chart,
    Spec,
    cut_words,
    kind_scale,
    quantitative,
    row_axis,
    row_px,
    spec,
)
from cluster.reporting.run_data import RunData

BUCKETS = (
    *("startup", "data", "rollout", "compute", "strategy"),
    *("transfer", "waiting", "eval", "checkpoint", "other"),
)
AS = {"comm": "transfer"}  # in runs without a ledger
LEAST_SHARE = 0.002  # of the longest bar


class SecondsRow(TypedDict):
    """A piece of a rank's bar."""

    rank: str
    bucket: str
    order: int
    """The bucket's position, from the left."""
    seconds: float


def seconds_rows(run: RunData) -> list[SecondsRow]:
    """Return the pieces that are large enough to be seen."""
    longest_s = max((rank.total_s for rank in run.ranks), default=0.0)
    rows: list[SecondsRow] = []
    for rank in run.ranks:
        sums: dict[str, float] = {}
        for name, value in rank.seconds.items():
            if name != "total":
                bucket = AS.get(name, name)
                bucket = bucket if bucket in BUCKETS else "other"
                sums[bucket] = sums.get(bucket, 0.0) + value
        rows += [
            {
                "rank": rank.name,
                "bucket": bucket,
                "order": BUCKETS.index(bucket),
                "seconds": round(s, 3),
            }
            for bucket, s in sorted(sums.items(), key=lambda item: BUCKETS.index(item[0]))
            if s > LEAST_SHARE * longest_s
        ]
    return rows


def seconds_chart(run: RunData) -> Chart | None:
    """Return the chart; None if no rank counted its seconds."""
    counting = [rank.name for rank in run.ranks if rank.seconds]
    names = counting[:MOST_LANES]
    drawn = set(names)
    rows = [row for row in seconds_rows(run) if row["rank"] in drawn]
    if not rows:
        return None
    kinds = [bucket for bucket in BUCKETS if any(row["bucket"] == bucket for row in rows)]
    caption = "One bar a rank, all on one scale. Exactly one bucket runs at any time: a bar is the rank's whole life."
    caption += cut_words(len(counting), MOST_LANES, "ranks")
    wide, narrow = (_spec(px, names, kinds) for px in (WIDE_PX, NARROW_PX))
    return Chart("seconds", caption, wide, narrow, {"seconds": rows})


def _spec(width_px: int, names: list[str], kinds: list[str]) -> Spec:
    columns = {"columns": 4} if width_px == NARROW_PX else {}
    height = row_px(len(names))
    return spec(width_px) | {
        "height": height * len(names),
        "data": {"name": "seconds"},
        "mark": {"type": "bar", "height": {"band": 0.72 if height > 12 else 0.9}},
        "encoding": {
            "y": {"field": "rank", **row_axis(names)},
            "x": quantitative("seconds", "seconds") | {"stack": "zero"},
            "color": {
                "field": "bucket",
                "type": "nominal",
                "scale": kind_scale(kinds),
                "legend": columns,
            },
            "order": {"field": "order"},
            "tooltip": [
                {"field": "rank", "type": "nominal"},
                {"field": "bucket", "type": "nominal"},
                {"field": "seconds", "type": "quantitative", "format": ".2f"},
            ],
        },
    }
