"""Copies the output of a rank to its log and to the screen; if either fails, the rank goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from cluster.base.console import eprint


def copy_lines(lines: Iterable[str], path: Path, show: Callable[[str], None]) -> None:
    """Copy lines until they end; never stop reading earlier, because a rank blocks if nobody reads its output.

    Args:
        lines: the lines as they arrive.
        path: the log to append to; if the disk is full it is cut short, which is reported once.
        show: prints a line; not called again after it failed (`launch | head`).
    """
    is_heard = True
    with closing(_Log(path)) as log:
        for line in lines:
            log.write(line)
            try:
                if is_heard:
                    show(line)
            except OSError:
                is_heard = False


def add_line(line: str, path: Path) -> None:
    """Append a line of the launcher's own to a log."""
    with closing(_Log(path)) as log:
        log.write(line)


class _Log:
    """A line-buffered log file; after the first error nothing more is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        with self._until_it_fails():
            self._file = path.open("a", buffering=1, encoding="utf-8", errors="replace")

    def write(self, line: str) -> None:
        if self._file is not None:
            with self._until_it_fails():
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
            self.close()
            eprint(f"{self._path} is cut short: {error.strerror}; the rank continues")
