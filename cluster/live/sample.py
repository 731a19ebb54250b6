"""One line of a node's telemetry, checked: a node may say anything. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.accounting.open_collective import OpenCollective, read_collective

MOST_LINE_BYTES = 1 << 16
LARGEST = 1e15
SCORES = {
    "test_accuracy": "accuracy",
    "test_return": "return",
    "test_success": "success",
    "validation_bits": "bits",
    "test_loss": "test loss",
    "episode_return": "return",
}
STATES = tuple("RSDTtIWXP")  # of proc_pid_stat(5)
NO_STATE = "?"


@dataclass(frozen=True)
class RankSample:
    """What a node says of one of its ranks.

    Attributes:
        state: of its processes as ps(1) calls it; '?' where there are none.
        cpu_s: processor time of all its processes.
        main_s: of the thread that runs the program.
        collective: None for programs that do not tell.
        step: the last one that it told of; None: none yet. `loss` likewise.
        score: the name and the value of its last test, or None.
        compute_s, comm_s: sums over its steps; None of programs without metrics.
        began, told: the times of its first and of its last line of metrics, Unix time.
    """

    state: str = NO_STATE
    cpu_s: float = 0.0
    main_s: float = 0.0
    collective: OpenCollective | None = None
    step: int | None = None
    loss: float | None = None
    score: tuple[str, float] | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    began: float | None = None
    told: float | None = None


@dataclass(frozen=True)
class LinkSample:
    """The kernel's counters of one link, and what the plan in force asks of it."""

    sent_bytes: float
    backlog_bytes: float
    dropped_packets: float
    asked_mbyte_s: float


@dataclass(frozen=True)
class Sample:
    """What one node says at one moment.

    Attributes:
        time: by its own clock, Unix time.
        ranks: by number.
        links: those that start here, by peer.
        spent_s: processor time of the telemetry itself.
    """

    time: float
    ranks: Mapping[int, RankSample] = field(default_factory=dict)
    links: Mapping[str, LinkSample] = field(default_factory=dict)
    spent_s: float = 0.0


def parse_sample(
    text: str | bytes, ranks: Collection[int], peers: Collection[str]
) -> Sample | None:
    """A line of telemetry; None where it is none. What is wrong of one rank or link is left out.

    Args:
        text: the line.
        ranks: those of this node: it has no word on others.
        peers: where its links lead to.
    """
    said = _object(text)
    at = _number(said.get("time"))
    if at is None:
        return None
    of_ranks, of_links = _dict(said.get("ranks")), _dict(said.get("links"))
    return Sample(
        at,
        {rank: _rank(_dict(of_ranks.get(str(rank)))) for rank in ranks},
        {peer: link for peer in peers if (link := _link(of_links.get(peer)))},
        _number(said.get("spent_s")) or 0.0,
    )


def _object(text: str | bytes) -> dict[str, Any]:
    if len(text) > MOST_LINE_BYTES:
        return {}
    try:
        return _dict(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _rank(said: Mapping[str, Any]) -> RankSample:
    state, step = said.get("state"), _number(said.get("step"))
    return RankSample(
        state=state if isinstance(state, str) and state in STATES else NO_STATE,
        cpu_s=_number(said.get("cpu_s")) or 0.0,
        main_s=_number(said.get("main_s")) or 0.0,
        collective=_collective(said.get("collective")),
        step=None if step is None or step < 0 else int(step),
        loss=_number(said.get("loss")),
        score=_score(said.get("score")),
        compute_s=_number(said.get("compute_s")),
        comm_s=_number(said.get("comm_s")),
        began=_number(said.get("began")),
        told=_number(said.get("time")),
    )


def _collective(note: object) -> OpenCollective | None:
    if not isinstance(note, str) or len(note) > 200:
        return None
    try:
        found = read_collective(note)
    except (ValueError, OverflowError):
        return None
    return found if found and _number(found.begun) and math.isfinite(found.began_at) else None


def _score(said: object) -> tuple[str, float] | None:
    if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], str):
        return None
    value = _number(said[1])
    return (SCORES[said[0]], value) if said[0] in SCORES and value is not None else None


def _link(said: object) -> LinkSample | None:
    if not isinstance(said, list) or len(said) != 4:
        return None
    values = [value for one in said if (value := _number(one)) is not None and value >= 0]
    return LinkSample(*values) if len(values) == 4 else None


def _number(value: object) -> float | None:
    """A finite one, and none that sums and products of it would make infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < LARGEST else None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
