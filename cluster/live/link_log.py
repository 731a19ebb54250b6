"""links.csv of a run folder: the links' counters as nodes told them while ranks ran.

A link that does nothing leaves no rows: what is the same as before is written only where something else follows, so
that the time of the last look before that is known. Of a long run less is written with time: after each MOST_ROWS rows
the least time between two looks at a node doubles. Counters only grow, so nothing is lost of their sums.
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
MOST_ROWS = 50_000  # some 2.5 MB
MOST_BYTES = 1 << 25  # a run of weeks; a node that lies of the time has no more, either
LEAST_S = 0.25  # between two looks at a node, at first
Figures = tuple[int, int, int, float]
Carried = Mapping[str, tuple[float, float]]


class LinkLog:
    """Writes links.csv, and gives up for good where it cannot. Not to be called from two threads at once.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self._is_over = False
        self._least_s, self._rows, self._bytes = LEAST_S, 0, 0
        self._looked: dict[str, float] = {}
        self._written: dict[str, Figures] = {}
        self._kept: dict[str, tuple[float, Figures]] = {}  # looks that were like the one before

    def add(self, node: str, sample: Sample, carried: Carried) -> None:
        """A node has told of its links.

        Args:
            node: where they begin.
            sample: what it told.
            carried: by peer, bytes and packets dropped since its first line.
        """
        # By the node's clock: of a busy host several lines come at once, each with a time of its own.
        since_s = sample.time - self._looked.get(node, -self._least_s)
        if self._is_over or 0 <= since_s < self._least_s:
            return
        self._looked[node] = sample.time
        for peer, link in sample.links.items():
            sent, dropped = carried.get(peer, (0.0, 0.0))
            figures = (int(sent), int(link.backlog_bytes), int(dropped), link.asked_mbyte_s)
            self._try(partial(self._look, f"{node}->{peer}", sample.time, figures))

    def flush(self) -> None:
        """Let others read what there is."""
        if self._file:
            self._try(self._file.flush)

    def close(self) -> None:
        """No more comes; what cannot be written is lost."""
        self._is_over = True
        file, self._file = self._file, None
        if file:
            with suppress(OSError):
                file.close()

    def _try(self, action: Callable[[], object]) -> None:
        """The disk is full, say: what there is by now is good."""
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
