"""User-facing output: messages and progress on standard error, results on standard output.

On a terminal a long step is one live line; elsewhere every line is printed plainly. NO_COLOR and TERM=dumb are
respected (by rich).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cluster.base.secrets import without_secrets
from cluster.base.stdout import plain, visible, write_nowhere

if TYPE_CHECKING:
    from cluster.base.errors import ClusterError

NODE_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
PLAIN_INTERVAL_S = 5.0
FIGURES = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?(/[-0-9.]+)?")  # 6.531, or 6.531/6.534


class Console:
    """Messages on standard error; with `quiet`, errors alone.

    The ranks' output goes to `program_output`: standard output, unless that is reserved for a JSON document.
    """

    def __init__(self, *, quiet: bool = False, program_output: TextIO | None = None) -> None:
        self.quiet = quiet
        self.program_output = program_output or sys.stdout

    def say(self, text: str) -> None:
        """Print one message for the user."""
        if not self.quiet:
            eprint(text)

    def fail(self, error: ClusterError) -> None:
        """Print an error: what happened, where, what to try."""
        eprint(_red("error: ") + str(error))

    @contextmanager
    def progress(self, step: str) -> Iterator[Callable[[str], None]]:
        """Show a long step while the block lasts; yields a callback that takes one line of progress."""
        if self.quiet:
            yield lambda line: None
        elif sys.stderr.isatty():
            yield from _live_line(step)
        else:
            yield _plain_lines(step)


def eprint(text: str) -> None:
    """Print one message on standard error, with its commands `as_typed`."""
    text = as_typed(text)
    with ignore_broken_pipe(sys.stderr):
        print(visible(text) if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def as_typed(text: str) -> str:
    """Return a text with its commands in this process's own form: `gradwire down` for `python -m cluster.down`."""
    started = Path([*sys.orig_argv, "", ""][1]).name  # [0] is the interpreter
    return text.replace("python -m cluster.", "gradwire ") if started == "gradwire" else text


def command_line() -> str:
    """Return our own command as a user would type it, without tokens and passwords, to be written to files."""
    program, *words = without_secrets(sys.argv)
    path = Path(program)
    if path.parent.name == "cluster" and path.suffix == ".py":
        return as_typed(shlex.join(["python", "-m", f"cluster.{path.stem}", *words]))
    return shlex.join([program, *words])


@contextmanager
def ignore_broken_pipe(stream: TextIO) -> Iterator[None]:
    """Ignore errors of printing to a closed pipe (`2>&1 | head`) or a full disk: they must not stop the work."""
    try:
        yield
    except OSError:
        write_nowhere(stream)


class LinePrinter:
    """Prints lines of several nodes, each prefixed with its node's name, in one fixed colour per node."""

    def __init__(self, nodes: Sequence[str], stream: TextIO) -> None:
        self._width = max((len(node) for node in nodes), default=0)
        self._stream = stream
        self._is_terminal = stream.isatty()
        colours = dict(zip(nodes, NODE_COLOURS * len(nodes), strict=False))
        self._colours = colours if _use_colour(stream) else {}
        if isinstance(
            stream, TextIOWrapper
        ):  # the locale's encoding may lack characters that a program prints
            stream.reconfigure(errors="backslashreplace")

    def print(self, node: str, line: str) -> None:
        """Print one line of one node."""
        line = visible(line) if self._is_terminal else line
        prefix = f"{node:<{self._width}} | "
        colour = self._colours.get(node)
        self._stream.write(f"{_paint(prefix, colour) if colour else prefix}{line}\n")
        self._stream.flush()


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], stream: TextIO | None = None
) -> None:
    """Print a plain table, on standard output by default: columns as wide as their widest cell, figures right-aligned.

    It has no colours on a terminal either: cells hold text from nodes, which is shown without control characters there.
    """
    columns = [
        _aligned([name, *(str(cell) for cell in column)])
        for name, *column in zip(header, *rows, strict=True)
    ]
    for row in zip(*columns, strict=True):
        print("  ".join(row).rstrip(), file=stream or sys.stdout)


def _aligned(column: Sequence[str]) -> list[str]:
    """Return a column's cells padded to the widest one; figures (`-`: none) are right-aligned."""
    width = max(map(len, column))
    figures = [cell for cell in column[1:] if cell != "-"]
    if figures and all(FIGURES.fullmatch(cell) for cell in figures):
        return [cell.rjust(width) for cell in column]
    return [cell.ljust(width) for cell in column]


def _live_line(step: str) -> Iterator[Callable[[str], None]]:
    # Imported here: only a terminal needs it.
    from rich.console import Console as RichConsole
    from rich.markup import escape

    with RichConsole(stderr=True).status(step) as status:
        yield lambda line: status.update(f"[bold]{step}[/bold] {escape(plain(line)[:100])}")


def _plain_lines(step: str) -> Callable[[str], None]:
    """Return a callback for logs and CI, which prints one line every few seconds at most."""
    last = 0.0

    def report(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_INTERVAL_S:
            last = time.monotonic()
            eprint(f"{step}: {line}")

    return report


def _use_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, colour: str) -> str:
    codes = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
    return f"\033[{codes[colour]}m{text}\033[0m"


def _red(text: str) -> str:
    return _paint(text, "red") if _use_colour(sys.stderr) else text
