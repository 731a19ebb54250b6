"""What each rank did over time, from its steps and its part in collectives. Pure.

A step line says when the step ended and how long it computed; the ledger says when each collective was entered, when
all ranks had arrived, and when it was done. Within a step, waiting and transfer therefore lie where they were measured,
and tests where they ended. Computing fills the free time from the front, for as long as it took, followed by the
strategy's own work; the rest is `other`.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from cluster.reporting.run_data import Measure, Move, RunData, StepPoint

LEAST_S = 1e-4
KINDS = ("startup", "rollout", "compute", "strategy", "transfer", "waiting", "eval", "other")
Span = tuple[float, float]
Ranked = TypeVar("Ranked", Measure, Move, StepPoint)


@dataclass(frozen=True)
class Slice:
    """One activity of a rank, in seconds since the run's first event.

    Attributes:
        kind: one of KINDS.
        label: details: the collective.
    """

    rank: int
    kind: str
    start_s: float
    end_s: float
    step: int
    label: str = ""


@dataclass(frozen=True)
class Lateness:
    """How often a rank entered a collective last, and how long the first that waited for it did so, in all."""

    rank: int
    times: int
    waited_s: float


def slices(run: RunData, most_ranks: int = sys.maxsize) -> list[Slice]:
    """Return slices by rank, of the first ranks, in time order; slices of one rank do not overlap."""
    moves, steps, measures = _by_rank(run.moves), _by_rank(run.steps), _by_rank(run.measures)
    found: list[Slice] = []
    for rank in range(min(len(run.ranks), most_ranks)):
        pieces = [piece for move in moves.get(rank, ()) for piece in move_slices(move)]
        own = measures.get(rank, [])
        busy = _apart(sorted(pieces + _tests(own), key=lambda one: one.start_s))
        found += _of_rank(rank, run.starts_s.get(rank), steps.get(rank, []), busy)
        if rank not in steps:
            found += _acting(run.starts_s.get(rank), own)
    return found


def _by_rank(items: Iterable[Ranked]) -> dict[int, list[Ranked]]:
    groups: dict[int, list[Ranked]] = {}
    for one in items:
        groups.setdefault(one.rank, []).append(one)
    return groups


def _of_rank(
    rank: int, start_s: float | None, steps: Iterable[StepPoint], busy: Sequence[Slice]
) -> list[Slice]:
    """Return the slices of the ledger and of tests, and between them those of steps."""
    found, ends_s = list(busy), [one.end_s for one in busy]
    begins_s = [one.start_s for one in busy[:1]] + ([] if start_s is None else [start_s])
    if begins_s and min(begins_s) > LEAST_S:
        found.append(Slice(rank, "startup", 0.0, min(begins_s), 0))
    until_s = max([start_s or 0.0, *(one.end_s for one in busy if one.step == 0)])
    for step in sorted(steps, key=lambda one: one.at_s):
        if until_s < step.at_s:
            first, last = bisect_right(ends_s, until_s), bisect_right(ends_s, step.at_s)
            found += _fill(step, until_s, busy[first : last + 1])
        until_s = max(until_s, step.at_s)
    return sorted(found, key=lambda one: one.start_s)


def _fill(step: StepPoint, start_s: float, busy: Sequence[Slice]) -> Iterator[Slice]:
    """Fill the free time of a step: computing first, for as long as it took, then strategy and communication.

    Communication is placed here only without a ledger; it counts as transfer, except what a learner waited: other ranks
    cannot tell waiting apart. The rest is `other`.
    """
    is_known = any(one.kind in ("transfer", "waiting") for one in busy)
    waiting_s = 0.0 if is_known else min(step.waiting_s, step.comm_s)
    left_s = {
        "compute": step.compute_s,
        "strategy": step.strategy_s,
        "transfer": 0.0 if is_known else step.comm_s - waiting_s,
        "waiting": waiting_s,
        "other": step.at_s - start_s,
    }
    for begin_s, end_s in _free(busy, start_s, step.at_s):
        at_s = begin_s
        for kind in left_s:
            until_s = min(end_s, at_s + left_s[kind])
            left_s[kind] -= until_s - at_s
            if until_s - at_s > LEAST_S:
                yield Slice(step.rank, kind, at_s, until_s, step.step)
            at_s = until_s


def _free(busy: Sequence[Slice], start_s: float, end_s: float) -> Iterator[Span]:
    for one in busy:
        if one.start_s > start_s:
            yield start_s, min(one.start_s, end_s)
        start_s = max(start_s, one.end_s)
    if start_s < end_s:
        yield start_s, end_s


def move_slices(move: Move) -> Iterator[Slice]:
    """Yield the time that a rank was blocked in a collective: waiting until all had arrived, then transfer."""
    label = f"{move.kind} of {move.size_bytes:,} bytes"
    met_s = min(max(move.complete_s, move.waited_from_s), move.ended_s)
    kinds = ("eval", "eval") if move.tests else ("waiting", "transfer")
    spans = ((move.waited_from_s, met_s), (met_s, move.ended_s))
    for kind, (start_s, end_s) in zip(kinds, spans, strict=True):
        if end_s - start_s > LEAST_S:
            yield Slice(move.rank, kind, start_s, end_s, move.step, label)


def _acting(start_s: float | None, own: Sequence[Measure]) -> Iterator[Slice]:
    """Yield the rollout of an actor, which has no steps: up to the last line about its environments."""
    last = max(
        (one for one in own if one.name == "env_steps"), key=lambda one: one.at_s, default=None
    )
    if start_s is not None and last is not None and last.at_s > start_s:
        yield Slice(last.rank, "rollout", start_s, last.at_s, 0)


def _tests(own: Sequence[Measure]) -> list[Slice]:
    return [
        Slice(one.rank, "eval", max(0.0, one.at_s - one.value), one.at_s, one.step)
        for one in own
        if one.name == "eval_s" and one.value > LEAST_S
    ]


def _apart(busy: Iterable[Slice]) -> list[Slice]:
    """Trim slices so that none begins before the previous one has ended."""
    found: list[Slice] = []
    end_s = 0.0
    for one in busy:
        start_s = max(one.start_s, end_s)
        if one.end_s - start_s > LEAST_S:
            found.append(Slice(one.rank, one.kind, start_s, one.end_s, one.step, one.label))
            end_s = one.end_s
    return found


def lateness(run: RunData) -> list[Lateness]:
    """Return lateness by rank, the longest waited for first; without exchanges, in which few ranks take part."""
    times: dict[int, int] = {}
    waited_s: dict[int, float] = {}
    together = [move for move in run.moves if not move.tests and move.kind != "exchange"]
    for _, group in groupby(together, key=lambda move: move.number):
        parts = list(group)
        last = max(parts, key=lambda move: move.entered_s)
        first = min(parts, key=lambda move: move.waited_from_s)
        if len(parts) > 1:
            met_s = min(first.complete_s, first.ended_s)
            times[last.rank] = times.get(last.rank, 0) + 1
            waited_s.setdefault(last.rank, 0.0)
            waited_s[last.rank] += max(0.0, met_s - first.waited_from_s)
    found = [Lateness(rank, times[rank], waited_s[rank]) for rank in times]
    return sorted(found, key=lambda one: -one.waited_s)


def thinned(found: Sequence[Slice], most: int) -> list[Slice]:
    """Return at most `most` slices, for a picture: the main kind in each time bin; equal neighbours are merged."""
    if len(found) <= most:
        return list(found)
    ranks = len({one.rank for one in found})
    end_s = max(one.end_s for one in found)
    bins = 2048
    while True:
        merged = _binned(found, bins, end_s / bins)
        if len(merged) <= most or bins * ranks <= most:
            return merged
        bins //= 2
        if bins < 1:
            return merged[:most]


def _binned(found: Sequence[Slice], bins: int, width_s: float) -> list[Slice]:
    merged: list[Slice] = []
    for rank, own in groupby(sorted(found, key=lambda one: one.rank), key=lambda one: one.rank):
        for index, kind in sorted(_majority(own, width_s).items()):
            before = merged[-1] if merged else None
            start_s, end_s = index * width_s, (index + 1) * width_s
            if (
                before
                and before.rank == rank
                and before.kind == kind
                and start_s - before.end_s < width_s / 2
            ):
                merged[-1] = Slice(rank, kind, before.start_s, end_s, 0)
            else:
                merged.append(Slice(rank, kind, start_s, end_s, 0))
    return merged


def _majority(own: Iterable[Slice], width_s: float) -> dict[int, str]:
    """Return the kind that fills most of each bin; bins less than a quarter full are left out."""
    seconds: dict[int, dict[str, float]] = {}
    for one in own:
        for index in range(int(one.start_s / width_s), int(one.end_s / width_s) + 1):
            inside_s = min(one.end_s, (index + 1) * width_s) - max(one.start_s, index * width_s)
            if inside_s > 0:
                kinds = seconds.setdefault(index, {})
                kinds[one.kind] = kinds.get(one.kind, 0.0) + inside_s
    chosen = {index: max(kinds, key=lambda kind: kinds[kind]) for index, kinds in seconds.items()}
    return {i: k for i, k in chosen.items() if sum(seconds[i].values()) > width_s / 4}
