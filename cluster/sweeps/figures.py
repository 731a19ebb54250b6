"""The figures of one run of a sweep, from its folder: when it reached a target, and at what cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.accounting.metrics_table import Row, metric_rows
from cluster.accounting.wire_bytes import sent_by
from cluster.base.errors import UsageError
from cluster.reporting.values import number, numbers, record
from cluster.run.run_folder import last_events
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
        """Return the best of some values, rounded to 4 digits; None if there are none."""
        best = max if HIGHER[self.figure] else min
        return best((round(value, 4) for value in values), default=None)


@dataclass(frozen=True)
class Figures:
    """The figures of one run; None: it has no such figure.

    Attributes:
        target: the target whose figure its tests have.
        reached_s: seconds from when the first rank was ready to the end of the first step whose test met the target.
        reached_step: that step.
        reached_mbyte: payload that the strategy had sent by then, without headers.
        best: best value of all tests.
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
    total_bytes = number(record(summary.get("bytes")).get("total"))
    carried_bytes = None if total_bytes is None else total_bytes - tests_bytes(folder, summary)
    return make_figures(steps, summary, target, carried_bytes)


def make_figures(
    steps: Sequence[Row],
    summary: Mapping[str, object],
    target: Target | None,
    carried_bytes: float | None,
) -> Figures:
    """Return the figures of one run from parsed values; `steps` are rows of `cluster.accounting.metrics_table`."""
    tests = [row for row in steps if target and row["rank"] == 0 and target.figure in row]
    first = next((row for row in tests if target and target.is_reached(row[target.figure])), None)
    seconds = numbers(next(iter(record(summary.get("seconds")).values()), None))
    wall_s = number(summary.get("wall_s"))
    return Figures(
        target,
        round(first["elapsed_s"], 1) if first else None,
        first["step"] if first else None,
        round(payload_to(first, steps) / 1e6, 1) if first else None,
        target.best(row[target.figure] for row in tests) if target else None,
        None if carried_bytes is None else round(carried_bytes / 1e6, 1),
        round(loop_s(seconds), 2) if seconds else None,
        communication_share(seconds) if seconds else None,
        None if wall_s is None else round(wall_s, 2),
        _limits(summary),
    )


def steps_of(folder: Path) -> list[Row]:
    """Return every step of every rank, as `cluster.accounting.metrics_table` does; empty if there are no metrics."""
    try:
        return metric_rows(folder)
    except UsageError:
        return []


def tests_bytes(folder: Path, summary: Mapping[str, object]) -> int:
    """Return the bytes that links carried for tests, headers included, computed from what ranks report as sent."""
    nodes = list(record(summary.get("exit_codes")))
    total = 0
    for node in nodes:
        end = last_events(folder, node).end
        tests = [one for one in end.collectives if one.purpose == "eval"] if end else []
        for sent in sent_by(nodes, node, tests):
            total += sent.forward_bytes + sent.answer_bytes + sent.ack_bytes
    return total


def payload_to(row: Row, steps: Sequence[Row]) -> int:
    """Return the payload bytes that the strategy had sent on all ranks by the end of a step, without headers."""
    return sum(one["sent_bytes_so_far"] for one in steps if one["step"] == row["step"])


def loop_s(seconds: Mapping[str, float]) -> float:
    """Return a rank's seconds of training: from when it was ready until the last step, without tests."""
    return seconds["total"] - seconds["startup"] - seconds["eval"]


def communication_share(seconds: Mapping[str, float]) -> float | None:
    """Return the share of a rank's training time spent waiting for other ranks, or for data in flight."""
    whole_s = loop_s(seconds)
    return round((seconds["transfer"] + seconds["waiting"]) / whole_s, 3) if whole_s > 0 else None


def _limits(summary: Mapping[str, object]) -> tuple[str, ...]:
    said = record(summary.get("host")).get("limits")
    return (
        tuple(words for words in said if isinstance(words, str)) if isinstance(said, list) else ()
    )


def _target(steps: Sequence[Row], targets: Mapping[str, float]) -> Target | None:
    """Return the first target whose figure the tests have; without any such test the first target."""
    tested = {name for row in steps for name in row}
    known = [Target(figure, value) for figure, value in targets.items()]
    return next((one for one in known if one.figure in tested), next(iter(known), None))
