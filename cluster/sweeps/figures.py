"""The figures of one run of a sweep, from its folder: when a target was reached, what it cost."""

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
    """A figure of a run's tests, and the value that it is to reach."""

    figure: str
    value: float

    def is_reached(self, value: float) -> bool:
        """Whether a test's value is good enough."""
        return value >= self.value if HIGHER[self.figure] else value <= self.value

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None of none."""
        best = max if HIGHER[self.figure] else min
        return best((round(value, 4) for value in values), default=None)


@dataclass(frozen=True)
class Figures:
    """The figures of one run. None: it has no such figure.

    Attributes:
        target: that its tests speak of.
        reached_s: from when the first rank was ready until the end of the step of which a test first says so.
        reached_step: that step.
        reached_mbyte: payload that the strategy had sent by then, without headers.
        best: the best value of all tests.
        carried_mbyte: by the links in all, headers included, without what tests sent.
        loop_s: seconds of rank 0's training, without start and tests.
        communication_share: of them, waiting for others or for what is on its way.
        wall_s: of the whole run.
        limits: in what way the host was the limit; empty: it was not.
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
    """All of one run; of several targets the one that its tests speak of."""
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
    """The same from what was read; `steps` are those of `cluster.accounting.metrics_table`."""
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
    """Every step of every rank, as `cluster.accounting.metrics_table` has them; none where there are no metrics."""
    try:
        return metric_rows(folder)
    except UsageError:
        return []


def tests_bytes(folder: Path, summary: Mapping[str, object]) -> int:
    """What links have carried for tests, headers included: by what the ranks say that they sent for them."""
    nodes = list(record(summary.get("exit_codes")))
    total = 0
    for node in nodes:
        end = last_events(folder, node).end
        tests = [one for one in end.collectives if one.purpose == "eval"] if end else []
        for sent in sent_by(nodes, node, tests):
            total += sent.forward_bytes + sent.answer_bytes + sent.ack_bytes
    return total


def payload_to(row: Row, steps: Sequence[Row]) -> int:
    """What the strategy had sent in all by a step, without headers."""
    return sum(one["sent_bytes_so_far"] for one in steps if one["step"] == row["step"])


def loop_s(seconds: Mapping[str, float]) -> float:
    """A rank's seconds of training: from when it was ready until the last step, without tests."""
    return seconds["total"] - seconds["startup"] - seconds["eval"]


def communication_share(seconds: Mapping[str, float]) -> float | None:
    """The share of a rank's seconds of training in which it waited for other ranks, or for data under way."""
    whole_s = loop_s(seconds)
    return round((seconds["transfer"] + seconds["waiting"]) / whole_s, 3) if whole_s > 0 else None


def _limits(summary: Mapping[str, object]) -> tuple[str, ...]:
    said = record(summary.get("host")).get("limits")
    return (
        tuple(words for words in said if isinstance(words, str)) if isinstance(said, list) else ()
    )


def _target(steps: Sequence[Row], targets: Mapping[str, float]) -> Target | None:
    """The first target whose figure the tests have; where there was no test, the first target."""
    tested = {name for row in steps for name in row}
    known = [Target(figure, value) for figure, value in targets.items()]
    return next((one for one in known if one.figure in tested), next(iter(known), None))
