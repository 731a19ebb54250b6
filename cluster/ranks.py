"""Ranks that run: started on every node at once, streamed, and ended together.

The first rank that fails is the root cause; the others are told to stop (SIGTERM, ten seconds, SIGKILL:
`node.rank` does that where its standard input ends, so it also happens when we are killed).
"""

import json
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.console import LinePrinter
from cluster.errors import NodeError
from cluster.fleet import Fleet
from cluster.places import Place
from cluster.remote_process import LOST, RemoteProcess

RANK = ("python3", "-m", "node.rank")
LOCK = "/run/gradwire/rank.lock"  # of node.rank, as long as a run has the node
EXIT_BUSY = 75
STOP_TIMEOUT_S = 15.0  # node.rank gives a rank ten seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How one rank ended.

    Attributes:
        place: where it ran.
        exit_code: -n for signal n.
        time: when it failed or ended, by its node's own clock.
        error: what it says itself of why it failed (`@record`), in one line; empty where it says nothing.
    """

    place: Place
    exit_code: int
    time: float
    error: str = ""


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


class Ranks:
    """All ranks of a run, from their start to their end; each gets its order (docs/formats.md)."""

    def __init__(
        self, fleet: Fleet, orders: Mapping[Place, object], log_dir: Path, printer: LinePrinter
    ) -> None:
        self._printer = printer
        self._log_dir = log_dir
        self._ended: queue.Queue[Ended] = queue.Queue()
        self._processes = {place: fleet.start(place.node, RANK) for place in orders}
        self._refusals: dict[str, str] = {}
        for place, process in self._processes.items():
            process.write(json.dumps(orders[place]).encode() + b"\n")
            threading.Thread(target=self._follow, args=(place, process), daemon=True).start()

    def wait(self) -> list[Ended]:
        """Wait until all have ended, and stop the rest once one fails; in the order of their ends.

        Raises:
            NodeError: a node refused, because another run has it.
            KeyboardInterrupt: handed on, once every rank has been stopped.
        """
        ended: list[Ended] = []
        try:
            while len(ended) < len(self._processes):
                ended.append(self._ended.get())
                if ended[-1].exit_code != 0:
                    self.stop()
        except KeyboardInterrupt:
            self.stop()
            self._wait_stopped(len(self._processes) - len(ended))
            raise
        if self._refusals:
            raise _in_use(self._refusals)
        return sorted(ended, key=lambda end: end.time)

    def stop(self) -> None:
        """Tell every rank to end."""
        for process in self._processes.values():
            try:
                process.close_stdin()
            except (OSError, EOFError):
                pass  # the connection has gone: node.rank saw that too

    def _wait_stopped(self, count: int) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for _ in range(count):
            try:
                self._ended.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return

    def _follow(self, place: Place, process: RemoteProcess) -> None:
        try:
            self._copy_lines(place.name, process)
        finally:  # whoever waits for the end must hear of it, even where the disk is full
            exit_code, stderr = process.wait()
            words = stderr.decode(errors="replace")
            self._ended.put(self._read_end(place, exit_code, words))

    def _copy_lines(self, name: str, process: RemoteProcess) -> None:
        heard = True
        with (self._log_dir / f"{name}.log").open("w", buffering=1) as log:
            for line in process.lines():
                log.write(line + "\n")
                try:
                    if heard:
                        self._printer.print(name, line)
                except BrokenPipeError:
                    heard = False  # `launch | head`: the run goes on, and so does its log

    def _read_end(self, place: Place, exit_code: int, stderr: str) -> Ended:
        if exit_code == EXIT_BUSY and not stderr.lstrip().startswith("{"):
            self._refusals[place.node] = stderr.strip()
            return Ended(place, exit_code, time.time())
        try:
            report = json.loads(stderr.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return Ended(place, exit_code if exit_code else LOST, time.time())
        return Ended(
            place, int(report["exit_code"]), float(report["time"]), str(report.get("error", ""))
        )
