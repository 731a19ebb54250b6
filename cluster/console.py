"""What the user sees: messages and progress on standard error, results on standard output.

On a terminal a long step is one live line; elsewhere every line is printed plainly. NO_COLOR and TERM=dumb
are kept to (by rich).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from cluster.errors import ClusterError

NODE_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
PLAIN_INTERVAL_S = 5.0


class Console:
    """Messages on standard error; `quiet` keeps all but errors back.

    What the ranks print goes to `program_output`: standard output, unless a JSON document has that for itself.
    """

    def __init__(self, *, quiet: bool = False, program_output: TextIO | None = None) -> None:
        self.quiet = quiet
        self.program_output = program_output or sys.stdout

    def say(self, text: str) -> None:
        """One message for the user."""
        if not self.quiet:
            tell(text)

    def fail(self, error: ClusterError) -> None:
        """An error: what happened, where, what to try."""
        tell(_red("error: ") + str(error))

    @contextmanager
    def progress(self, step: str) -> Iterator[Callable[[str], None]]:
        """A long step. Gives a function that takes one line of news at a time."""
        if self.quiet:
            yield lambda line: None
        elif sys.stderr.isatty():
            yield from _live_line(step)
        else:
            yield _plain_lines(step)


def tell(text: str) -> None:
    """One message on standard error."""
    with unheard(sys.stderr):
        print(text, file=sys.stderr, flush=True)


@contextmanager
def unheard(stream: TextIO) -> Iterator[None]:
    """Print to a reader that may have gone (`2>&1 | head`): that stops no work, nor fails again when Python ends."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class LinePrinter:
    """Prints lines of several nodes, each with its node's name in front, in one stable colour a node."""

    def __init__(self, nodes: Sequence[str], stream: TextIO) -> None:
        self._width = max((len(node) for node in nodes), default=0)
        self._stream = stream
        colours = dict(zip(nodes, NODE_COLOURS * len(nodes), strict=False))
        self._colours = colours if _use_colour(stream) else {}

    def print(self, node: str, line: str) -> None:
        """Print one line of one node."""
        prefix = f"{node:<{self._width}} | "
        colour = self._colours.get(node)
        self._stream.write(f"{_paint(prefix, colour) if colour else prefix}{line}\n")
        self._stream.flush()


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], stream: TextIO | None = None
) -> None:
    """A plain table, columns as wide as their widest cell, on standard output unless told otherwise."""
    table = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip(), file=stream or sys.stdout)


def _live_line(step: str) -> Iterator[Callable[[str], None]]:
    # Imported here: only a terminal needs it.
    from rich.console import Console as RichConsole
    from rich.markup import escape

    with RichConsole(stderr=True).status(step) as status:
        yield lambda line: status.update(f"[bold]{step}[/bold] {escape(line[:100])}")


def _plain_lines(step: str) -> Callable[[str], None]:
    """For logs and CI: a line every few seconds says enough."""
    last = 0.0

    def report(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_INTERVAL_S:
            last = time.monotonic()
            tell(f"{step}: {line}")

    return report


def _use_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, colour: str) -> str:
    codes = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
    return f"\033[{codes[colour]}m{text}\033[0m"


def _red(text: str) -> str:
    return _paint(text, "red") if _use_colour(sys.stderr) else text
