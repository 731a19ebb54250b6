"""The state document of a run: what screens, the page, `--json` and live.json show. Pure values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from cluster.base.json_file import finite

VERSION = 1
MOST_BYTES = 1 << 23  # 64 nodes, a full mesh: 0.7 MB
PHASES = ("starting", "measuring", "running", "collecting", "ended")
T = TypeVar("T")


@dataclass(frozen=True)
class RankRow:
    """One rank.

    Attributes:
        state: a word of `tracker.STATES`.
        doing: more of it: the collective, for whom it waits; may be empty.
        score: of its last test, `accuracy 0.861`; may be empty.
        computing, communicating: shares of its time so far, 0 to 1; None where nobody can tell.
        exit_code: once it has ended.
        silent_s: for how long its node has not been heard of.
    """

    name: str
    node: str
    rank: int
    state: str
    doing: str = ""
    step: int | None = None
    loss: float | None = None
    score: str = ""
    computing: float | None = None
    communicating: float | None = None
    restarts: int = 0
    exit_code: int | None = None
    silent_s: float = 0.0


@dataclass(frozen=True)
class LinkRow:
    """One link. Bytes and packets are those since the ranks were started.

    Attributes:
        asked_mbyte_s: by the plan in force.
        mbyte_s: between the node's last two looks; None before there are two.
        backlog_bytes: waiting in its queue.
    """

    src: str
    dst: str
    asked_mbyte_s: float
    mbyte_s: float | None = None
    sent_bytes: float = 0.0
    backlog_bytes: float = 0.0
    dropped_packets: float = 0.0


@dataclass(frozen=True)
class EventRow:
    """What a schedule did, so many seconds after the ranks were started."""

    after_s: float
    what: str


@dataclass(frozen=True)
class LineRow:
    """A line that a rank printed."""

    name: str
    line: str


@dataclass(frozen=True)
class HistoryRow:
    """The run at one moment: what all links carried together, rank 0's loss and step."""

    at_s: float
    mbyte_s: float
    loss: float | None
    step: int | None


@dataclass(frozen=True)
class LiveState:
    """A run at one moment.

    Attributes:
        folder: the run folder.
        profile: of its links; '' where nothing is shaped.
        phase: one of PHASES.
        time: of this document, Unix time.
        elapsed_s: since the launch began to work on it.
        interval_s: how often nodes look.
        step, steps: done and planned; None where nobody knows.
        steps_s: how many a second, of late.
        left_s: until the last one, at that speed.
        computing, communicating, other: shares of the ranks' time so far; None where nobody can tell.
        told_by: what these shares are from: "metrics", "looks" (states seen once a second), or ''.
        notes: sentences.
        nodes_cpu_pct: what telemetry takes on all nodes together, of one processor; None: nobody knows yet.
        host_cpu_pct: what it takes to make and show this document, likewise, on the host; SSH is not in it.
    """

    run: str
    folder: str
    program: str
    profile: str
    phase: str
    time: float
    elapsed_s: float
    interval_s: float = 1.0
    step: int | None = None
    steps: int | None = None
    steps_s: float | None = None
    left_s: float | None = None
    computing: float | None = None
    communicating: float | None = None
    other: float | None = None
    told_by: str = ""
    ranks: tuple[RankRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    lines: tuple[LineRow, ...] = ()
    history: tuple[HistoryRow, ...] = ()
    notes: tuple[str, ...] = ()
    nodes_cpu_pct: float | None = None
    host_cpu_pct: float | None = None
    version: int = VERSION

    @property
    def is_over(self) -> bool:
        """Whether there will be no other."""
        return self.phase == "ended"


ROWS: Mapping[str, type] = {
    "ranks": RankRow,
    "links": LinkRow,
    "events": EventRow,
    "lines": LineRow,
    "history": HistoryRow,
    "notes": str,
}
HINTS = {kind: get_type_hints(kind) for kind in (LiveState, *ROWS.values()) if kind is not str}


def to_json(state: LiveState) -> str:
    """One line, in JSON proper: no NaN."""
    # dataclasses.asdict would take ten times as long over the 4032 links of 64 nodes.
    rows = {
        key: [one if kind is str else vars(one) for one in getattr(state, key)]
        for key, kind in ROWS.items()
    }
    document = vars(state) | rows
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(document), separators=(",", ":"), allow_nan=False)


def parse_state(text: str | bytes) -> LiveState | None:
    """What `to_json` wrote; None where it is of another version, cut short, or none at all."""
    if len(text) > MOST_BYTES:
        return None
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or said.get("version") != VERSION:
            return None
        rows = {key: tuple(_row(kind, one) for one in said[key]) for key, kind in ROWS.items()}
        return _record(LiveState, said | rows)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _row(kind: type, said: object) -> object:
    return said if kind is str and isinstance(said, str) else _record(kind, said)


def _record(kind: type[T], said: object) -> T:
    """A record of what JSON has for it.

    Raises:
        TypeError: a key is missing or strange, or a value of another type.
    """
    if not isinstance(said, dict):
        raise TypeError(f"no {kind.__name__}")
    hints = HINTS[kind]
    known = {key: value for key, value in said.items() if key in hints}  # a later version has more
    for key, value in known.items():
        if key not in ROWS and not _is_of(value, hints[key]):
            raise TypeError(f"{kind.__name__}: {key}")
    return kind(**known)


def _is_of(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type or a union of types
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None or isinstance(value, bool):
        return NoneType in kinds and value is None
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))
