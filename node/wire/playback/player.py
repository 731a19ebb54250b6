"""Plays traces: changes links in place, many times a second, without starting a program each time.

    python -m node.wire replay      # orders on standard input, answers on standard output: protocol/trace.py

tc reads its lines from a pipe that stays open; the nfqueue daemon gets requests over its socket. While this runs,
`apply` and `clear` refuse to touch the node; the process that started it may send it other plans. When a trace ends,
its links are restored to the plan in force; when standard input ends (the host was interrupted or killed, the
connection broke), all links are.
"""

import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from time import monotonic
from types import FrameType

from node.base.scheduling import disable_gc, take_precedence
from node.wire import apply, egress, state
from node.wire.backends import WIRES
from node.wire.commands import CommandError, WireError
from node.wire.layout import Layout, lay_out
from node.wire.playback import lock
from node.wire.playback.traces import Playing, check_links, make_trace, under_traces
from node.wire.state import State
from protocol.lines import parse_order
from protocol.link import Pair
from protocol.node_plan import NodePlan, checked_plan
from protocol.reader import FormatError, document, shown
from protocol.trace import (
    ORDERS,
    Answer,
    Applied,
    ApplyOrder,
    BeginOrder,
    Ended,
    EndOrder,
    FirstOrder,
    ReplayReady,
    parse_first_order,
)

STANDSTILL_LOOK_S = 0.1
"""How often the rate of an outage is reset, to what is left of the outage."""
QUESTION = "qdisc show dev lo"
"""What tc is asked after its lines: its answer proves that they are done."""


class Tc:
    """One tc process that executes lines as they come: 6 µs each, while a new process takes 2 ms."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            ["tc", "-batch", "-"], stdin=pipe, stdout=pipe, stderr=pipe
        )

    def run(self, lines: list[str]) -> None:
        """Execute some lines, and wait until they are done.

        Raises:
            CommandError: one of them failed; quotes tc, which has ended.
        """
        assert self._process.stdin and self._process.stdout and self._process.stderr
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in [*lines, QUESTION]).encode())
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended before; its error message is still there
        if not os.read(self._process.stdout.fileno(), 1 << 16):
            words = " ".join(self._process.stderr.read().decode(errors="replace").split())
            raise CommandError(f"tc: {words or 'ended'}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Orders:
    """Orders on standard input, one per line."""

    def __init__(self, stdin: int) -> None:
        self._stdin = stdin
        # The parts of an order, joined only when it is whole: a trace may have many MB.
        self._begun: list[bytes] = []
        self.ended = False

    def wait(self, seconds: float | None) -> list[bytes]:
        """Return the orders that come next, if any comes within this time; leaves no whole order in the pipe."""
        if not select.select([self._stdin], [], [], seconds)[0]:
            return []
        chunk = os.read(self._stdin, 1 << 20)
        self.ended = not chunk
        self._begun.append(chunk)
        if b"\n" not in chunk:
            return []
        *whole, rest = b"".join(self._begun).split(b"\n")
        self._begun = [rest]
        return whole


class Player:
    """The links of one node under traces.

    Args:
        order: the first order, with all traces that may be begun.

    Raises:
        FormatError: the order has a link that this node lacks.
        WireError: no plan is in force here, or another replay runs.
    """

    def __init__(self, order: FirstOrder) -> None:
        with apply.exclusive_lock():
            found, fault = apply.look()
            if found is None:
                raise WireError(fault or "no plan is in force here: apply one first")
            self._state = found._replace(laying=state.new_laying())
            self._traces = {name: make_trace(told) for name, told in order.traces.items()}
            self._check_links(self._state.layout.plan)
            self._sign = lock.occupy(order.links)
            state.save(self._state)  # proofs of the links are void from now on
        self._tc = Tc()
        self._now = self._state.layout  # the layout that the kernel has
        self._is_torn = False  # whether the kernel has only parts of it
        self._changes = 0
        self._playing: dict[str, Playing] = {}

    def begin(self, name: str) -> None:
        """Begin a trace, from its start.

        Raises:
            FormatError: the first order had no trace of this name.
        """
        if name not in self._traces:
            raise FormatError(
                f"expected one of {', '.join(self._traces)}, got {shown(name)}", "trace"
            )
        playing = self._playing[name] = Playing(self._traces[name], monotonic())
        self._put_traced()
        playing.done(monotonic())
        playing.note_waiting(self._waiting_bytes())

    def end(self, name: str) -> Ended:
        """End a trace and restore its links to the plan. Returns how it went."""
        playing = self._playing.pop(name)
        self._put_traced()
        return playing.report(name)

    def is_playing(self, name: str) -> bool:
        """Return whether a trace has begun and not ended."""
        return name in self._playing

    def keep_time(self) -> list[str]:
        """Execute the changes that are due. Returns the names of traces that are over."""
        now = monotonic()
        moved = [playing for playing in self._playing.values() if playing.advance(now)]
        if moved or self._is_standing_still():
            self._put_traced()
        done = monotonic()
        for playing in moved:
            playing.done(done)
        return [name for name, playing in self._playing.items() if playing.ends <= now]

    def wait_s(self) -> float | None:
        """Return how long there is nothing to do; None for ever."""
        dues = [playing.next_due() for playing in self._playing.values()]
        if self._is_standing_still():
            dues.append(monotonic() + STANDSTILL_LOOK_S)
        return max(0.0, min(dues) - monotonic()) if dues else None

    def apply(self, plan: NodePlan) -> None:
        """Make another plan the one in force, underneath the values that traces set.

        Raises:
            FormatError: the plan contradicts itself, or lacks a link of a trace; nothing has changed.
            WireError: the node could not do it; then nothing is shaped any more.
        """
        self._check_links(checked_plan(plan))
        with apply.exclusive_lock():
            layout = lay_out(plan, self._now.device, self._now)
            made = self._bring_about(self._traced(layout))
            links = [link._replace(wire=made.wire) for link in plan.links]
            self._state = made._replace(layout=layout, report=made.report._replace(links=links))
            state.save(self._state)

    def close(self) -> list[Ended]:
        """Restore all links, and let other processes change them again. Returns how each trace went."""
        reports = [playing.report(name) for name, playing in self._playing.items()]
        self._playing.clear()
        try:
            self._put_back()
        finally:
            self._tc.close()
            lock.forget()
            self._sign.close()
        return reports

    def _check_links(self, plan: NodePlan) -> None:
        for name, trace in self._traces.items():
            check_links(trace, plan, f"traces.{name}")

    def _put_back(self) -> None:
        if not self._is_torn:
            with suppress(WireError):
                self._put_traced()
        if self._is_torn:
            with apply.exclusive_lock():
                self._bring_about(self._state.layout)

    def _bring_about(self, layout: Layout) -> State:
        """Apply a whole layout in place, adding what is missing, as `apply` does."""
        before = self._state._replace(layout=self._now)
        made = apply.bring_about(before, layout, WIRES[self._state.wire])
        self._now, self._is_torn = layout, False
        return made

    def _put_traced(self) -> None:
        """Change what the kernel has into what it must have now."""
        self._changes = self._changes + 1 if self._playing else 0
        after = self._traced(self._state.layout)
        self._is_torn = True
        wire_lines = WIRES[self._state.wire].change(self._now, after)
        lines = egress.change_lines(self._now, after) + wire_lines
        if lines:
            self._tc.run(lines)
        self._now, self._is_torn = after, False

    def _traced(self, layout: Layout) -> Layout:
        """Return a layout with the values that traces give its links at this moment."""
        changed = layout._replace(changes=layout.changes + self._changes)
        return under_traces(changed, self._playing.values(), monotonic())

    def _waiting_bytes(self) -> dict[Pair, int]:
        """Return how many bytes wait at each link that starts here."""
        counted = apply.link_counters(self._now)
        return {
            link.ends: counted[peer].backlog_bytes
            for peer, link in self._now.plan.outgoing().items()
            if peer in counted
        }

    def _is_standing_still(self) -> bool:
        return any(playing.is_standing_still() for playing in self._playing.values())


def replay(stdin: int) -> None:
    """Execute orders until they end; then restore all links to the plan in force.

    Raises:
        FormatError: an order is invalid.
        WireError: this node cannot do it.
    """
    _hear_signals_as_the_end(stdin)
    take_precedence()
    disable_gc()
    orders = Orders(stdin)
    waiting: list[bytes] = []
    while not waiting and not orders.ended:
        waiting = orders.wait(None)
    if waiting:
        _work(Player(parse_first_order(waiting.pop(0))), orders, waiting)


def _work(links: Player, orders: Orders, waiting: list[bytes]) -> None:
    try:
        _say(ReplayReady())
        while not orders.ended:
            for order in waiting:
                _obey(links, order)
            for name in links.keep_time():
                _say(links.end(name))
            waiting = orders.wait(links.wait_s())
    finally:
        for report in links.close():
            _say(report)


def _obey(links: Player, line: bytes) -> None:
    match parse_order(ORDERS, line):
        case BeginOrder(name):
            links.begin(name)
        case EndOrder(name):
            if links.is_playing(name):  # else it has just ended by itself
                _say(links.end(name))
        case ApplyOrder(plan):
            links.apply(plan)
            _say(Applied())


def _say(answer: Answer) -> None:
    with suppress(OSError):  # the client has gone: the links matter more
        print(json.dumps(document(answer)), flush=True)


def _hear_signals_as_the_end(stdin: int) -> None:
    """Let a signal end standard input: so there is only one way to end, and it is never interrupted half-way."""
    nothing = os.open(os.devnull, os.O_RDONLY)

    def end(number: int, frame: FrameType | None) -> None:
        os.dup2(nothing, stdin)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
