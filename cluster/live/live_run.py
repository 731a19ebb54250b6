"""The live view of one launch: collects news, writes the state document, shows it on a screen or a page.

It works on its own threads. A failure here is reported at most once, and the run continues as if there were no live
view.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cluster.base.console import LinePrinter
from cluster.base.files import write_atomically
from cluster.live.describe import describe, remember
from cluster.live.events_tail import EventsTail
from cluster.live.follow import STATE, pointed_at
from cluster.live.link_log import LinkLog
from cluster.live.news import Measured, News, Noted, Phase
from cluster.live.state import LineRow, LiveState, to_json
from cluster.live.telemetry import Post, Telemetry
from cluster.live.tracker import Tracker, update
from cluster.ssh.fleet import Fleet

if TYPE_CHECKING:
    from cluster.live.http_page import HttpPage
    from cluster.live.terminal import TerminalScreen

DRAW_S = 0.25  # the longest that a program's output waits while a screen is drawn
MOST_LINES, MOST_LINE = 20, 300
END_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class LiveOptions:
    """Options of the live view.

    Attributes:
        is_on: whether nodes send telemetry and other processes can follow the run.
        on_terminal: whether to draw a screen on standard error, which must be a terminal.
        page: the page that shows the run, or None.
    """

    is_on: bool = True
    on_terminal: bool = False
    page: HttpPage | None = None


class LiveRun:
    """The live view of one launch.

    Args:
        tracker: what is known at the start.
        folder: the run folder, for live.json.
        options: what to show, and where.
        say: prints a message for the user.
    """

    def __init__(
        self, tracker: Tracker, folder: Path, options: LiveOptions, say: Callable[[str], None]
    ) -> None:
        self._tracker, self._folder, self._options, self._say = tracker, folder, options, say
        self._lock = threading.Lock()
        self._lines: deque[LineRow] = deque(maxlen=MOST_LINES)
        self._events = EventsTail(folder / "events.jsonl")
        nodes = len({link.src for link in tracker.links})
        self._link_log = LinkLog(folder, nodes, self._note_down)
        self._screen: TerminalScreen | None = None  # while it is drawn
        self._screen_to_be: TerminalScreen | None = None
        self._screen_lock = threading.Lock()
        self._over = threading.Event()
        self._has_complained = False
        self._spent_s, self._began = 0.0, time.monotonic()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def tell(self, news: News) -> None:
        """Record news; no effect if the live view is off."""
        if self._options.is_on:
            with self._harmless(), self._lock:
                self._tracker = update(self._tracker, news, time.time())
                if isinstance(news, Measured) and not self._over.is_set():
                    facts = self._tracker.nodes[news.node]
                    self._link_log.add(news.node, news.sample, facts.carried)

    def _note_down(self, words: str) -> None:
        """Record a note about links.csv, with the lock held."""
        self._tracker = update(self._tracker, Noted(words), time.time())

    def hear(self, name: str, line: str) -> None:
        """Record a line that a rank printed."""
        with self._lock:
            self._lines.append(LineRow(name, line[:MOST_LINE]))

    def printer(self, names: Sequence[str], stream: TextIO) -> LinePrinter:
        """Return a printer for the ranks' output that keeps clear of the screen, if there is one."""
        if not self._options.is_on:
            return LinePrinter(names, stream)
        if self._options.on_terminal:
            from cluster.live.terminal import (
                TerminalScreen,
            )  # imports rich, which only a terminal needs

            self._screen_to_be = screen = TerminalScreen(stream)
            return HeardPrinter(names, screen.output, self.hear)  # type: ignore[arg-type]
        return HeardPrinter(names, stream, self.hear)

    @contextmanager
    def following(self, fleet: Fleet, posts: Sequence[Post]) -> Iterator[None]:
        """Read telemetry and draw the screen as long as the block lasts: while ranks run."""
        if not self._options.is_on:
            yield
            return
        telemetry = Telemetry(
            fleet, posts, self._tracker.interval_s, self.tell, self._complain_of_node
        )
        self.tell(Phase("running"))
        telemetry.start()
        self._start_screen()
        try:
            yield
        finally:
            self._stop_screen()
            telemetry.close()
            self.tell(Phase("collecting"))

    def begin(self) -> None:
        """Start publishing."""
        if self._options.is_on:
            with self._harmless():
                self._publish()
            self._thread.start()

    def end(self) -> None:
        """Publish the end and stop, in bounded time."""
        if not self._options.is_on:
            return
        self._over.set()
        self._thread.join(END_TIMEOUT_S)
        self.tell(Phase("ended"))
        with self._lock:
            self._link_log.close()
        with self._harmless():
            self._publish()

    def _work(self) -> None:
        interval_s, due = self._tracker.interval_s, time.monotonic()
        while not self._over.wait(DRAW_S if self._screen else interval_s):
            began = time.thread_time()
            with self._harmless():
                if time.monotonic() >= due:
                    due = time.monotonic() + interval_s - DRAW_S / 2
                    self._look()
                    self._publish()
                elif screen := self._screen:
                    self._on_screen(screen.flush)
            self._spent_s += time.thread_time() - began

    def _look(self) -> None:
        for happened in self._events.look():
            self.tell(happened)
        with self._lock:
            self._link_log.flush()
            if self._tracker.phase == "running":
                self._tracker = remember(self._tracker, time.time())

    def _publish(self) -> None:
        state = self._state()
        text = to_json(state)
        try:
            write_atomically(self._folder / STATE, text.encode() + b"\n", 0o666)
        except OSError as error:
            self._complain(
                f"`watch` is unavailable: cannot write {self._folder / STATE}: {error.strerror}"
            )
        if self._options.page:
            self._options.page.show(text, is_last=state.is_over)
        if screen := self._screen:
            self._on_screen(lambda: screen.draw(state))

    def _state(self) -> LiveState:
        host_cpu_pct = 100 * self._spent_s / max(1e-3, time.monotonic() - self._began)
        with self._lock:
            return describe(self._tracker, tuple(self._lines), time.time(), host_cpu_pct)

    def _start_screen(self) -> None:
        if screen := self._screen_to_be:
            self._screen = screen
            self._on_screen(screen.start)

    def _stop_screen(self) -> None:
        with self._screen_lock:
            screen, self._screen = self._screen, None
        if screen:
            with suppress(OSError):
                screen.stop()

    def _on_screen(self, action: Callable[[], None]) -> None:
        """Run `action` on the screen; give up the screen if the terminal has gone."""
        with self._screen_lock:
            if self._screen is None:
                return
            try:
                action()
            except OSError:
                self._screen.give_up()
                self._screen = None

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Report any exception of the block and swallow it: what nodes send may trigger a bug of ours."""
        try:
            yield
        except Exception as error:
            self._complain(f"the live view is incomplete: {error!r}, a bug in gradwire")

    def _complain_of_node(self, words: str) -> None:
        self.tell(Noted(words))
        self._complain(f"the live view goes on without a node: {words}")

    def _complain(self, words: str) -> None:
        """Report the first problem; ignore later ones."""
        if not self._has_complained and not self._over.is_set():
            self._has_complained = True
            self._say(words)


class HeardPrinter(LinePrinter):
    """A printer that also passes each line to a callback."""

    def __init__(
        self, names: Sequence[str], stream: TextIO, hear: Callable[[str, str], None]
    ) -> None:
        super().__init__(names, stream)
        self._hear = hear

    def print(self, node: str, line: str) -> None:
        """Print one line of one rank."""
        self._hear(node, line)
        super().print(node, line)


@contextmanager
def live_run(
    tracker: Tracker,
    state_dir: Path,
    folder: Path,
    options: LiveOptions,
    say: Callable[[str], None],
) -> Iterator[LiveRun]:
    """Run the live view of a launch as long as the block lasts.

    Args:
        tracker: what is known at the start.
        state_dir: the cluster's state folder, where other processes find the run.
        folder: the run folder.
        options: what to show, and where.
        say: prints a message for the user.
    """
    live = LiveRun(tracker, folder, options, say)
    if not options.is_on:
        yield live
        return
    with pointed_at(state_dir, folder):
        live.begin()
        try:
            yield live
        finally:
            live.end()
