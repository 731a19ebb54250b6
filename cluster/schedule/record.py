"""Events of a schedule as run.yml keeps them, resolved, so that they can be read back. Pure, except for reading traces.

A profile is written out in full; a trace is recorded by its path and its file's sha256.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from cluster.base.errors import UsageError, unknown
from cluster.links.changes import LONGEST_S, Change, make_changes, make_pairs
from cluster.links.link_spec import profile_document, read_profile
from cluster.links.traces import Playback, load_trace
from cluster.schedule.events import Event
from cluster.schedule.schedule_file import parse_cpus, parse_partition
from protocol.link import LIMITS
from protocol.reader import FormatError, document, read, within

Seconds = Annotated[float, within(0, LONGEST_S)]


class ChangeRecord(NamedTuple):
    """New values of one directed link."""

    src: str
    """The node that sends on it."""
    dst: str
    """The node that receives on it."""
    values: dict[str, float]
    """The new values, by their names in links.json."""


class TraceRecord(NamedTuple):
    """A trace and the links that it is played on."""

    path: str
    """Absolute path of its file."""
    sha256: str
    """sha256 of its file when the run began: a file that differs is not played again."""
    links: list[tuple[str, str]]
    """Each as sending node, receiving node."""
    loops: bool
    """Whether it starts again at its end."""
    for_s: Seconds | None = None
    """Seconds after which it ends; null: at its end, or never if it loops."""


class EventRecord(NamedTuple):
    """One event during a run. Keys with their default value are left out."""

    words: str
    """The event as the schedule has it, for the reader."""
    after_s: Seconds = 0.0
    """Seconds from the start of the ranks, or from `step`."""
    step: Annotated[int, within(1, 10**9)] | None = None
    """A step of rank 0; null: seconds count from the start."""
    for_s: Seconds | None = None
    """Its duration in seconds; null: to the end of the run."""
    profile: dict[str, object] | None = None
    """The links' profile from then on, with its name and all its values."""
    changes: list[ChangeRecord] = []
    """New values of single links."""
    trace: TraceRecord | None = None
    """The trace that is played on some links."""
    partition: list[list[str]] = []
    """Sets of nodes between which no packet gets through."""
    cpus: dict[str, float | None] = {}
    """Number of cores that a node may use from then on, by node or for `all`; null: no limit."""
    heal: bool = False
    """Whether it restores the state at the start."""


def event_record(event: Event) -> dict[str, object]:
    """Return an event as run.yml has it, without default values."""
    record = EventRecord(
        event.words,
        event.after_s,
        event.step,
        event.for_s,
        profile_document(event.profile) if event.profile else None,
        [ChangeRecord(change.src, change.dst, dict(change.values)) for change in event.changes],
        _trace_record(event.playback) if event.playback else None,
        [list(nodes) for nodes in event.partition],
        dict(event.cpus),
        event.heal,
    )
    usual = EventRecord._field_defaults
    said = {key: value for key, value in record._asdict().items() if value != usual.get(key, "")}
    return {"words": event.words} | {key: document(value) for key, value in said.items()}


def read_events(records: object, source: str) -> tuple[Event, ...]:
    """Read events from run.yml; `source` is named in errors.

    Raises:
        UsageError: the records are not valid events, or a trace's file is gone or has changed.
    """
    try:
        found = read(list[EventRecord], records)
    except FormatError as error:
        raise UsageError(f"{source}: events{error}", "use run.yml as the run wrote it") from None
    return tuple(_read_event(one, f"{source}: events[{n}]") for n, one in enumerate(found))


def _read_event(record: EventRecord, place: str) -> Event:
    try:
        return Event(
            words=record.words,
            after_s=record.after_s,
            step=record.step,
            for_s=record.for_s,
            profile=None if record.profile is None else read_profile(record.profile),
            changes=_read_changes(record.changes),
            playback=None if record.trace is None else _read_trace(record.trace),
            partition=parse_partition(record.partition) if record.partition else (),
            cpus=parse_cpus(record.cpus) if record.cpus else {},
            heal=record.heal,
        )
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}", error.hint) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # see LinkSpec.from_origin
        raise UsageError(f"{place}: profile cannot be read: {str(error)[:200]}") from None


def _read_changes(records: Sequence[ChangeRecord]) -> tuple[Change, ...]:
    found: list[Change] = []
    for record in records:
        if strange := next((name for name in record.values if name not in LIMITS), None):
            raise unknown("value of a link:", strange, LIMITS)
        found += make_changes([f"{record.src}:{record.dst}"], record.values, both=False)
    return tuple(found)


def _trace_record(playback: Playback) -> TraceRecord:
    trace = playback.trace
    return TraceRecord(
        trace.path, trace.sha256, list(playback.pairs), playback.loops, playback.for_s
    )


def _read_trace(record: TraceRecord) -> Playback:
    """Load a trace if its file has not changed."""
    try:
        trace = load_trace(Path(record.path))
    except ValueError as error:  # a null character in its path
        raise UsageError(f"trace: {error}") from None
    if trace.sha256 != record.sha256:
        raise UsageError(
            f"{record.path} is not the trace that was played: its sha256 differs",
            f"restore the file with sha256 {record.sha256[:64]}",
        )
    pairs = make_pairs([f"{src}:{dst}" for src, dst in record.links], both=False)
    return Playback(trace, tuple(pairs), record.loops, record.for_s)
