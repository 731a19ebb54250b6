"""Plays traces on the nodes: one process on each, begun and ended together.

The host could change a link some five times a second, for each change starts a program; these processes (`node.wire
replay`) are told all of a trace beforehand and keep the time themselves. They end with their connections, and then the
links are as the plans in force say.

Nodes that no trace concerns have one, too: so nobody else can shape the cluster meanwhile, not even in parts.
"""

import json
import queue
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from cluster.base.errors import NodeError
from cluster.base.spec import Node
from cluster.links.traces import Playback, first_order
from cluster.ssh.answers import parse_answer
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess
from protocol.node_plan import NodePlan
from protocol.reader import document

REPLAY = ("python3", "-m", "node.wire", "replay")
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class TraceExit:
    """A trace that has ended on all nodes of its links.

    Attributes:
        name: of the playback.
        changes: how often it changed a link.
        late: how many changes came more than 50 ms late, or not at all because the next one was due.
        worst_ms: how late the latest came.
    """

    name: str
    changes: int
    late: int
    worst_ms: float

    def record(self) -> dict[str, Any]:
        """As JSON shows it; counts of the node that did worst."""
        return {"changes": self.changes, "late": self.late, "worst_ms": self.worst_ms}


class TracePlayer:
    """The nodes under traces, within a `with` block; without any trace it does nothing.

    Args:
        fleet: connections to the nodes.
        playbacks: what may be begun, by a name.

    Raises:
        NodeError: a node could not, now or later; in its own words.
    """

    def __init__(self, fleet: Fleet, playbacks: Mapping[str, Playback]) -> None:
        self._fleet = fleet
        self._playbacks = dict(playbacks)
        self._processes: dict[str, RemoteProcess] = {}
        self._said: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        self._reports: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in playbacks}

    @property
    def is_on(self) -> bool:
        """Whether the nodes' plans can be changed by its `apply`, and not otherwise."""
        return bool(self._processes)

    def __enter__(self) -> Self:
        try:
            if self._playbacks:
                self._fleet.each(self._start, "traces cannot be replayed")
            self._hear_from(self._processes, "ready")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, name: str) -> None:
        """Begin a trace, on all its nodes at once."""
        self._tell(self._playbacks[name].nodes, {"do": "begin", "trace": name})

    def end(self, name: str) -> None:
        """End a trace before its time; `ended` then tells of it."""
        self._tell(self._playbacks[name].nodes, {"do": "end", "trace": name})

    def apply(self, plans: Mapping[str, NodePlan]) -> None:
        """Give these nodes other plans, underneath the traces, and wait until they are in force."""
        for node, plan in plans.items():
            self._tell([node], {"do": "apply", "plan": document(plan)})
        self._hear_from(plans, "applied")

    def ended(self, timeout_s: float | None = 0.0) -> list[TraceExit]:
        """The traces that have ended since this was asked last; waits for some answer of a node that long."""
        try:
            self._hear(timeout_s)
            while True:
                self._hear(0.0)
        except queue.Empty:
            return self._whole()

    def close(self) -> list[TraceExit]:
        """End all traces and processes; the links are as the plans in force say. Returns what `ended` would."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            with suppress(OSError, EOFError):  # the connection has gone: the node saw that, too
                process.close_stdin()
        waiting = set(processes)
        while waiting:
            try:
                node, said = self._said.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty as error:
                raise self._silent(waiting) from error
            self._keep(node, said or {})
            waiting -= {node} if said is None else set()
        self._check({node: process.wait() for node, process in processes.items()})
        return self._whole()

    def _start(self, node: Node) -> None:
        process = self._processes[node.name] = self._fleet.start(node.name, REPLAY)
        threading.Thread(target=self._follow, args=(process,), daemon=True).start()
        process.write(json.dumps(first_order(self._playbacks, node.name)).encode() + b"\n")

    def _follow(self, process: RemoteProcess) -> None:
        try:
            for line in process.lines():
                self._said.put((process.node, parse_answer(process.node, line)))
        except NodeError:
            process.close()  # whatever it is, it is no replay
        finally:  # who waits for it must hear of its end
            process.patience_s = ANSWER_TIMEOUT_S
            self._said.put((process.node, None))

    def _tell(self, nodes: Collection[str], order: Mapping[str, Any]) -> None:
        line = json.dumps(order).encode() + b"\n"
        for node in nodes:
            self._processes[node].write(line)

    def _hear_from(self, nodes: Collection[str], answer: str) -> None:
        waiting = set(nodes)
        while waiting:
            try:
                node, said = self._hear(ANSWER_TIMEOUT_S)
            except queue.Empty as error:
                raise self._silent(waiting) from error
            if answer in said:
                waiting.discard(node)

    def _hear(self, timeout_s: float | None) -> tuple[str, dict[str, Any]]:
        """What some node says next; a node that has ended says why."""
        node, said = (
            self._said.get(timeout=timeout_s) if timeout_s != 0 else self._said.get_nowait()
        )
        if said is None:
            process = self._processes.pop(node)
            self._check({node: process.wait()})
            raise NodeError("a trace cannot be replayed", {node: "the process ended"})
        self._keep(node, said)
        return node, said

    def _keep(self, node: str, said: dict[str, Any]) -> None:
        if "ended" in said:
            self._reports[said["ended"]][node] = said

    def _whole(self) -> list[TraceExit]:
        """Those traces of which all nodes have said that they ended; each is told once."""
        whole = []
        for name, reports in list(self._reports.items()):
            if reports.keys() == self._playbacks[name].nodes:
                del self._reports[name]
                most = {
                    key: max(r[key] for r in reports.values())
                    for key in ("changes", "late", "worst_ms")
                }
                whole.append(TraceExit(name, **most))
        return whole

    def _check(self, ends: Mapping[str, tuple[int, bytes]]) -> None:
        failed = {
            node: words.decode(errors="replace").strip() or f"exit code {code}"
            for node, (code, words) in ends.items()
            if code != 0
        }
        if failed:
            raise NodeError("a trace could not be replayed", failed)

    def _silent(self, nodes: Collection[str]) -> NodeError:
        words = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        return NodeError("a trace could not be replayed", dict.fromkeys(sorted(nodes), words))
