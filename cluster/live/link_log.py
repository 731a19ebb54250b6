"""links.csv of a run folder: the link counters that nodes reported while ranks ran.

An idle link leaves a single row: a look equal to the one before it is written only if a different one follows, so that
the time of the last look before the change is known. Long runs are logged at decreasing resolution: after each
MOST_ROWS rows the least time between two looks at a node doubles (the first time from 0.25 s to 1 s). Counters only
grow, so their sums stay exact.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from cluster.live.sample import Sample

NAME = "links.csv"
HEADER = ("time_s", "link", "bytes", "backlog", "drops", "rate_mbyte_s")
MOST_ROWS = 50_000  # about 2.5 MB
MOST_BYTES = 1 << 25  # a run of weeks; also bounds a node that reports false times
LEAST_S = 0.25  # between two looks at a node, at first
Figures = tuple[int, int, int, float]
Carried = Mapping[str, tuple[float, float]]


class LinkLog:
    """A writer of links.csv that gives up for good at the first error. Not thread-safe.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self._is_over = False
        self._least_s, self._rows, self._bytes = LEAST_S, 0, 0
        self._looked: dict[str, float] = {}
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
        since_s = sample.time - self._looked.get(node, -self._least_s)
        if self._is_over or 0 <= since_s < self._least_s:
            return
        self._looked[node] = sample.time
        for peer, link in sample.links.items():
            sent, dropped = carried.get(peer, (0.0, 0.0))
            figures = (int(sent), int(link.backlog_bytes), int(dropped), link.asked_mbyte_s)
            self._try(partial(self._look, f"{node}->{peer}", sample.time, figures))

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

    def _look(self, link: str, at: float, figures: Figures) -> None:
        if self._written.get(link) == figures:
            self._kept[link] = (at, figures)
            return
        if kept := self._kept.pop(link, None):
            self._write(link, *kept)
        self._write(link, at, figures)
        self._written[link] = figures

    def _write(self, link: str, at: float, figures: Figures) -> None:
        if self._is_over:
            return
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8", newline="")
            csv.writer(self._file, lineterminator="\n").writerow(HEADER)
        sent, backlog, dropped, rate = figures
        self._bytes += self._file.write(f"{at:.3f},{link},{sent},{backlog},{dropped},{rate:g}\n")
        self._rows += 1
        if self._bytes > MOST_BYTES:
            self.close()
        if self._rows >= MOST_ROWS:
            self._rows, self._least_s = 0, 2 * max(self._least_s, 0.5)
