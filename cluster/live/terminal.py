"""Keeps the screen of a run at the bottom of a terminal, while the ranks' output scrolls above it and stays.

The terminal stays usable however the process ends: the alternate screen is not used, and the cursor not hidden.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TextIO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.text import Text

from cluster.live.screen import draw
from cluster.live.state import LiveState

MOST_HELD = 2000  # writes held until the next drawing; at the limit the writer flushes them


class TerminalScreen:
    """The screen on standard error, from `start` to `stop`.

    Args:
        program_output: the stream for programs' output; on a terminal it is kept clear of the screen.
        most_lines: how many of the last lines are part of the screen; 0 if they scroll above it.
    """

    def __init__(self, program_output: TextIO, most_lines: int = 0) -> None:
        self._console = RichConsole(stderr=True)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # a JSON document may go there
            vertical_overflow="crop",
        )
        self._most_lines = most_lines
        self.output = LinesAbove(self._console, program_output)
        """The stream to use instead of `program_output`."""

    def start(self) -> None:
        """Start the screen; from now on messages on standard error appear above it, too."""
        self._live.start()
        self._console.show_cursor()
        self.output.is_live = True

    def draw(self, state: LiveState) -> None:
        """Show a state, and the lines that came since the last drawing."""
        self.output.flush_held()
        size = self._console.size
        group = draw(state, size.width, size.height - 1, self._most_lines)
        self._live.update(group, refresh=True)

    def flush(self) -> None:
        """Show the lines that came since the last drawing."""
        self.output.flush_held()

    def give_up(self) -> None:
        """Stop drawing because the terminal has gone; lines are written as without a screen."""
        self.output.is_live = False
        with suppress(OSError):
            self._live.stop()

    def stop(self) -> None:
        """Remove the screen; what scrolled above it stays."""
        self.output.is_live = False
        self.output.flush_held()
        self._live.update(Group())
        self._live.stop()


class LinesAbove:
    """A text stream for programs' output: on a terminal, lines are held until the next drawing, and put above it.

    Elsewhere they are written at once. Each write above the screen redraws the terminal, and programs may print
    thousands of lines a second.

    Attributes:
        is_live: whether there is a screen to keep clear of.
    """

    def __init__(self, console: RichConsole, stream: TextIO) -> None:
        self._console, self._stream = console, stream
        self._is_terminal = stream.isatty()
        self._held: list[str] = []
        self._lock = threading.Lock()
        self.is_live = False

    def isatty(self) -> bool:
        """Return whether the underlying stream is a terminal."""
        return self._is_terminal

    def write(self, text: str) -> int:
        """Write whole lines."""
        if not (self.is_live and self._is_terminal):
            return self._stream.write(text)
        with self._lock:
            self._held.append(text)
            is_full = len(self._held) >= MOST_HELD
        if is_full:
            self.flush_held()
        return len(text)

    def flush(self) -> None:
        """Flush the stream; held lines wait for the next drawing."""
        if not (self.is_live and self._is_terminal):
            self._stream.flush()

    def flush_held(self) -> None:
        """Print the held lines above the screen."""
        with self._lock:
            held, self._held = self._held, []
        if held:
            text = Text.from_ansi("".join(held).removesuffix("\n"))
            self._console.print(text, soft_wrap=True, highlight=False)


def can_draw() -> bool:
    """Return whether standard error is a terminal that can be drawn on (TERM is not `dumb`)."""
    console = RichConsole(stderr=True)
    return sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
