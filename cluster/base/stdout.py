"""Standard output of verbs: survives a closed pipe and a full disk, and escapes what would harm a terminal.

Standard streams that were closed at the start (`2>&-`) lead to /dev/null.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO, cast

COLOUR = re.compile(
    r"\x1b\[[0-9;:]{0,64}m"
)  # bounded: rich fails on a number of more than 4,300 digits
# C0 and C1 without tabs and newlines: they move the cursor, clear the screen, set titles, or make the terminal send
# replies as if they were typed. From Unicode: line separators, and characters that change the text's direction.
CONTROL = re.compile(
    rf"({COLOUR.pattern})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
RESET = "\x1b[0m"


class Output:
    """A text stream whose writes never fail, even if the text cannot be written.

    So a verb runs to its end, and its exit code is its own. On a terminal control characters are made visible.

    Attributes:
        is_gone: whether the reader has closed the pipe (`verify | head -1`).
        failure: the first other error of writing (a full disk); None if there was none.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self.is_gone = False
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write the text if possible; return its length."""
        shown = visible(text) if self._is_terminal else text
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        """Write buffered text if possible."""
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


def open_closed_streams() -> None:
    """Open /dev/null as those of standard input, output and error that are closed; the others stay as they are.

    Otherwise Python has no such stream, and the next file or socket would get its number, and so what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            os.set_inheritable(nowhere, True)
        if getattr(sys, name) is None:
            stream = open(number, mode, errors="backslashreplace", closefd=False)  # noqa: PTH123, SIM115
            setattr(sys, name, stream)


@contextmanager
def safe_output() -> Iterator[Output]:
    """Make standard output an Output while the block lasts."""
    stream = sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # the locale's encoding may lack arrows
    output = Output(stream)
    sys.stdout = cast("TextIO", output)
    try:
        yield output
    finally:
        sys.stdout = stream


def is_read(stream: TextIO) -> bool:
    """Return whether a stream still has a reader; False once a write to an Output has hit a closed pipe."""
    return not (isinstance(stream, Output) and stream.is_gone)


def write_nowhere(stream: TextIO) -> None:
    """Redirect a stream to /dev/null; otherwise Python would fail at exit, when it flushes the stream's buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def visible(text: str) -> str:
    r"""Return text for a terminal: control characters escaped as `\x1b`; colours are kept, and reset at the end."""
    shown = CONTROL.sub(lambda found: found[1] or repr(found[0])[1:-1], text)
    return shown + RESET if _is_coloured_at_end(shown) else shown


def plain(text: str) -> str:
    """Return text for a place that has its own colours: the text's colours removed, control characters escaped."""
    return visible(COLOUR.sub("", text))


def _is_coloured_at_end(text: str) -> bool:
    colours = COLOUR.findall(text)
    return bool(colours) and colours[-1] not in (RESET, "\x1b[m")
