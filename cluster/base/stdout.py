"""Standard output of verbs: survives a reader that leaves and a full disk, escapes what would harm a terminal."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO, cast

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# C0 and C1: they move the cursor, clear the screen, set titles, answer as if typed. Tabs and line ends do no harm.
# Of Unicode, what ends lines, and what turns the direction of all that follows.
CONTROL = re.compile(
    rf"({COLOUR.pattern})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
RESET = "\x1b[0m"


class Output:
    """A text stream that takes all that is written to it, whether it can be written or not.

    So a verb goes on to its end, and its exit code is its own. On a terminal control characters are made visible.

    Attributes:
        is_gone: whether the reader has gone (`verify | head -1`).
        failure: why it could not be written otherwise (a full disk).
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self.is_gone = False
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write, if it can be."""
        shown = visible(text) if self._is_terminal else text
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        """Write what is kept back, if it can be."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BrokenPipeError:
            self.is_gone = True
            write_nowhere(self._stream)
        except OSError as error:
            self.failure = self.failure or error
            write_nowhere(self._stream)


@contextmanager
def safe_output() -> Iterator[Output]:
    """Standard output is an Output as long as the block lasts."""
    stream = sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # LC_ALL may know no arrows
    output = Output(stream)
    sys.stdout = cast("TextIO", output)
    try:
        yield output
    finally:
        sys.stdout = stream


def is_read(stream: TextIO) -> bool:
    """Whether the reader of a stream is still there, as far as anybody has noticed."""
    return not (isinstance(stream, Output) and stream.is_gone)


def write_nowhere(stream: TextIO) -> None:
    """From now on what is written is lost; else Python would fail at its end, when it writes what it has kept back."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def visible(text: str) -> str:
    r"""Text for a terminal: control characters as `\x1b`, but for colours, which end with the text."""
    shown = CONTROL.sub(lambda found: found[1] or repr(found[0])[1:-1], text)
    return shown + RESET if _is_coloured_at_end(shown) else shown


def plain(text: str) -> str:
    """Text for a place that has colours of its own: none of the text's, and control characters made visible."""
    return visible(COLOUR.sub("", text))


def _is_coloured_at_end(text: str) -> bool:
    colours = COLOUR.findall(text)
    return bool(colours) and colours[-1] not in (RESET, "\x1b[m")
