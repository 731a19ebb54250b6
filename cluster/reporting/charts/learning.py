"""What was learnt: loss, tests and returns against steps, seconds, bytes and environment steps."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.reporting.charts.theme import (
    LINE_LEGEND,
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
from cluster.reporting.run_data import Measure, RunData, StepPoint

MOST_POINTS = 240  # per line; a panel has no pixels for more
MOST_ZOOMED = 5_000
TESTS = (
    *("test_accuracy", "test_return", "test_success", "validation_loss", "validation_bits"),
    *("test_loss", "test_length"),
)
LEARNERS = "replay_ratio"  # a figure that only a learner with actors has
AXES = {
    "step": "step",
    "at_s": "seconds",
    "sent_mb": "MB sent by all ranks",
    "env_steps": "environments' steps",
}


@dataclass(frozen=True)
class Figure:
    """The content of one row of panels.

    Attributes:
        rows: {"step", "at_s", "sent_mb", "env_steps", "value", "low", "high"}.
        is_line: a line with a band; else points, one per test.
    """

    name: str
    rows: Rows
    is_line: bool


def figures(run: RunData, most: int = MOST_POINTS) -> list[Figure]:
    """Return the figures that have at least two points: loss, the most important test, returns."""
    clock = Clock(run)
    found = [Figure("loss", loss_rows(run.steps, clock, most), is_line=True)]
    if chosen := chosen_test(run.measures):
        found.append(Figure(chosen, clock.rows(run.measures, chosen, most), is_line=False))
    returns = clock.rows(run.measures, "episode_return", most)
    found.append(Figure("episode_return", returns, is_line=False))
    return [figure for figure in found if len(figure.rows) > 1]


def chosen_test(*runs: Sequence[Measure]) -> str | None:
    """Return the name of the most important test that one of the runs made twice; None if none did."""
    counts = [Counter(one.name for one in measures) for measures in runs]
    return next((name for name in TESTS if any(count[name] > 1 for count in counts)), None)


class Clock:
    """The bytes sent and the environment steps made by any step or moment of a run."""

    def __init__(self, run: RunData) -> None:
        sent: dict[int, float] = {}
        for point in run.steps:
            sent[point.step] = sent.get(point.step, 0.0) + point.sent_bytes
        so_far, self._sent_mb = 0.0, {0: 0.0}
        for step in sorted(sent):
            so_far += sent[step]
            self._sent_mb[step] = round(so_far / 1e6, 3)
        self._ended_s: dict[int, float] = {}
        for point in run.steps:
            self._ended_s[point.step] = max(point.at_s, self._ended_s.get(point.step, 0.0))
        self._env_steps = _so_far(one for one in run.measures if one.name == "env_steps")
        self.has_env_steps = bool(self._env_steps)
        # Traffic between a learner and its actors belongs to no step; if it was killed, no summary tells what it was.
        is_learner = run.experience is not None or any(m.name == LEARNERS for m in run.measures)
        self.has_bytes = so_far > 0 and not is_learner

    def axes(self) -> list[str]:
        """Return the axes that are meaningful in this run."""
        more = (["sent_mb"] if self.has_bytes else []) + (
            ["env_steps"] if self.has_env_steps else []
        )
        return ["step", "at_s", *more]

    def place(self, step: int, at_s: float) -> dict[str, float]:
        """Return a moment's position on every axis on which it is known."""
        found: dict[str, float] = {"step": step, "at_s": round(at_s, 3)}
        if self.has_bytes and step in self._sent_mb:
            found["sent_mb"] = self._sent_mb[step]
        before = (
            [steps for when_s, steps in self._env_steps if when_s <= at_s]
            if self._env_steps
            else []
        )
        return found | ({"env_steps": before[-1]} if before else {})

    def rows(self, measures: Iterable[Measure], name: str, most: int) -> Rows:
        """Return the rows of one figure of tests or rollouts; of too many, every second, third, … and the last.

        A test is placed where its step ended, because with `--eval after` it is made much later.
        """
        chosen = [one for one in measures if one.name == name]
        stride = _stride(len(chosen), most)
        kept = chosen[::stride] + (chosen[-1:] if (len(chosen) - 1) % stride else [])
        ended_s = self._ended_s if name in TESTS else {}
        moments = [ended_s.get(one.step, one.at_s) for one in kept]
        return [
            self.place(one.step, at_s) | {"value": one.value}
            for one, at_s in zip(kept, moments, strict=True)
        ]


def _stride(count: int, most: int) -> int:
    return max(1, -(-count // most))


def _so_far(counts: Iterable[Measure]) -> list[tuple[float, float]]:
    """Return (time, steps made so far by the environments of all ranks)."""
    latest: dict[int, float] = {}
    found: list[tuple[float, float]] = []
    for one in sorted(counts, key=lambda one: one.at_s):
        latest[one.rank] = one.value
        found.append((one.at_s, sum(latest.values())))
    return found[:: max(1, len(found) // 500)]


def loss_rows(steps: Sequence[StepPoint], clock: Clock, most: int = MOST_POINTS) -> Rows:
    """Return mean, lowest and highest loss over ranks per step; if there are many, per group of consecutive steps."""
    by_step: dict[int, list[StepPoint]] = {}
    for point in steps:
        if point.loss is not None:
            by_step.setdefault(point.step, []).append(point)
    numbers = sorted(by_step)
    stride = _stride(len(numbers), most)
    return [
        _together(by_step, numbers[at : at + stride], clock)
        for at in range(0, len(numbers), stride)
    ]


def _together(
    by_step: Mapping[int, Sequence[StepPoint]], some: Sequence[int], clock: Clock
) -> dict[str, float]:
    points = [point for step in some for point in by_step[step]]
    losses = [point.loss for point in points if point.loss is not None]
    place = clock.place(some[-1], max(point.at_s for point in by_step[some[-1]]))
    value = sum(losses) / len(losses)
    return place | {
        "value": round(value, 5),
        "low": round(min(losses), 5),
        "high": round(max(losses), 5),
    }


def learning_chart(run: RunData) -> Chart | None:
    """Return small panels, one row per figure, each row on one scale; None if no figure has two points."""
    found = figures(run)
    if not found:
        return None
    axes = Clock(run).axes()
    caption = f"The same points against each of what they cost. {line_words(run)}"
    wide = _panels(found, axes, (WIDE_PX - 150) // len(axes), across=True)
    narrow = _panels(found, axes, NARROW_PX - 62, across=False)
    data = {figure.name: figure.rows for figure in figures(run, MOST_ZOOMED)}
    return Chart("learning", caption, wide, narrow, data, {f.name: f.rows for f in found})


def line_words(run: RunData) -> str:
    """Say what a point of the line is the mean of: of long runs, also of several steps."""
    steps = len({point.step for point in run.steps if point.loss is not None})
    drawn, explored = (_over(_stride(steps, most)) for most in (MOST_POINTS, MOST_ZOOMED))
    more = f"; explored, over {explored}" if explored != drawn else ""
    return f"The line is the mean over {drawn}, the band their lowest and highest{more}."


def _over(steps: int) -> str:
    return f"ranks and {steps} steps at a time" if steps > 1 else "ranks"


def _panels(found: Sequence[Figure], axes: Sequence[str], width_px: int, *, across: bool) -> Spec:
    rows = [
        {"hconcat" if across else "vconcat": [_panel(figure, axis, width_px) for axis in axes]}
        for figure in found
    ]
    spacing = 24 if across else 12
    return {
        "$schema": SCHEMA,
        **frame(),
        "autosize": {"type": "pad"},
        "spacing": spacing,
        "vconcat": rows,
    }


def _panel(figure: Figure, axis: str, width_px: int) -> Spec:
    title = figure.name.replace("_", " ")
    x = quantitative(axis, AXES[axis]) | {
        "axis": {"tickCount": 5} | ({} if axis in ("at_s", "sent_mb") else {"format": "~s"}),
        "scale": {"nice": False},
    }
    y: Spec = {"field": "value", "type": "quantitative", "scale": {"zero": False}, "title": title}
    y |= {"axis": {"tickCount": 4}}
    tooltip = [
        {"field": axis, "title": AXES[axis]},
        {"field": "value", "title": title, "format": ".4f"},
    ]
    if figure.is_line:
        layers = [
            {
                "mark": {
                    "type": "area",
                    "opacity": 0.18,
                    "color": colour("compute"),
                    "line": False,
                },
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {
                    "type": "line",
                    "color": colour("compute"),
                    "strokeWidth": 1.6,
                    "interpolate": "linear",
                },
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            },
        ]
    else:
        mark: Spec = {
            "type": "line",
            "color": colour("eval"),
            "point": {"color": colour("eval"), "size": 28},
        }
        if figure.name == "episode_return":
            mark = {
                "type": "point",
                "color": colour("rollout"),
                "filled": True,
                "size": 14,
                "opacity": 0.6,
            }
        layers = [{"mark": mark, "encoding": {"x": x, "y": y, "tooltip": tooltip}}]
    return {"width": width_px, "height": 150, "data": {"name": figure.name}, "layer": layers}


def staleness_chart(run: RunData) -> Chart | None:
    """Return how old experience was when the learner could learn it, so far; None for runs without actors."""
    rows: Rows = [
        {"at_s": round(one.at_s, 3), "value": one.value, "of": name, "which": which}
        for one in run.measures
        for name, _, which in [one.name.partition(" ")]
        if name == "staleness_updates" and which
    ]
    if len(rows) < 2:
        return None
    caption = "Staleness so far: updates between the weights that acted and the first that can learn from the result."
    wide, narrow = (_staleness(px) for px in (WIDE_PX, NARROW_PX))
    return Chart("staleness", caption, wide, narrow, {"staleness": rows})


def _staleness(width_px: int) -> Spec:
    scale = {"domain": ["median", "p95"], "range": [colour("compute"), colour("transfer")]}
    encoding = {
        "x": quantitative("at_s", "seconds") | {"scale": {"nice": False}},
        "y": quantitative("value", "updates") | {"axis": {"tickCount": 4}},
        "color": {"field": "which", "type": "nominal", "scale": scale, "legend": LINE_LEGEND},
        "tooltip": [{"field": "which"}, {"field": "value"}, {"field": "at_s"}],
    }
    base: Spec = {"$schema": SCHEMA, "width": width_px, "height": 150, **frame()}
    return base | {"data": {"name": "staleness"}, "mark": {"type": "line"}, "encoding": encoding}
