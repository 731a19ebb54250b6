"""The figures of one run of a sweep, from its folder: when it reached a target, and at what cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.accounting.metrics_table import Row, metric_rows
from cluster.base.errors import UsageError
from cluster.reporting.values import number, numbers, record
from cluster.sweeps.sweep_file import HIGHER


@dataclass(frozen=True)
class Target:
    """A figure of a run's tests, and the value that it has to reach."""

    figure: str
    value: float

    def is_reached(self, value: float) -> bool:
        """Return whether a test's value reaches the target."""
        return value >= self.value if HIGHER[self.figure] else value <= self.value

    def best(self, values: Iterable[float]) -> float | None:
        """Return the best of some values, rounded to 4 digits; those of a diverged training (NaN) do not count."""
        best = max if HIGHER[self.figure] else min
        return best((round(value, 4) for value in values if math.isfinite(value)), default=None)


@dataclass(frozen=True)
class Figures:
    """The figures of one run; None: it has no such figure.

    Attributes:
        target: the target whose figure its tests have.
        reached_s: seconds from when the first rank was ready to the end of the first step whose test met the target.
        reached_step: that step.
        reached_mbyte: payload that the strategy had sent by then, without headers; None also of a learner with actors,
            as what these sent belongs to no step.
        best: best value of all tests; None if all are NaN.
        carried_mbyte: carried by all links together, headers included, without the traffic of tests.
        loop_s: seconds of rank 0's training, without startup and tests.
        communication_share: share of loop_s spent waiting for other ranks or for data in flight.
        wall_s: seconds of the whole run.
        limits: in what way the host was the limit; empty if it was not.
    """

    target: Target | None = None
    reached_s: float | None = None
    reached_step: int | None = None
    reached_mbyte: float | None = None
    best: float | None = None
    carried_mbyte: float | None = None
    loop_s: float | None = None
    communication_share: float | None = None
    wall_s: float | None = None
    limits: Sequence[str] = ()


def run_figures(
    folder: Path, summary: Mapping[str, object], targets: Mapping[str, float]
) -> Figures:
    """Return the figures of one run, for the first of the targets whose figure its tests have."""
    steps = steps_of(folder)
    target = _target(steps, targets)
    return make_figures(steps, summary, target, training_bytes(summary))


def make_figures(
    steps: Sequence[Row],
    summary: Mapping[str, object],
    target: Target | None,
    carried_bytes: float | None,
) -> Figures:
    """Return the figures of one run from parsed values; `steps` are rows of `cluster.accounting.metrics_table`."""
    tests = [row for row in steps if target and row["rank"] == 0 and target.figure in row]
    first = next((row for row in tests if target and target.is_reached(row[target.figure])), None)
    first_rank = numbers(next(iter(record(summary.get("seconds")).values()), None))
    seconds = first_rank if "total" in first_rank else {}
    wall_s = number(summary.get("wall_s"))
    is_counted = not record(summary.get("experience"))
    return Figures(
        target,
        first["elapsed_s"] if first else None,
        first["step"] if first else None,
        round(payload_to(first, steps) / 1e6, 1) if first and is_counted else None,
        target.best(row[target.figure] for row in tests) if target else None,
        None if carried_bytes is None else round(carried_bytes / 1e6, 1),
        round(loop_s(seconds), 6) if seconds else None,
        communication_share(seconds) if seconds else None,
        wall_s,
        _limits(summary),
    )


def steps_of(folder: Path) -> list[Row]:
    """Return the rows of `cluster.accounting.metrics_table`: every step of every rank; empty without metrics."""
    try:
        return metric_rows(folder)
    except UsageError:
        return []


def training_bytes(summary: Mapping[str, object]) -> int | None:
    """Return the bytes that links carried, without those of tests; None if the summary does not say it."""
    found = record(summary.get("bytes"))
    total, tests = number(found.get("total")), number(found.get("tests"))
    return None if total is None or tests is None else round(total - tests)


def payload_to(row: Row, steps: Sequence[Row]) -> int:
    """Return the payload bytes that the strategy had sent by the end of a step, on all ranks."""
    return sum(one["sent_bytes_so_far"] for one in steps if one["step"] == row["step"])


def loop_s(seconds: Mapping[str, float]) -> float:
    """Return a rank's seconds of training: from when it was ready until the last step, without tests."""
    return seconds["total"] - seconds.get("startup", 0.0) - seconds.get("eval", 0.0)


def communication_share(seconds: Mapping[str, float]) -> float | None:
    """Return the share of `loop_s` that a rank waited for other ranks, or for data in flight."""
    whole_s = loop_s(seconds)
    waited_s = seconds.get("transfer", 0.0) + seconds.get("waiting", 0.0)
    return round(waited_s / whole_s, 3) if whole_s > 0 else None


def _limits(summary: Mapping[str, object]) -> tuple[str, ...]:
    said = record(summary.get("host")).get("limits")
    return (
        tuple(words for words in said if isinstance(words, str)) if isinstance(said, list) else ()
    )


def _target(steps: Sequence[Row], targets: Mapping[str, float]) -> Target | None:
    """Return the first target whose figure the tests have; if there is none, the first target."""
    tested = {name for row in steps for name in row}
    known = [Target(figure, value) for figure, value in targets.items()]
    return next((one for one in known if one.figure in tested), next(iter(known), None))
