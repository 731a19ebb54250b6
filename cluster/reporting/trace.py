"""A run as Perfetto's UI reads it: the JSON trace event format, all ranks and links on one clock. Pure.

    ranks   one track per rank: steps, in them collectives and tests, in collectives waiting and transfer
    links   one track per sender and receiver: the longest time that bytes may have been in flight
    arrows  from when a rank could begin to send to when the receiving rank was done
    marks   actions of the schedule

Slices of a track must nest, or Perfetto drops them: a slice that crosses the end of a step is cut there, and
overlapping slices of a link get additional tracks. Times are whole microseconds, so that they nest exactly. The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from cluster.reporting.run_data import Measure, Move, RunData, StepPoint

RANKS, LINKS = 1, 2  # process IDs in the trace
MOST_ARROWS = 20_000
Event = dict[str, object]


@dataclass(frozen=True)
class Piece:
    """A slice of a track with its nested slices; times in microseconds."""

    name: str
    start_us: int
    end_us: int
    arguments: Mapping[str, object]
    children: Sequence["Piece"] = ()

    def clipped(self, start_us: int, end_us: int) -> "Piece":
        """Return the part of the slice, and of its nested slices, between two moments."""
        start, end = max(self.start_us, start_us), min(self.end_us, end_us)
        inside = [child.clipped(start, end) for child in self.children]
        kept = [child for child in inside if child.end_us > child.start_us]
        return Piece(self.name, start, end, self.arguments, kept)


def trace(run: RunData) -> Event:
    """Return the whole document."""
    events = [_named(RANKS, None, "ranks"), _named(LINKS, None, "links")]
    moves, steps = _grouped(run.moves), _grouped(run.steps)
    tests = _grouped(one for one in run.measures if one.name == "eval_s")
    for rank, one in enumerate(run.ranks):
        events.append(_named(RANKS, rank + 1, one.name))
        own = steps.get(rank, []), moves.get(rank, []), tests.get(rank, [])
        pieces = rank_pieces(run.starts_s.get(rank, 0.0), *own)
        events += [event for piece in pieces for event in _slices(piece, RANKS, rank + 1)]
    events += _link_events(run)
    events += _arrows(run)
    events += [
        {"ph": "i", "s": "g", "name": one.what, "pid": RANKS, "tid": 0, "ts": _us(one.at_s)}
        for one in run.events
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run.name}}


def _grouped(items: Iterable[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for one in items:
        groups.setdefault(one.rank, []).append(one)
    return groups


def _us(seconds: float) -> int:
    return max(0, round(seconds * 1e6))


def _named(process: int, track: int | None, name: str) -> Event:
    kind = "process_name" if track is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": process, "tid": track or 0, "args": {"name": name}}


def rank_pieces(
    start_s: float, steps: Sequence[StepPoint], moves: Sequence[Move], tests: Sequence[Measure]
) -> list[Piece]:
    """Return a rank's track: slices that do not overlap, in time order."""
    inner = _apart([*map(_collective, moves), *map(_test, tests)])
    outer, until_us = [], _us(start_s)
    for step in sorted(steps, key=lambda one: one.at_s):
        end_us = _us(step.at_s)
        if end_us > until_us:
            seconds = {"compute_s": step.compute_s, "strategy_s": step.strategy_s}
            arguments = {"loss": step.loss, **seconds, "comm_s": step.comm_s}
            outer.append(Piece(f"step {step.step}", until_us, end_us, arguments))
        until_us = max(until_us, end_us)
    return _nested(outer, inner)


def _collective(move: Move) -> Piece:
    """Return the part of a collective in which the rank did nothing else."""
    start, end = _us(move.waited_from_s), _us(move.ended_s)
    met = min(max(_us(move.complete_s), start), end)
    arguments = {"bytes": move.size_bytes, "for": move.purpose, "number": move.number}
    parts = [Piece("waiting", start, met, {}), Piece("transfer", met, end, {})]
    children = [part for part in parts if part.end_us > part.start_us]
    return Piece(move.kind, start, end, arguments, children)


def _test(one: Measure) -> Piece:
    return Piece("eval", _us(one.at_s - one.value), _us(one.at_s), {"step": one.step})


def _apart(pieces: Iterable[Piece]) -> list[Piece]:
    found: list[Piece] = []
    end_us = 0
    for piece in sorted(pieces, key=lambda one: (one.start_us, -one.end_us)):
        cut = piece.clipped(end_us, piece.end_us)
        if cut.end_us > cut.start_us:
            found.append(cut)
            end_us = cut.end_us
    return found


def _nested(outer: Sequence[Piece], inner: Sequence[Piece]) -> list[Piece]:
    """Put each inner piece into the outer one that contains its midpoint, or between two outer ones."""
    starts = [piece.start_us for piece in outer]
    within: dict[int, list[Piece]] = {}
    alone: list[Piece] = []
    for piece in inner:
        index = bisect_right(starts, (piece.start_us + piece.end_us) // 2) - 1
        if index >= 0 and (piece.start_us + piece.end_us) // 2 < outer[index].end_us:
            cut = piece.clipped(outer[index].start_us, outer[index].end_us)
            within.setdefault(index, []).append(cut)
        else:
            before = outer[index].end_us if index >= 0 else 0
            after = outer[index + 1].start_us if index + 1 < len(outer) else piece.end_us
            alone.append(piece.clipped(before, after))
    holding = [
        Piece(one.name, one.start_us, one.end_us, one.arguments, within.get(index, ()))
        for index, one in enumerate(outer)
    ]
    kept = [piece for piece in alone if piece.end_us > piece.start_us]
    return sorted([*holding, *kept], key=lambda one: one.start_us)


def _slices(piece: Piece, process: int, track: int) -> Iterator[Event]:
    yield {
        "ph": "X",
        "name": piece.name,
        "pid": process,
        "tid": track,
        "ts": piece.start_us,
        "dur": piece.end_us - piece.start_us,
        "args": piece.arguments,
    }
    for child in piece.children:
        yield from _slices(child, process, track)


def _link_events(run: RunData) -> list[Event]:
    """Return the events of each sender and receiver, on as many tracks as needed."""
    pairs: dict[tuple[int, int], list[Piece]] = {}
    for move in run.moves:
        for peer, count in move.to.items():
            start, end = _us(move.entered_s), _us(move.ended_s)
            if count and end > start and peer < len(run.ranks):
                arguments = {"bytes": count, "mbyte_s_at_least": round(count / (end - start), 3)}
                piece = Piece(move.kind, start, end, arguments)
                pairs.setdefault((move.rank, peer), []).append(piece)
    events: list[Event] = []
    track = 0
    for src, dst in sorted(pairs):
        for index, lane in enumerate(_lanes(pairs[src, dst])):
            track += 1
            more = f" ({index + 1})" if index else ""
            name = f"{run.rank_name(src)}->{run.rank_name(dst)}{more}"
            events.append(_named(LINKS, track, name))
            events += [event for piece in lane for event in _slices(piece, LINKS, track)]
    return events


def _lanes(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Distribute pieces over as few lists as possible, without overlaps within a list: each into the first free one."""
    lanes: list[list[Piece]] = []
    free: list[int] = []  # heaps, as there may be many lists
    busy: list[tuple[int, int]] = []  # until when, and which
    for piece in sorted(pieces, key=lambda one: one.start_us):
        while busy and busy[0][0] <= piece.start_us:
            heappush(free, heappop(busy)[1])
        index = heappop(free) if free else len(lanes)
        lanes += [[]] if index == len(lanes) else []
        lanes[index].append(piece)
        heappush(busy, (piece.end_us, index))
    return lanes


def _arrows(run: RunData) -> Iterator[Event]:
    """Yield arrows from a sender's slice to the receiver's, if both are drawn."""
    parts = {(move.number, move.rank): move for move in run.moves if move.kind != "exchange"}
    number = 0
    for move in run.moves:
        for peer in move.to:
            heard = parts.get((move.number, peer))
            if heard is None or heard is move or number == MOST_ARROWS or move.kind == "exchange":
                continue
            number += 1
            sent_us = _us(max(move.waited_from_s, min(move.complete_s, move.ended_s))) + 1
            same = {"cat": "bytes", "name": "bytes", "id": number, "pid": RANKS}
            yield {"ph": "s", **same, "tid": move.rank + 1, "ts": min(sent_us, _us(move.ended_s))}
            end_us = max(_us(heard.ended_s) - 1, sent_us)
            yield {"ph": "f", "bp": "e", **same, "tid": peer + 1, "ts": end_us}
