"""Looks once a second, and prints a line, until standard input ends.

The order is its first line: {"run", "ranks": {number: path of its metrics}, "interval_s"}.
"""

import json
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from node.supervisor.descendants import die_with_parent
from node.telemetry.link_looks import LinkLooks
from node.telemetry.metrics_tail import MetricsTail
from node.telemetry.rank_looks import RankLooks

NICE = 19
MOST_LINE_BYTES = 60_000  # the launcher takes a longer one for none
LEAST_INTERVAL_S = 0.1
Json = dict[str, Any]


class Looks:
    """All that is looked at on this node; what fails is left out of the line."""

    def __init__(self, order: Json) -> None:
        paths = {str(rank): Path(path) for rank, path in order["ranks"].items()}
        self._tails = {rank: MetricsTail(path) for rank, path in paths.items()}
        self._ranks = RankLooks(str(order["run"]), paths)
        self._links = LinkLooks()

    def line(self) -> bytes:
        """One line, docs/formats.md."""
        seen, links = {}, {}
        with suppress(OSError):
            seen = self._ranks.look()
        with suppress(OSError, ValueError):
            links = self._links.look()
        ranks = {rank: tail.look() | seen.get(rank, {}) for rank, tail in self._tails.items()}
        said = {"ranks": ranks, "links": links}
        text = _text(said)
        return text if len(text) <= MOST_LINE_BYTES else _text({"ranks": {}, "links": {}})


def _text(said: Json) -> bytes:
    clock = {"time": round(time.time(), 3), "spent_s": round(time.process_time(), 3)}
    return json.dumps(clock | said, separators=(",", ":")).encode() + b"\n"


def main() -> int:
    """Look until nobody listens any more."""
    os.nice(NICE)
    die_with_parent()
    order = json.loads(sys.stdin.buffer.readline(1 << 20))
    interval_s = max(LEAST_INTERVAL_S, float(order["interval_s"]))
    looks, due = Looks(order), time.monotonic()
    with suppress(BrokenPipeError):
        while not _is_ended(due - time.monotonic()):
            _write(looks.line())
            due = next_due(due, interval_s, time.monotonic())
    return 0


def next_due(due: float, interval_s: float, now: float) -> float:
    """When to look next. What was late is not made up for: two looks at one moment tell nothing of the time between."""
    return max(due + interval_s, now + interval_s / 2)


def _is_ended(wait_s: float) -> bool:
    """Whether standard input has ended, or does so within that time."""
    deadline = time.monotonic() + max(0.0, wait_s)
    while select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(0, 4096):
            return True
    return False


def _write(line: bytes) -> None:
    """All of it; print would keep it back."""
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main())
