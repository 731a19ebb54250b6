"""The state document of a run, which screens, the page, `--json` and live.json show. Pure values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from cluster.base.json_file import finite

VERSION = 1
MOST_BYTES = 1 << 23  # a full mesh of 64 nodes takes 0.7 MB
MOST_DIGITS = 300  # of whole numbers: a float holds 308
PHASES = ("starting", "measuring", "running", "collecting", "ended")
T = TypeVar("T")


@dataclass(frozen=True)
class RankRow:
    """One rank.

    Attributes:
        state: one of `rank_state.RANK_STATES`.
        doing: details: the collective, the ranks that it waits for; may be empty.
        bad_loss: "not a number" if the loss of its last step is NaN or infinite, else empty; `loss` is None then.
        score: result of its last test, such as `accuracy 0.861`; may be empty.
        computing, communicating: shares of its time so far, 0 to 1; None if unknown.
        exit_code: its exit code once it has ended.
        silent_s: how long its node has been silent; 0 if that is not unusual.
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
    bad_loss: str = ""


@dataclass(frozen=True)
class LinkRow:
    """One link. Bytes and packets count from the node's first look after the ranks were started.

    Attributes:
        asked_mbyte_s: the rate by the plan in force.
        mbyte_s: throughput between the node's last two looks; None before there are two, or if the node is silent.
        backlog_bytes: bytes waiting in its queue.
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
    """An action of the schedule, `after_s` seconds after the ranks were started."""

    after_s: float
    what: str


@dataclass(frozen=True)
class LineRow:
    """A line that a rank printed."""

    name: str
    line: str


@dataclass(frozen=True)
class HistoryRow:
    """The run at one moment: the throughput of all links together, rank 0's loss and step."""

    at_s: float
    mbyte_s: float
    loss: float | None
    step: int | None


@dataclass(frozen=True)
class LiveState:
    """A run at one moment.

    Attributes:
        folder: the run folder.
        profile: the profile of its links; '' if nothing is shaped.
        phase: one of PHASES.
        time: Unix time of this document.
        elapsed_s: seconds since the launch made the run folder.
        interval_s: seconds between two looks of a node.
        step, steps: steps done and planned; None if unknown.
        steps_s: recent steps per second.
        left_s: seconds until the last step, at that speed.
        computing, communicating, other: shares of the ranks' time so far; None if unknown.
        told_by: the source of these shares: "metrics", "looks" (states sampled once per interval), or ''.
        notes: sentences.
        nodes_cpu_pct: CPU share of telemetry on all nodes together, in percent of one processor; None if not yet known.
        host_cpu_pct: the same for making and showing this document on the host, without SSH.
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
        """Whether this is the run's last state."""
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
    """Return the document as one line of strict JSON: without NaN."""
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
    """Parse what `to_json` wrote; return None if it is of another version, truncated or invalid."""
    if len(text) > MOST_BYTES:
        return None
    try:
        said = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        if not isinstance(said, dict) or said.get("version") != VERSION:
            return None
        rows = {key: tuple(_row(kind, one) for one in said[key]) for key, kind in ROWS.items()}
        return _record(LiveState, said | rows)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _whole(digits: str) -> int:
    """Return a whole number that a float can hold, so that it can be shown; raises ValueError for others."""
    if len(digits) > MOST_DIGITS:
        raise ValueError("too large a number")
    return int(digits)


def _finite(word: str) -> float:
    """Return a number that can be shown; raises ValueError for infinity and NaN."""
    number = float(word)
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number


def _row(kind: type, said: object) -> object:
    return said if kind is str and isinstance(said, str) else _record(kind, said)


def _record(kind: type[T], said: object) -> T:
    """Return a record made from parsed JSON.

    Raises:
        TypeError: `said` is no object, a key is missing, or a value has another type.
    """
    if not isinstance(said, dict):
        raise TypeError(f"no {kind.__name__}")
    hints = HINTS[kind]
    known = {key: value for key, value in said.items() if key in hints}  # later versions add keys
    for key, value in known.items():
        if key not in ROWS and not _is_of(value, hints[key]):
            raise TypeError(f"{kind.__name__}: {key}")
    return kind(**known)


def _is_of(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type or a union of types
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None or isinstance(value, bool):
        return NoneType in kinds and value is None
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))
