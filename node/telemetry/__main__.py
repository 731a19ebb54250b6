"""Looks once a second and prints a line, until standard input ends.

The first line of standard input is the order (protocol/telemetry.py).
"""

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from node.supervisor.descendants import die_with_parent
from node.telemetry.link_looks import LinkLooks
from node.telemetry.metrics_tail import MetricsTail
from node.telemetry.rank_looks import ProcessLook, RankLooks
from protocol.reader import parse
from protocol.telemetry import MOST_SAID_BYTES, LinkLook, Look, Order, RankLook, look_text

MOST_ORDER_BYTES = 1 << 20
LEAST_INTERVAL_S = 0.1


class Looks:
    """Everything that is looked at on this node; whatever fails is left out of the line."""

    def __init__(self, order: Order) -> None:
        paths = {str(rank): Path(path) for rank, path in order.ranks.items()}
        self._tails = {rank: MetricsTail(path) for rank, path in paths.items()}
        self._ranks = RankLooks(order.run, paths)
        self._links = LinkLooks()

    def line(self) -> bytes:
        """Return one line."""
        seen: dict[str, ProcessLook] = {}
        links: dict[str, LinkLook] = {}
        with suppress(OSError):
            seen = self._ranks.look()
        with suppress(OSError, ValueError):
            links = self._links.look()
        ranks = {int(r): _both(tail.look(), seen.get(r)) for r, tail in self._tails.items()}
        at, spent_s = round(time.time(), 3), round(time.process_time(), 3)
        text = look_text(Look(at, spent_s, ranks, links))
        return text if len(text) <= MOST_SAID_BYTES else look_text(Look(at, spent_s))


def _both(told: RankLook, seen: ProcessLook | None) -> RankLook:
    """Combine what a rank says of itself with what is seen of it."""
    if seen is None:
        return told
    return told._replace(
        state=seen.state, cpu_s=seen.cpu_s, main_s=seen.main_s, collective=seen.collective
    )


def main() -> int:
    """Look until nobody reads the lines any more."""
    die_with_parent()
    order = parse(Order, sys.stdin.buffer.readline(MOST_ORDER_BYTES), "order")
    interval_s = max(LEAST_INTERVAL_S, order.interval_s)
    looks, due = Looks(order), time.monotonic()
    with suppress(BrokenPipeError):
        while not _is_ended(due - time.monotonic()):
            _write(looks.line())
            due = next_due(due, interval_s, time.monotonic())
    return 0


def next_due(due: float, interval_s: float, now: float) -> float:
    """Return when to look next. Delays are not made up for: two looks at one moment show nothing in between."""
    return max(due + interval_s, now + interval_s / 2)


def _is_ended(wait_s: float) -> bool:
    """Return whether standard input has ended, or ends within that time."""
    deadline = time.monotonic() + max(0.0, wait_s)
    while select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(0, 4096):
            return True
    return False


def _write(line: bytes) -> None:
    """Write all of it at once; print would buffer it."""
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main())
