"""Follow a run in progress: ranks, links, where the time goes.

    python -m cluster.watch                 # until the run ends; Ctrl-C does not stop the run
    python -m cluster.watch --once          # one screen, as text
    python -m cluster.watch --json          # one JSON document per line, docs/run-folder.md
    python -m cluster.watch --http 0        # also as a web page on 127.0.0.1, on any free port

Shows what the launch in this checkout writes (runs/…/live.json: once a second, every two seconds from 9 nodes on),
without asking any node. Without a terminal, it prints a screen whenever the run enters another phase.

Exit codes: 0 the run has ended, 1 no run, or its launch was killed, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator

from cluster.base.console import eprint
from cluster.base.spec import ClusterSpec
from cluster.base.stdout import is_read
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.cli.live_options import add_http, check_port, served_page
from cluster.live.follow import find_run, follow
from cluster.live.http_page import HttpPage
from cluster.live.screen import screen_text
from cluster.live.state import LiveState, to_json
from cluster.live.terminal import TerminalScreen, can_draw

PLAIN_SIZE = (100, 60)  # without a terminal
MOST_LINES = 10


def main(argv: list[str] | None = None) -> int:
    """Watch a run."""
    parser = make_parser("cluster.watch", __doc__)
    add_name(parser)
    parser.add_argument("--once", action="store_true", help="print one screen and exit")
    add_http(parser)
    return run_verb(parser, watch, argv)


def watch(args: Namespace) -> None:
    """Run the verb until the run ends."""
    check_port(args.http)
    as_json, args.json = args.json, False  # many documents, printed here as they arrive
    states = follow(find_run(ClusterSpec(args.name)))
    if args.once:
        _show(next(states), as_json=as_json)
        return
    with served_page(args.http) as page:
        show = _show_documents if as_json else _show_screens
        last = show(_paged(states, page))
    if last is not None and not as_json:
        eprint(f"the run has ended: {last.folder}")


def _show(state: LiveState, *, as_json: bool) -> None:
    size = (
        shutil.get_terminal_size(PLAIN_SIZE)
        if sys.stdout.isatty()
        else os.terminal_size(PLAIN_SIZE)
    )
    print(to_json(state) if as_json else screen_text(state, size.columns, size.lines, MOST_LINES))


def _show_documents(states: Iterator[LiveState]) -> LiveState | None:
    last = None
    for last in states:
        print(to_json(last), flush=True)
        if not is_read(sys.stdout):  # `watch --json | head -1`
            break
    return last


def _show_screens(states: Iterator[LiveState]) -> LiveState | None:
    """Show one screen that is updated on a terminal; elsewhere print one for each phase of the run."""
    if not can_draw():
        return _show_parts(states)
    screen, last = TerminalScreen(sys.stdout, MOST_LINES), None
    screen.start()
    try:
        for last in states:
            screen.draw(last)
    finally:
        screen.stop()
    return last


def _show_parts(states: Iterator[LiveState]) -> LiveState | None:
    last, phase = None, ""
    for last in states:
        if last.phase != phase and is_read(sys.stdout):
            phase = last.phase
            _show(last, as_json=False)
    return last


def _paged(states: Iterator[LiveState], page: HttpPage | None) -> Iterator[LiveState]:
    """Yield the states, after showing each on the page."""
    for state in states:
        if page is not None:
            page.show(to_json(state), is_last=state.is_over)
        yield state


if __name__ == "__main__":
    sys.exit(main())
