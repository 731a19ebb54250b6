"""The times of a run folder that can be of its run. Nodes wrote most of them, and may have written anything.

One line with a time of 1970 would move the start of the whole report by decades. So times count from a day before the
launch until a day after its last live.json, which the host wrote. Without that file they count from a day before the
first event of the schedule, or else the median of the ranks' first lines, and for as long as a run can be.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high

from cluster.accounting.collectives import Collective
from cluster.reporting.link_stretches import LONGEST_S, Looks
from cluster.reporting.values import number, read_json, record
from protocol.metrics import Line, Start

LEEWAY_S = 86_400.0  # clocks and time zones of machines may be wrong
APART_S = 600.0  # between the ranks' starts: they wait for one another for less


@dataclass(frozen=True)
class Span:
    """The first and the last time that can be of a run, Unix time."""

    since: float
    until: float

    def holds(self, *times: float) -> bool:
        """Return whether all of some times can be of the run."""
        return all(self.since <= at <= self.until for at in times)


@dataclass(frozen=True)
class Recorded:
    """What was recorded during a run, with Unix times.

    Attributes:
        lines: each rank's metrics, by its name.
        collectives: of all ranks.
        events: of the schedule, as the host wrote them: time and words.
        looks: at links.
    """

    lines: Mapping[str, Sequence[Line]]
    collectives: Sequence[Collective]
    events: Sequence[tuple[float, str]]
    looks: Looks


def span_of(folder: Path, found: Recorded) -> Span:
    """Return the times that can be of a run, from live.json in its folder, else from what was recorded."""
    live = record(read_json(folder / "live.json"))
    at, elapsed_s = number(live.get("time")), number(live.get("elapsed_s"))
    if at is not None and elapsed_s is not None:
        return Span(at - elapsed_s - LEEWAY_S, at + LEEWAY_S)
    firsts = [own[0].time for own in found.lines.values() if own]
    known = [at for at, _ in found.events[:1]] or firsts
    if not known:
        return Span(0.0, math.inf)
    return Span(median_high(known) - LEEWAY_S, median_high(known) + LONGEST_S)


def within(span: Span, found: Recorded) -> Recorded:
    """Return what can be of the run."""
    lines = {
        name: [one for one in own if span.holds(one.time)] for name, own in found.lines.items()
    }
    collectives = [one for one in found.collectives if span.holds(*_times(one))]
    events = [one for one in found.events if span.holds(one[0])]
    looks = {
        name: [one for one in some if span.holds(one.at)] for name, some in found.looks.items()
    }
    known_looks = {name: some for name, some in looks.items() if some}
    return Recorded(lines, collectives, events, known_looks)


def began_at(found: Recorded) -> float:
    """Return the Unix time of the first known event; a rank counts from its program's start, if it reports that."""
    times = [own[0].time - _startup_s(own[0]) for own in found.lines.values() if own]
    times += [part.entered for one in found.collectives for part in one.parts]
    times += [at for at, _ in found.events]
    return min(times or [some[0].at for some in found.looks.values()], default=0.0)


def time_notes(found: Recorded, kept: Recorded) -> list[str]:
    """Return notes on what was left out for its times, and on clocks that may differ."""
    before, after = _counts(found), _counts(kept)
    lost = {what: count - after.get(what, 0) for what, count in before.items()}
    told = [f"{what} ({count:,})" for what, count in lost.items() if count]
    notes = [f"left out, as their times are not of this run: {', '.join(told)}"] if told else []
    firsts = [
        [one.time for one in own if isinstance(one, Start)][:1] for own in kept.lines.values()
    ]
    starts = [at for first in firsts for at in first]
    if starts and max(starts) - min(starts) > APART_S:
        notes.append(
            f"the ranks started {max(starts) - min(starts):,.0f} s apart: if the clocks of their machines differ, "
            "times of different ranks cannot be compared"
        )
    return notes


def _startup_s(line: Line) -> float:
    """Return how long before its first line a rank began."""
    found = line.seconds.get("total", 0.0) if isinstance(line, Start) else 0.0
    return found if 0.0 <= found < LEEWAY_S else 0.0


def _times(one: Collective) -> list[float]:
    return [one.complete_at, *(at for part in one.parts for at in (part.entered, part.ended))]


def _counts(found: Recorded) -> dict[str, int]:
    counts = {f"lines of {name}": len(own) for name, own in found.lines.items()}
    counts |= {"collectives": len(found.collectives), "events": len(found.events)}
    return counts | {"looks at links": sum(map(len, found.looks.values()))}
