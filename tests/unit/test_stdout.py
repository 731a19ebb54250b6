"""What nodes print must not control the user's terminal; files and pipes get it unchanged."""

import io

import pytest

from cluster.base.console import LinePrinter, eprint
from cluster.base.stdout import Output, plain, visible

TITLE = "\x1b]0;owned\x07"
CASES = {
    "plain text, tab\tand … letters": "plain text, tab\tand … letters",
    "two\nlines": "two\nlines",
    TITLE: r"\x1b]0;owned\x07",
    "\x1b[2J\x1b[H": r"\x1b[2J\x1b[H",
    "\x9b2J": r"\x9b2J",  # C1: CSI as a single character
    "a\rb\x08c\x7f\x00": r"a\rb\x08c\x7f\x00",
    "\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m",
    "\x1b[1;38;2;255;0;0mred": "\x1b[1;38;2;255;0;0mred\x1b[0m",  # reset, or all later text would be red
    f"\x1b[{'1' * 65}m": rf"\x1b[{'1' * 65}m",
    "\x1b[31;2Jx": r"\x1b[31;2Jx",
    "a\u202etxt.exe\u2066b\u2028c": r"a\u202etxt.exe\u2066b\u2028c",  # they reorder the text that follows
    "שלום, \u200eдобрый": "שלום, \u200eдобрый",  # a mark alone reorders nothing
    "\x1b[6n": r"\x1b[6n",  # the terminal would reply as if the user had typed it
}


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("text", "seen"), CASES.items(), ids=range(len(CASES)))
def test_a_terminal_is_shown_what_would_move_it(text, seen):
    assert visible(text) == seen
    assert visible(seen) == seen


def test_where_there_are_colours_already_there_are_none_of_the_texts():
    assert plain(f"\x1b[31mred {TITLE}") == r"red \x1b]0;owned\x07"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_lines_of_ranks_are_made_visible_on_terminals_alone(stream, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    LinePrinter(["node1"], stream).print("node1", TITLE)
    words = r"\x1b]0;owned\x07" if stream.isatty() else TITLE
    assert stream.getvalue() == f"node1 | {words}\n"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_so_are_errors_with_a_ranks_log_in_them(stream, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    eprint(TITLE)
    assert (TITLE in stream.getvalue()) != stream.isatty()


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_so_are_tables_with_a_nodes_words_in_them(stream):
    print(TITLE, file=Output(stream))
    assert (TITLE in stream.getvalue()) != stream.isatty()
