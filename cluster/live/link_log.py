"""links.csv of a run folder: the link counters that nodes reported while ranks ran.

An idle link leaves a single row: a look equal to the one before it is written only if a different one follows, so that
the time of the last look before the change is known. Long runs are logged at decreasing resolution: after each
MOST_ROWS rows the least time between two looks at a node doubles (the first time from 0.25 s to 1 s). Counters only
grow, so their sums stay exact.

Each node has an equal share of the rows and bytes, so one that reports false times or too much thins out and ends only
what is known of its own links; then a note says so. Looks that are not later than the node's last one are ignored: its
clock was set back.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from cluster.live.sample import Sample

NAME = "links.csv"
HEADER = ("time_s", "link", "bytes", "backlog", "drops", "rate_mbyte_s")
MOST_ROWS = 50_000  # about 2.5 MB; of all nodes
MOST_BYTES = 1 << 25  # a run of weeks; also bounds nodes that report false times
LEAST_S = 0.25  # between two looks at a node, at first
Figures = tuple[int, int, int, float]
Carried = Mapping[str, tuple[float, float]]


@dataclass
class _Share:
    """What one node has used of the log.

    Attributes:
        looked_at: time of its last look that was logged, by its own clock.
        least_s: the least time until its next.
        rows: written since that last doubled; `bytes`: written in total.
        is_used_up: whether no more of it is written.
    """

    looked_at: float = -math.inf
    least_s: float = LEAST_S
    rows: int = 0
    bytes: int = 0
    is_used_up: bool = False


class LinkLog:
    """A writer of links.csv that gives up for good at the first error. Not thread-safe.

    Args:
        folder: the run folder.
        nodes: how many nodes have links.
        say: receives a note about a node of which no more is logged.
    """

    def __init__(
        self, folder: Path, nodes: int = 1, say: Callable[[str], None] = lambda words: None
    ) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self._is_over = False
        self._most_rows = max(1, MOST_ROWS // max(1, nodes))
        self._most_bytes = MOST_BYTES // max(1, nodes)
        self._say = say
        self._shares: defaultdict[str, _Share] = defaultdict(_Share)
        self._written: dict[str, Figures] = {}
        self._kept: dict[str, tuple[float, Figures]] = {}  # unwritten, equal to the one before

    def add(self, node: str, sample: Sample, carried: Carried) -> None:
        """Log the links of one node.

        Args:
            node: the node where the links start.
            sample: the node's line of telemetry.
            carried: bytes and dropped packets by peer, since the node's first line.
        """
        # By the node's clock: on a busy host several lines arrive at once, each with its own time.
        share = self._shares[node]
        if self._is_over or share.is_used_up or sample.time - share.looked_at < share.least_s:
            return
        share.looked_at = sample.time
        for peer, link in sample.links.items():
            sent, dropped = carried.get(peer, (0.0, 0.0))
            figures = (int(sent), int(link.backlog_bytes), int(dropped), link.asked_mbyte_s)
            self._try(partial(self._look, node, f"{node}->{peer}", sample.time, figures))
        self._take_stock(node)

    def flush(self) -> None:
        """Make the rows so far visible to readers."""
        if self._file:
            self._try(self._file.flush)

    def close(self) -> None:
        """Stop logging; rows that cannot be written are lost."""
        self._is_over = True
        file, self._file = self._file, None
        if file:
            with suppress(OSError):
                file.close()

    def _try(self, action: Callable[[], object]) -> None:
        """Run `action`; stop logging if it fails (disk full, say), but keep the rows so far."""
        try:
            action()
        except OSError:
            self.close()

    def _take_stock(self, node: str) -> None:
        """Log a node less often, or no more, after it has used up its share."""
        share = self._shares[node]
        if share.rows >= self._most_rows:
            share.rows, share.least_s = 0, 2 * max(share.least_s, 0.5)
        if share.bytes > self._most_bytes:
            share.is_used_up = True
            self._say(f"{NAME}: the limit of {node} is reached; further rows of it are dropped")

    def _look(self, node: str, link: str, at: float, figures: Figures) -> None:
        if self._written.get(link) == figures:
            self._kept[link] = (at, figures)
            return
        if kept := self._kept.pop(link, None):
            self._write(node, link, *kept)
        self._write(node, link, at, figures)
        self._written[link] = figures

    def _write(self, node: str, link: str, at: float, figures: Figures) -> None:
        if self._is_over:
            return
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8", newline="")
            csv.writer(self._file, lineterminator="\n").writerow(HEADER)
        sent, backlog, dropped, rate = figures
        share = self._shares[node]
        share.bytes += self._file.write(f"{at:.3f},{link},{sent},{backlog},{dropped},{rate:g}\n")
        share.rows += 1
