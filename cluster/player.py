"""Plays a schedule while ranks run: waits for its moments, changes the links in place, notes what was done when."""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster.changes import change_plans
from cluster.console import Console
from cluster.errors import ClusterError
from cluster.fleet import Fleet, RemoteProcess
from cluster.schedule import Event
from cluster.shaping import Plan, Shape, apply_some, link_plans

LOOK_S = 0.05
TAIL = ("tail", "-n", "+1", "-s", "0.1", "-F")


class Player:
    """A schedule at work, from the start of the ranks to the end of the `with` block; then the links are as before.

    Args:
        fleet: connections to the nodes.
        shape: the links in force.
        events: the schedule.
        run_dir: where rank 0 leaves its metrics, on its node.
        log: a JSON line for each thing that was done: {"time", "after_s", "step", "what", "took_s"}.
    """

    def __init__(
        self,
        fleet: Fleet,
        shape: Shape,
        events: Sequence[Event],
        run_dir: str,
        log: Path,
        console: Console,
    ) -> None:
        self._fleet, self._shape, self._console = fleet, shape, console
        self._waiting = list(events)
        self._log = log
        self._run_dir = run_dir
        self._in_force = dict(shape.plans)
        self._lasting: list[tuple[float, Event]] = []  # until when, what; later ones win
        self._steps: dict[int, float] = {}  # step -> when it was over
        self._over = threading.Event()
        self._tail: RemoteProcess | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if any(event.step is not None for event in self._waiting):
            metrics = f"{self._run_dir}/metrics.jsonl"
            self._tail = self._fleet.start(self._fleet.nodes[0].name, (*TAIL, metrics))
            threading.Thread(target=self._watch_steps, args=(self._tail,), daemon=True).start()
        if self._waiting:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._tail is not None:
            self._tail.close()
        if self._in_force != self._shape.plans:
            self._try(self._heal)

    def _heal(self) -> None:
        self._apply(dict(self._shape.plans), "the end: as before")

    def _play(self) -> None:
        while not self._over.wait(LOOK_S) and self._try(self._look):
            pass

    def _try(self, action: Callable[[], None]) -> bool:
        """Do something; where it fails say so: a node that is lost ends the run by itself."""
        try:
            action()
        except ClusterError as error:
            self._console.say(f"schedule: {error}")
            return False
        return True

    def _look(self) -> None:
        """Do what is due, and undo what is over."""
        now = time.monotonic()
        for event in [event for event in self._waiting if self._due(event, now)]:
            self._waiting.remove(event)
            until = now + event.for_s if event.for_s is not None else math.inf
            self._lasting = [] if event.heal else [*self._lasting, (until, event)]
            self._apply(self._plans(), event.words)
        for until, event in self._lasting:
            if until <= now:
                self._lasting.remove((until, event))
                self._apply(self._plans(), f"over: {event.words}")
                return

    def _due(self, event: Event, now: float) -> bool:
        start = self._started if event.step is None else self._steps.get(event.step)
        return start is not None and now >= start + event.after_s

    def _plans(self) -> dict[str, Plan]:
        """What the links shall be, by all that lasts."""
        plans = dict(self._shape.plans)
        for _, event in self._lasting:
            if event.profile is not None and self._shape.wanted is not None:
                wanted = replace(self._shape.wanted, profile=event.profile)
                plans = link_plans(self._fleet.nodes, wanted)
        links = self._shape.links
        changes = [change for _, event in self._lasting for change in event.changes_on(links)]
        return plans | change_plans(plans, changes)

    def _apply(self, plans: Mapping[str, Plan], what: str) -> None:
        started = time.monotonic()
        new = {name: plan for name, plan in plans.items() if plan != self._in_force[name]}
        apply_some(self._fleet, new)
        self._in_force = dict(plans)
        self._note(what, started)

    def _note(self, what: str, started: float) -> None:
        line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "after_s": round(started - self._started, 3),
            "step": max(self._steps, default=None),
            "what": what,
            "took_s": round(time.monotonic() - started, 3),
        }
        self._console.say(f"schedule, {line['after_s']:.1f} s: {what}")
        with self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")

    def _watch_steps(self, tail: RemoteProcess) -> None:
        for line in tail.lines():
            try:
                metric = json.loads(line)
            except ValueError:
                continue
            if metric.get("event") == "step":
                self._steps[int(metric["step"])] = time.monotonic()
