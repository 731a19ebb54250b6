"""The screen of a run: what it shows, that it fits its space, and the state in which it leaves a terminal."""

import io
import re
from functools import cache

import pytest
from live_runs import BEGAN, hear, running, under_way
from rich.cells import cell_len

from cluster.live.describe import describe
from cluster.live.news import Happened, Noted
from cluster.live.screen import draw, screen_text
from cluster.live.state import LineRow
from cluster.live.terminal import LinesAbove, TerminalScreen
from cluster.live.tracker import update

NASTY = "\x1b[2J\x1b]0;title\x07[bold red]x[/] \u202etxt\r\nnew \x9b5n"


@cache
def tracked(nodes):
    """Return a run under way; it is never changed, but news make another of it."""
    one = update(under_way(5, nodes), Happened(2.0, "wan"), BEGAN)
    return update(one, Noted("a note"), BEGAN)


def state_of(nodes, lines=()):
    return describe(tracked(nodes), lines, BEGAN + 5)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("nodes", [1, 3, 64])
@pytest.mark.parametrize("height", [8, 24, 60])
def test_a_screen_never_leaves_its_room(width, nodes, height):
    lines = [LineRow("node1", "x" * 500), LineRow("node2", "界" * 300)]
    shown = screen_text(state_of(nodes, lines), width, height).splitlines()
    assert len(shown) <= height
    assert max(map(cell_len, shown)) < width


@pytest.mark.parametrize("width", [40, 80])
def test_three_ranks_and_their_links_are_all_shown(width):
    text = screen_text(state_of(3, [LineRow("node1", "hello")]), width, 30)
    for name in ("node1", "node2", "node3"):
        assert re.search(rf"^{name} +computing +5 +1.95", text, re.MULTILINE)
    assert len(re.findall(r"^node\d->node\d +1.000 +4", text, re.MULTILINE)) == 6
    assert "step 5/200" in text and "1 steps/s" in text and "left 3:15" in text
    assert "schedule, 2.0 s: wan" in text and "note: a note" in text
    assert "node1 | hello" in text


def test_of_many_ranks_those_are_shown_that_want_to_be_looked_at():
    one = under_way(5, 64)
    for rank in range(63):
        one = hear(one, rank, BEGAN + 12)
    state = describe(one, (), BEGAN + 12)
    text = screen_text(state, 80, 24)
    assert re.search(r"^node64 +silent", text, re.MULTILINE)
    assert re.search(r"… and \d+ more: \d+ computing", text)
    assert re.search(r"… and \d+ more links, less busy", text)


def test_a_run_of_which_nothing_is_known_has_a_screen():
    text = screen_text(describe(running(), (), BEGAN), 80, 24)
    assert text.count("starting") == 3
    assert "time" not in text


def test_what_ranks_print_moves_no_cursor_and_is_no_markup():
    lines = [LineRow("node1", NASTY)]
    text = screen_text(state_of(3, lines), 120, 40)
    shown = next(row for row in text.splitlines() if row.startswith("node1 |"))
    assert shown == r"node1 | \x1b[2J\x1b]0;title\x07[bold red]x[/] \u202etxt\r?new \x9b5n"
    assert draw(state_of(3, lines), 80, 24)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def take_terminal(monkeypatch):
    """Make standard error a terminal; not a fixture, as pytest would undo it before the test begins."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    return stream


def test_lines_pass_above_the_screen_and_the_cursor_stays_visible(monkeypatch):
    terminal = take_terminal(monkeypatch)
    screen = TerminalScreen(terminal)
    screen.start()
    screen.draw(state_of(3))
    screen.output.write("node1 | first words\n")
    screen.output.write("node1 | \x1b[31mred\x1b[0m\n")
    assert "first words" not in terminal.getvalue()  # until it is drawn
    screen.draw(state_of(3))
    screen.stop()
    screen.output.write("node1 | last words\n")
    said = terminal.getvalue()
    assert "\x1b[?1049h" not in said  # not the alternate screen
    assert said.rfind("\x1b[?25h") > said.rfind("\x1b[?25l")
    assert said.index("first words") < said.rindex("last words")
    assert "\x1b[31mred" in said
    assert said.endswith("node1 | last words\n")


def test_while_it_is_drawn_the_cursor_is_not_hidden(monkeypatch):
    """So a killed process leaves a terminal with a visible cursor."""
    terminal = take_terminal(monkeypatch)
    screen = TerminalScreen(terminal)
    screen.start()
    screen.draw(state_of(3))
    said = terminal.getvalue()
    assert said.rfind("\x1b[?25h") > said.rfind("\x1b[?25l")
    screen.stop()


def test_without_a_terminal_lines_go_on_at_once():
    stream = io.StringIO()
    above = LinesAbove(None, stream)
    above.is_live = True
    above.write("node1 | words\n")
    assert (stream.getvalue(), above.isatty()) == ("node1 | words\n", False)


def test_a_loss_that_is_no_number_is_no_dash():
    one = hear(running(), 0, BEGAN + 1, step=1, compute_s=0.5, comm_s=0.1)
    text = screen_text(describe(one, (), BEGAN + 1), 80, 24)
    assert re.search(r"^node1 +computing +1 +NaN", text, re.MULTILINE)
    assert re.search(r"^node2 +starting +- +-", text, re.MULTILINE)
