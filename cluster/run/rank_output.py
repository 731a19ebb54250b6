"""Copies the output of a rank to its log and to the screen; if either fails, the rank goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from cluster.base.console import eprint

MOST_LOG_BYTES = 4 << 30
"""The most bytes of a rank's log: a rank that prints without end must not fill the host's disk."""
TOO_LONG = f"a log has at most {MOST_LOG_BYTES >> 30} GiB"


def copy_lines(lines: Iterable[str], path: Path, show: Callable[[str], None]) -> None:
    """Copy lines until they end; never stop reading earlier, because a rank blocks if nobody reads its output.

    Args:
        lines: the lines as they arrive.
        path: the log to append to; if the disk is full, or at MOST_LOG_BYTES, it is cut short, which is reported once.
        show: prints a line; not called again after it failed (`launch | head`).
    """
    is_heard = True
    with closing(_Log(path, MOST_LOG_BYTES)) as log:
        for line in lines:
            log.write(line)
            try:
                if is_heard:
                    show(line)
            except OSError:
                is_heard = False


def add_line(line: str, path: Path) -> None:
    """Append a line of the launcher's own to a log, also to a full one: they are few."""
    with closing(_Log(path, math.inf)) as log:
        log.write(line)


class _Log:
    """A line-buffered log file; after the first error, or once it is full, nothing more is written."""

    def __init__(self, path: Path, most_bytes: float) -> None:
        self._path = path
        self._room = most_bytes
        self._file: TextIO | None = None
        with self._until_it_fails():
            self._file = path.open("a", buffering=1, encoding="utf-8", errors="replace")
            self._room -= path.stat().st_size  # what a rank printed before it was started again
            if self._room < 0:
                self.close()  # it says so already

    def write(self, line: str) -> None:
        if self._file is None:
            return
        self._room -= len(line.encode(errors="replace")) + 1
        with self._until_it_fails():
            if self._room < 0:
                self._file.write(f"this log is cut short: {TOO_LONG}; the rank continues\n")
                self._end(TOO_LONG)
            else:
                self._file.write(line + "\n")

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # close flushes what could not be written before
                file.close()

    @contextmanager
    def _until_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._end(str(error.strerror))

    def _end(self, why: str) -> None:
        self.close()
        eprint(f"{self._path} is cut short: {why}; the rank continues")
