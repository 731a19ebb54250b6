"""Executes a schedule while ranks run: waits for each event, applies it in place, records what was done."""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Self

from cluster.accounting.metrics import parse_event
from cluster.base.console import Console
from cluster.base.errors import ClusterError, system_error
from cluster.engine.cpu_limits import CpuLimits
from cluster.links.changes import change_plans
from cluster.links.link_spec import link_plans
from cluster.schedule.events import Event
from cluster.shaping.link_state import LinkState, apply_some
from cluster.shaping.trace_player import ANSWER_TIMEOUT_S, TraceExit, TracePlayer
from cluster.ssh.fleet import PATIENCE_S, Fleet
from cluster.ssh.remote_process import RemoteProcess
from protocol.metrics import Step
from protocol.node_plan import NodePlan

LOOK_S = 0.05
LATE_S = 0.5  # a change that is later than this is told at the end of the run
# For a change under way at the end: a node may be silent for so long.
END_TIMEOUT_S = PATIENCE_S + ANSWER_TIMEOUT_S
TAIL = ("tail", "-n", "+1", "-s", "0.1", "-F")


class ScheduleRunner:
    """Runs a schedule from the start of the ranks to the end of the `with` block, then restores the state before it.

    Args:
        fleet: connections to the nodes.
        link_state: the links in force.
        processors: the nodes' CPU limits, and the means to change them.
        events: the schedule.
        metrics: the path of rank 0's metrics on its node.
        log: gets a JSON line for each action: {"time", "after_s", "step", "what", "took_s"}, with {"late_s"} if the
            schedule says when, and at the end of a trace {"changes", "late", "worst_ms"}.
    """

    def __init__(
        self,
        fleet: Fleet,
        link_state: LinkState,
        processors: CpuLimits,
        events: Sequence[Event],
        metrics: str,
        log: Path,
        console: Console,
    ) -> None:
        self._fleet, self._link_state, self._console = fleet, link_state, console
        self._processors = processors
        self._waiting = list(events)
        self._log = log
        self._metrics = metrics
        self._in_force = dict(link_state.plans)
        self._lasting: list[tuple[float, Event]] = []  # (end time, event); later ones win
        self._late_s: list[float] = []  # of changes that came more than LATE_S late
        self._traces = {
            str(number): event for number, event in enumerate(events) if event.playback is not None
        }
        self._replay = TracePlayer(
            fleet, {name: e.playback for name, e in self._traces.items() if e.playback}
        )
        self._awaited = {event.step for event in events if event.step is not None}
        self._steps: dict[int, float] = {}  # awaited step -> when it ended
        self._last_step: int | None = None
        self.failure = ""  # the first failure, if any
        self.is_restored = True  # whether the state is that before the schedule, for certain
        self._over = threading.Event()
        self._tail: RemoteProcess | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        self._replay.__enter__()  # before the ranks start, so that a trace that it refuses starts nothing
        self._started = time.monotonic()
        if any(event.step is not None for event in self._waiting):
            self._tail = self._fleet.start(self._fleet.nodes[0].name, (*TAIL, self._metrics))
            watch = partial(self._try, partial(self._watch_steps, self._tail))
            threading.Thread(target=watch, daemon=True).start()
        if self._waiting:
            self.is_restored = False
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._try(self._await_last_look)
        if self._tail is not None:
            self._tail.close()
        self._try(lambda: self._note_ended(self._replay.close()))
        for event in self._waiting:
            self._note(f"never came: {event.words}", time.monotonic())
        self._lasting = []
        self._try(self._give_back)
        if self.failure:
            self._in_force = {}  # after a failure the plans in force are unknown
        if self._in_force != self._link_state.plans:
            self._try(self._heal)
        self.is_restored = not self.failure  # an interrupt of the above leaves it False
        if self._late_s:
            late = f"{len(self._late_s)} changes came more than {LATE_S:g} s late"
            self._console.say(
                f"schedule: {late}, up to {max(self._late_s):.1f} s: late_s in events.jsonl"
            )

    def _await_last_look(self) -> None:
        """Wait until a change that is under way is done, but not for ever.

        Raises:
            ClusterError: it takes longer than END_TIMEOUT_S.
        """
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)
        if self._thread.is_alive():
            raise ClusterError(f"a change has not ended within {END_TIMEOUT_S:.0f} s")

    def _heal(self) -> None:
        started = time.monotonic()
        self._apply(dict(self._link_state.plans))
        self._note("end of the run: links restored", started)

    def _give_back(self) -> None:
        started = time.monotonic()
        if self._processors.give_back():
            self._note("end of the run: CPU limits restored", started)

    def _play(self) -> None:
        while not self._over.wait(LOOK_S) and self._try(self._look):
            pass

    def _try(self, action: Callable[[], None]) -> bool:
        """Run `action`; record any exception in `failure`, because nothing else would report it from this thread."""
        try:
            action()
        except Exception as error:
            self.failure = self.failure or _words_of(error)
            return False
        return True

    def _look(self) -> None:
        """Begin and undo the events that are due, in order of time, and note the traces that have ended."""
        now = time.monotonic()
        for event in sorted((e for e in self._waiting if self._due(e) <= now), key=self._due):
            if self._over.is_set():
                return
            self._undo_over(self._due(event))
            self._waiting.remove(event)
            self._do(event)
        self._undo_over(now)
        self._note_ended(self._replay.ended())

    def _undo_over(self, by: float) -> None:
        """Undo all events that are over by then, at once."""
        over = sorted((one for one in self._lasting if one[0] <= by), key=itemgetter(0))
        if not over:
            return
        started = time.monotonic()
        self._lasting = [one for one in self._lasting if one[0] > by]
        self._apply(self._plans())
        for until, event in over:
            self._note(f"over: {event.words}", started, due=until)

    def _do(self, event: Event) -> None:
        started = time.monotonic()
        if event.playback is not None:
            self._replay.begin(next(name for name, e in self._traces.items() if e is event))
        else:
            until = self._begins(event) + event.until_s
            self._lasting = [] if event.heal else [*self._lasting, (until, event)]
            for name in self._traces if event.heal else ():
                self._replay.end(name)
            self._apply(self._plans())
        self._note(event.words, started, due=self._due(event))

    def _note_ended(self, traces: Sequence[TraceExit]) -> None:
        for trace in traces:
            words = self._traces[trace.name].words
            self._note(f"over: {words}", time.monotonic(), more=trace.record())

    def _due(self, event: Event) -> float:
        """Return the time at which an event is due; infinity until its step is reached."""
        return self._begins(event) + event.after_s

    def _begins(self, event: Event) -> float:
        """Return when the seconds of an event begin to count."""
        return self._started if event.step is None else self._steps.get(event.step, math.inf)

    def _plans(self) -> dict[str, NodePlan]:
        """Return the plans that result from all events in force."""
        plans = dict(self._link_state.plans)
        for _, event in self._lasting:
            if event.profile is not None and self._link_state.link_spec is not None:
                wanted = replace(self._link_state.link_spec, profile=event.profile)
                plans = link_plans(self._fleet.nodes, wanted)
        links = self._link_state.links
        changes = [change for _, event in self._lasting for change in event.changes_on(links)]
        return plans | change_plans(plans, changes)

    def _apply(self, plans: Mapping[str, NodePlan]) -> None:
        self._processors.limit([event.cpus for _, event in self._lasting if event.cpus])
        new = {name: plan for name, plan in plans.items() if plan != self._in_force.get(name)}
        self._in_force = dict(plans)
        if self._replay.is_on:
            self._replay.apply(new)
        else:
            apply_some(self._fleet, new)

    def _note(
        self,
        what: str,
        started: float,
        *,
        due: float | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        late_s = 0.0 if due is None else max(0.0, started - due)
        if late_s > LATE_S:
            self._late_s.append(late_s)
        line: dict[str, object] = {
            "time": round(time.time(), 3),
            "after_s": round(started - self._started, 3),
            "step": self._last_step,
            "what": what,
            "took_s": round(time.monotonic() - started, 3),
            **({} if due is None else {"late_s": round(late_s, 3)}),
            **(more or {}),
        }
        # A broken pipe or a full disk must not end the schedule: the links matter more.
        with suppress(OSError):
            with self._log.open("a") as log:
                log.write(json.dumps(line) + "\n")
            said = "".join(f", {key} {value}" for key, value in (more or {}).items())
            self._console.say(f"schedule, {line['after_s']:.1f} s: {what}{said}")

    def _watch_steps(self, tail: RemoteProcess) -> None:
        for line in tail.lines():
            event = parse_event(line)
            if isinstance(event, Step):
                self._note_step(event.step)

    def _note_step(self, step: int) -> None:
        """Note that a step has ended; its time only if an event waits for it, as a node may tell any number."""
        self._last_step = max(step, self._last_step or 0)
        if step in self._awaited:
            self._steps[step] = time.monotonic()


def _words_of(error: Exception) -> str:
    if isinstance(error, ClusterError):
        return error.message
    if isinstance(error, OSError):
        return system_error(error).message
    return f"{type(error).__name__}: {error}, a bug in gradwire"
