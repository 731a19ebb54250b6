"""Ranks that run: started on every node at once, streamed, and ended together.

The first rank that fails is the root cause; the others are told to stop (SIGTERM, ten seconds, SIGKILL:
`node.rank` does that where its standard input ends, so it also happens when we are killed).
"""

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.console import LinePrinter
from cluster.errors import NodeError
from cluster.fleet import Fleet
from cluster.links import Link
from cluster.remote_process import LOST, RemoteProcess
from cluster.spec import Node

RANK = ("python3", "-m", "node.rank")
MASTER_PORT = 29500
EXIT_BUSY = 75
STOP_TIMEOUT_S = 15.0  # node.rank gives a rank ten seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How one rank ended: its exit code, -n for signal n; `time` by the node's own clock."""

    node: str
    rank: int
    exit_code: int
    time: float


def rank_environment(
    node: Node,
    nodes: Sequence[Node],
    links: Sequence[Link],
    run_id: str,
    run_dir: str,
    timeout_s: float,
    *,
    isolated: bool = False,
) -> dict[str, str]:
    """Torchrun's contract for one rank a node, and ours: docs/formats.md."""
    size = len(nodes)
    linked = {link.dst for link in links if link.src == node.name}
    neighbours = [str(other.rank) for other in nodes if other.name in linked]
    environ = {
        "RANK": str(node.rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(node.rank),
        "GROUP_WORLD_SIZE": str(size),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(node.rank),
        "ROLE_WORLD_SIZE": str(size),
        "MASTER_ADDR": "node1",
        "MASTER_PORT": str(MASTER_PORT),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": f"{run_dir}/error.json",
        "PYTHONUNBUFFERED": "1",
        "GRADWIRE_RUN_DIR": run_dir,
        "GRADWIRE_TIMEOUT_S": f"{timeout_s:.0f}",
        "GRADWIRE_NEIGHBOURS": ",".join(neighbours),
    }
    # Else gloo connects every rank with every other before it does anything.
    return environ | {"TORCH_GLOO_LAZY_INIT": "1"} if isolated else environ


class Ranks:
    """One rank a node, from its start to its end."""

    def __init__(
        self, fleet: Fleet, orders: Mapping[str, object], log_dir: Path, printer: LinePrinter
    ) -> None:
        self._nodes = {node.name: node for node in fleet.nodes}
        self._printer = printer
        self._log_dir = log_dir
        self._ended: queue.Queue[Ended] = queue.Queue()
        self._processes = {name: fleet.start(name, RANK) for name in orders}
        self._refusals: dict[str, str] = {}
        for name, process in self._processes.items():
            process.write(json.dumps(orders[name]).encode() + b"\n")
            threading.Thread(target=self._follow, args=(process,), daemon=True).start()

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
            raise NodeError(
                "the cluster is in use", self._refusals, "wait for that run, or stop it"
            )
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

    def _follow(self, process: RemoteProcess) -> None:
        try:
            self._copy_lines(process)
        finally:  # whoever waits for the end must hear of it, even where the disk is full
            exit_code, stderr = process.wait()
            words = stderr.decode(errors="replace")
            self._ended.put(self._read_end(process.node, exit_code, words))

    def _copy_lines(self, process: RemoteProcess) -> None:
        heard = True
        with (self._log_dir / f"{process.node}.log").open("w", buffering=1) as log:
            for line in process.lines():
                log.write(line + "\n")
                try:
                    if heard:
                        self._printer.print(process.node, line)
                except BrokenPipeError:
                    heard = False  # `launch | head`: the run goes on, and so does its log

    def _read_end(self, node: str, exit_code: int, stderr: str) -> Ended:
        rank = self._nodes[node].rank
        if exit_code == EXIT_BUSY and not stderr.lstrip().startswith("{"):
            self._refusals[node] = stderr.strip()
            return Ended(node, rank, exit_code, time.time())
        try:
            report = json.loads(stderr.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return Ended(node, rank, exit_code if exit_code else LOST, time.time())
        return Ended(node, rank, int(report["exit_code"]), float(report["time"]))
