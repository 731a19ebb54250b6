"""Reads the metrics that ranks wrote: JSON lines, of which any may be truncated or hostile.

A line that does not say what docs/formats.md has it say counts as not there. All that comes of this file has the types
that it says: `cluster.accounting.collective_stats` and others reckon with it as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_LINE_BYTES = 1 << 22
MOST_COLLECTIVES = 20_000  # lines of them that a rank writes
MOST_MESSAGES = 20_000  # of one collective, in pieces of 1 MiB: each is reckoned with
MOST_WEIGHTS_BYTES = 1 << 30  # of a message: node/transport/messages.py
LARGEST = 1e18
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
Check = Callable[[object], bool]


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a rank's metrics: start, step, rollout, experience, weights, eval, end; none where it left none."""
    return (line for line in _objects(path) if is_event(line))


def read_parts(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a rank's collectives.jsonl."""
    for number, line in enumerate(_objects(path)):
        if number == MOST_COLLECTIVES:
            return
        if _has(line, PART, required=PART.keys() - {"sources", "tcp"}):
            yield line


def parse_event(text: str | bytes) -> dict[str, Any] | None:
    """One line of metrics; None where it is none."""
    line = _parse(text)
    return line if line is not None and is_event(line) else None


def is_event(line: Mapping[str, Any]) -> bool:
    """Whether a line is of node.train: an event, of which rank, and when, and all of it of its type."""
    if not _has(line, COMMON, required=COMMON.keys()):
        return False
    return _has(line, EVENTS.get(line["event"], {}), required=REQUIRED.get(line["event"], ()))


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """What is a JSON object of the lines of a plain file."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        while text := lines.readline(MOST_LINE_BYTES):
            line = _parse(text)
            if line is not None:
                yield line


def _parse(text: str | bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _has(
    line: Mapping[str, Any], checks: Mapping[str, Check], *, required: Collection[str]
) -> bool:
    """Whether what is there is of its type, and what must be there is."""
    return all(key in line for key in required) and all(
        check(line[key]) for key, check in checks.items() if key in line
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def _is_number(value: object) -> bool:
    """A finite one, and none that sums and products of it would make infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_number(value) and value >= 0


def _is_positive(value: object) -> bool:
    """A number that may be divided by."""
    return isinstance(value, int | float) and _is_number(value) and value > 1e-6


def _is_address(value: object) -> bool:
    return isinstance(value, str) and len(value) < 64


def _is_figure(value: object) -> bool:
    """A number that may be missing, or be none: the loss of a training that diverges."""
    return value is None or isinstance(value, float) or _is_number(value)


def _is_rank(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 7


def _mapping(key: Check, value: Check) -> Check:
    return lambda found: (
        isinstance(found, dict) and all(key(name) and value(one) for name, one in found.items())
    )


def _sequence(value: Check) -> Check:
    return lambda found: isinstance(found, list) and all(map(value, found))


def _record(checks: Mapping[str, Check]) -> Check:
    return lambda found: isinstance(found, dict) and _has(found, checks, required=checks.keys())


def _is_experience(value: object) -> bool:
    return isinstance(value, dict) and _has(
        value, ENDED_EXPERIENCE, required=ENDED_EXPERIENCE.keys()
    )


def _is_messages(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and value <= MOST_MESSAGES


def _is_weights_size(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and 0 < value <= MOST_WEIGHTS_BYTES


SUM: dict[str, Check] = {
    "kind": _is_name,
    "purpose": _is_name,
    "bytes": _is_count,
    "count": _is_count,
    "waited_s": _is_number,
    "to": _mapping(_is_rank, _record({"bytes": _is_count, "messages": _is_count})),
}
QUANTILES = {"mean": _is_number, "median": _is_number, "p95": _is_number, "max": _is_number}
COUNTS = {"lives": _is_count, "connections": _is_count}


def _is_distribution(value: object) -> bool:
    return value == {} or _record(QUANTILES)(value)


def _is_actor(value: object) -> bool:
    return _record(COUNTS)(value) and _mapping(_is_name, _is_number)(value)


# What a learner says of what its actors did: so far, and at the end also of each of them.
EXPERIENCE: dict[str, Check] = {
    "env_steps": _is_count,
    "pieces": _is_count,
    "rejected": _is_count,
    "mean_steps": _is_number,
    "mean_steps_kept": _is_number,
    "replay_ratio": _is_number,
    "duplicates": _is_count,
    "malformed": _is_count,
    "received_bytes": _is_count,
    "updates_s": _is_number,
    "staleness_updates": _is_distribution,
    "staleness_s": _is_distribution,
    "weights_age_s": _is_distribution,
}
ENDED_EXPERIENCE: dict[str, Check] = {
    **EXPERIENCE,
    "pull_every": _is_count,
    "publish_every": _is_count,
    "broadcast": _is_name,
    "changed": _is_figure,
    "actors": _mapping(_is_rank, _is_actor),
}
# That a version of the weights has come to an actor (cluster/accounting/broadcast.py).
RECEIPT: dict[str, Check] = {
    "version": _is_count,
    "source": _is_count,
    "bytes": _is_weights_size,
    "waited": lambda value: isinstance(value, bool),
    "published_at_s": _is_number,
    "received_at_s": _is_number,
}
COMMON: dict[str, Check] = {"event": _is_name, "rank": _is_count, "time": _is_number}
EVENTS: dict[str, dict[str, Check]] = {
    "start": {"link_bytes": _mapping(_is_name, _is_count)},
    "step": {
        "step": _is_count,
        "loss": _is_figure,
        "compute_s": _is_number,
        "comm_s": _is_number,
        "sent_bytes": _is_count,
    },
    "rollout": {
        "step": _is_count,
        "env_steps": _is_count,
        "episodes": _is_count,
        "episode_return": _is_figure,
        "episode_length": _is_figure,
    },
    "eval": {
        "step": _is_count,
        "eval_s": _is_number,
        "test_loss": _is_figure,
        "test_accuracy": _is_figure,
        "validation_loss": _is_figure,
        "validation_bits": _is_figure,
        "test_return": _is_figure,
        "test_length": _is_figure,
        "test_success": _is_figure,
        "test_steps": _is_figure,
        "cbs_success": _is_figure,
        "cbs_steps": _is_figure,
        "steps_over_cbs": _is_figure,
    },
    "experience": {"step": _is_count, **EXPERIENCE},
    "weights": {"step": _is_count, **RECEIPT},
    "end": {
        "steps": _is_count,
        "seconds": _mapping(_is_name, _is_number),
        "link_bytes": _mapping(_is_name, _is_count),
        "collectives": _sequence(_record(SUM)),
        "final_loss": _is_figure,
        "test_accuracy": _is_figure,
        "tested": _mapping(_is_name, _is_figure),
        "experience": _is_experience,
    },
}
REQUIRED = {
    "step": ("step", "sent_bytes"),
    "rollout": ("step", "env_steps", "episodes"),
    "eval": ("step",),
    "experience": ("step",),
    "weights": ("step", *RECEIPT),
}
TCP_STATE: dict[str, Check] = {
    "window_bytes": _is_positive,
    "ssthresh_bytes": lambda value: value is None or _is_positive(value),
    "idle_s": _is_number,
    "rto_s": _is_positive,
    "sent_again": _is_count,
}
PART: dict[str, Check] = {
    "time": _is_number,
    "step": _is_count,
    "kind": _is_name,
    "purpose": _is_name,
    "bytes": _is_count,
    "to": _mapping(_is_rank, _is_count),
    "messages": _is_messages,
    "done_s": _is_number,
    "waited_s": _is_number,
    "hidden": lambda value: isinstance(value, bool),
    "sources": _sequence(_is_count),
    "tcp": _mapping(_is_address, _record(TCP_STATE)),
}
