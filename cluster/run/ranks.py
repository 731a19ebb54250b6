"""Rank processes: started on every node at once, their output streamed, and ended together.

Once a rank fails the others are told to stop (SIGTERM, ten seconds, SIGKILL: `node.rank` does that where its standard
input ends, so it also happens when we are killed). Which of them is the root cause: cluster/run/root_cause.py.
"""

import json
import math
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cluster.base.console import LinePrinter
from cluster.base.errors import NodeError
from cluster.run.placement import RankPlacement
from cluster.run.rank_output import copy_lines
from cluster.run.stall_watcher import StallWatch
from cluster.ssh.fleet import Fleet
from cluster.ssh.liveness import MOST_SILENT_S
from cluster.ssh.remote_process import LOST, RemoteProcess

RANK = ("python3", "-m", "node.rank")
LOCK = "/run/gradwire/rank.lock"  # of node.rank, as long as a run has the node
EXIT_BUSY = 75
STOP_TIMEOUT_S = 20.0  # node.rank gives a rank ten seconds between SIGTERM and SIGKILL
LAST_WORDS_S = 2.0  # for a rank that has failed to say why, where another has heard of it first
MOST_WORDS = 300  # of what a rank says of its error, in characters


@dataclass(frozen=True)
class RankExit:
    """How one rank ended.

    Attributes:
        place: where it ran.
        exit_code: -n for signal n; LOST where nobody knows.
        time: when it failed or ended, by its node's own clock.
        error: what it says itself of why it failed (`@record`), in one line; empty where it says nothing.
        is_bystander: whether it failed by the failure of another: its connection was closed, its wait took too long.
        out_of_memory: whether the kernel killed it, or a process of its node, for lack of memory.
        was_stopped: whether it ended after it had been told to.
        stall: why it held the others up, where it did.
    """

    place: RankPlacement
    exit_code: int
    time: float
    error: str = ""
    is_bystander: bool = False
    out_of_memory: bool = False
    was_stopped: bool = False
    stall: str = ""


def refuse_busy(fleet: Fleet) -> None:
    """See that no run has any of the nodes: whatever is changed or measured now would be so under it.

    Raises:
        NodeError: names the run.
    """
    tried = fleet.run(["flock", "--nonblock", LOCK, "true"], check=False)
    busy = [node for node, result in tried.items() if result.exit_code == 1]
    if busy:
        runs = fleet.run(["cat", LOCK], nodes=busy, check=False)
        raise _in_use({node: f"busy with run {runs[node].stdout.decode()}" for node in busy})


def _in_use(refusals: Mapping[str, str]) -> NodeError:
    return NodeError("the cluster is in use", refusals, "wait for that run, or stop it")


class RankProcesses:
    """All ranks of a run, from their start to their end; each gets its order (docs/formats.md)."""

    def __init__(
        self,
        fleet: Fleet,
        orders: Mapping[RankPlacement, object],
        log_dir: Path,
        printer: LinePrinter,
        watch: StallWatch,
    ) -> None:
        self._fleet = fleet
        self._printer = printer
        self._watch = watch
        self._log_dir = log_dir
        self._ended: queue.Queue[RankExit | None] = queue.Queue()  # None: the rest is given up
        self._stopped_at = math.inf  # Unix time
        self._processes = {place: fleet.start(place.node, RANK) for place in orders}
        self._refusals: dict[str, str] = {}
        for place, process in self._processes.items():
            process.write(json.dumps(orders[place]).encode() + b"\n")
            threading.Thread(target=self._follow, args=(place, process), daemon=True).start()
        watch.start(self._processes, lambda: self._ended.put(None))

    def wait(self) -> list[RankExit]:
        """Wait until all have ended, and stop the rest once one fails; how they ended, by rank.

        Raises:
            NodeError: a node refused, because another run has it.
            KeyboardInterrupt: handed on, once every rank has been stopped.
        """
        ended: dict[RankPlacement, RankExit] = {}
        stalled: dict[RankPlacement, str] = {}
        try:
            self._wait_failed(ended)
            if all(end.is_bystander for end in ended.values() if end.exit_code != 0):
                stalled = self._watch.stopped()  # of one that is stopped the others see nothing
        finally:  # on Ctrl-C, too
            self._watch.end()
            self._wait_stopped(ended)
        if self._refusals:
            raise _in_use(self._refusals)
        ends = [ended.get(place) or _unstoppable(place) for place in self._processes]
        return [replace(end, stall=stalled.get(end.place, "")) for end in ends]

    def stop(self) -> None:
        """Tell every rank to end."""
        self._stopped_at = min(self._stopped_at, time.time())
        for process in self._processes.values():
            with suppress(OSError, EOFError):  # the connection has gone: node.rank saw that too
                process.close_stdin()

    def _wait_failed(self, ended: dict[RankPlacement, RankExit]) -> None:
        """Until all have ended, or one has failed; after a bystander, a moment longer for the one that is not."""
        deadline = math.inf
        while len(ended) < len(self._processes) and (end := self._next(deadline)):
            ended[end.place] = end
            if end.exit_code != 0 and not end.is_bystander:
                return
            if end.exit_code != 0:
                deadline = min(deadline, time.monotonic() + LAST_WORDS_S)

    def _wait_stopped(self, ended: dict[RankPlacement, RankExit]) -> None:
        if len(ended) == len(self._processes):
            return
        self.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while len(ended) < len(self._processes):
            if (end := self._next(deadline)) is None:
                if time.monotonic() < deadline:
                    continue  # given up meanwhile
                return
            was_stopped = end.exit_code != LOST and end.time > self._stopped_at
            ended[end.place] = replace(end, was_stopped=was_stopped)

    def _next(self, deadline: float) -> RankExit | None:
        """The next rank that has ended; None where there is none before the deadline, or they are given up."""
        left_s = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        try:
            return self._ended.get(timeout=left_s)
        except queue.Empty:
            return None

    def _follow(self, place: RankPlacement, process: RemoteProcess) -> None:
        exit_code, words = LOST, ""
        try:
            show = partial(self._printer.print, place.name)
            lines = self._watch.hear(process.lines())
            copy_lines(lines, self._log_dir / f"{place.name}.log", show)
            exit_code, stderr = process.wait()
            words = stderr.decode(errors="replace")
        finally:  # whoever waits for the end must hear of it, whatever went wrong
            self._watch.forget(place)
            self._ended.put(self._read_end(place, exit_code, words))

    def _read_end(self, place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
        if place.node in self._fleet.lost:
            return RankExit(place, LOST, time.time() - MOST_SILENT_S)  # when it was heard last
        if exit_code == EXIT_BUSY and not stderr.lstrip().startswith("{"):
            self._refusals[place.node] = stderr.strip()
            return RankExit(place, exit_code, time.time())
        return read_report(place, exit_code, stderr)


def read_report(place: RankPlacement, exit_code: int, stderr: str) -> RankExit:
    """How a rank ended, by the last line of its node.rank; a rank may have written something else there, or killed it.

    Args:
        place: of the rank.
        exit_code: of node.rank.
        stderr: what node.rank said.
    """
    lines = stderr.strip().splitlines()
    try:
        report: dict[str, Any] = json.loads(lines[-1])
        failed_at = float(report["time"])
        return RankExit(
            place,
            int(report["exit_code"]),
            failed_at if math.isfinite(failed_at) else time.time(),
            str(report.get("error", ""))[:MOST_WORDS],
            is_bystander=bool(report.get("bystander")),
            out_of_memory=bool(report.get("out_of_memory")),
        )
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, RecursionError):
        return RankExit(place, exit_code if exit_code else LOST, time.time())


def _unstoppable(place: RankPlacement) -> RankExit:
    words = f"it did not stop within {STOP_TIMEOUT_S:.0f} s"
    return RankExit(place, LOST, time.time(), words, was_stopped=True)
