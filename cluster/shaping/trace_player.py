"""Plays traces on the nodes: one process on each, all started and stopped together.

The host itself could change a link only some five times a second, because each change starts a program. These processes
(`node.wire replay`) receive the whole trace beforehand and keep time themselves. They end with their connections, and
the links then go back to the plans in force.

Nodes without a trace run one too, so that nobody else can shape any part of the cluster meanwhile.
"""

import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from cluster.base.errors import NodeError
from cluster.base.spec import Node
from cluster.links.traces import Playback, first_order
from cluster.ssh.answers import parse_answer, understood
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess, Result
from protocol.lines import encode_line, encode_order, read_either
from protocol.node_plan import NodePlan
from protocol.rank import LOST
from protocol.reader import FormatError, shown
from protocol.trace import (
    ANSWERS,
    ORDERS,
    Answer,
    Applied,
    ApplyOrder,
    BeginOrder,
    Ended,
    EndOrder,
    Order,
    ReplayReady,
)

REPLAY = ("python3", "-m", "node.wire", "replay")
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class TraceExit:
    """A trace that has ended on all nodes of its links.

    Attributes:
        name: of the playback.
        changes: how often it changed a link.
        late: the number of changes that were more than 50 ms late, or skipped because the next was already due.
        worst_ms: the lateness of the latest change.
    """

    name: str
    changes: int
    late: int
    worst_ms: float

    def record(self) -> dict[str, float]:
        """Return the figures as JSON has them: those of the worst node."""
        return {"changes": self.changes, "late": self.late, "worst_ms": self.worst_ms}


class _Due:
    """What a node may still say, so that what it says is bounded: any trace ends once, each new plan is applied once.

    Args:
        traces: the names of its traces.
    """

    def __init__(self, traces: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._left: Counter[str | type[Answer]] = Counter([ReplayReady, *traces])

    def expect_applied(self) -> None:
        """Expect one `Applied` more."""
        with self._lock:
            self._left[Applied] += 1

    def take(self, said: Answer) -> bool:
        """Note an answer; return whether it is news: that it is ready, a node may say again.

        Raises:
            FormatError: it is not due.
        """
        what = said.ended if isinstance(said, Ended) else type(said)
        with self._lock:
            is_due = self._left[what] > 0
            self._left[what] -= is_due
        if isinstance(said, Ended) and not is_due:
            raise FormatError(f"{shown(said.ended)} has ended before", "ended")
        if isinstance(said, Applied) and not is_due:
            raise FormatError("no new plan was sent", "applied")
        return is_due


class TracePlayer:
    """Plays traces on the nodes within a `with` block; does nothing without traces.

    Args:
        fleet: connections to the nodes.
        playbacks: the traces that may be begun, by name.

    Raises:
        NodeError: a node failed, on entry or later; in its own words.
    """

    def __init__(self, fleet: Fleet, playbacks: Mapping[str, Playback]) -> None:
        self._fleet = fleet
        self._playbacks = dict(playbacks)
        self._processes: dict[str, RemoteProcess] = {}
        self._due: dict[str, _Due] = {}  # bounds what can be in `_said`
        # A process's last entry says how it ended.
        self._said: queue.Queue[tuple[str, Answer | NodeError | Result]] = queue.Queue()
        self._reports: dict[str, dict[str, Ended]] = {}

    @property
    def is_on(self) -> bool:
        """Whether replay processes run; if so, only `apply` can change the nodes' plans."""
        return bool(self._processes)

    def __enter__(self) -> Self:
        try:
            if self._playbacks:
                self._fleet.each(self._start, "traces cannot be replayed")
            self._hear_from(self._processes, ReplayReady)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, name: str) -> None:
        """Begin a trace, on all its nodes at once; each can be begun only once."""
        self._tell(self._playbacks[name].nodes, BeginOrder(name))

    def end(self, name: str) -> None:
        """End a trace early; `ended` then reports it."""
        self._tell(self._playbacks[name].nodes, EndOrder(name))

    def apply(self, plans: Mapping[str, NodePlan]) -> None:
        """Give these nodes new plans underneath the traces, and wait until they are in force."""
        for node, plan in plans.items():
            self._due[node].expect_applied()
            self._tell([node], ApplyOrder(plan))
        self._hear_from(plans, Applied)

    def ended(self, timeout_s: float | None = 0.0) -> list[TraceExit]:
        """Return the traces that ended since the last call; wait up to `timeout_s` for an answer (None: forever)."""
        with suppress(queue.Empty):
            self._hear(timeout_s)
            for _ in range(self._said.qsize()):
                self._hear(0.0)
        return self._whole()

    def wait_for_end(self, name: str) -> TraceExit:
        """Wait until a trace that was begun just now has ended.

        Raises:
            NodeError: a node has not ended it in time, or failed.
        """
        playback = self._playbacks[name]
        deadline = time.monotonic() + playback.lasts_s + ANSWER_TIMEOUT_S
        while (left_s := deadline - time.monotonic()) > 0:
            if ended := self.ended(left_s if math.isfinite(left_s) else None):
                return ended[0]
        raise self._silent(playback.nodes)

    def close(self) -> list[TraceExit]:
        """End all traces and processes, which restores the plans in force; return what `ended` would."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            with suppress(OSError, EOFError):  # the connection is gone: the node noticed, too
                process.close_stdin()
        self._check(self._hear_the_ends_of(processes))
        return self._whole()

    def _hear_the_ends_of(self, processes: Mapping[str, RemoteProcess]) -> list[Result]:
        """Return how these processes end; close those that have not ended in time."""
        ends: dict[str, NodeError | Result] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT_S  # renewed by each end
        while silent := processes.keys() - ends.keys():
            try:
                node, said = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty as error:
                for node in silent:
                    processes[node].close()
                raise self._silent(silent) from error
            if isinstance(said, NodeError | Result):
                ends[node] = said
                deadline = time.monotonic() + ANSWER_TIMEOUT_S
            else:
                self._keep(node, said)
        for end in ends.values():
            if isinstance(end, NodeError):
                raise end
        return [end for end in ends.values() if isinstance(end, Result)]

    def _start(self, node: Node) -> None:
        process = self._processes[node.name] = self._fleet.start(node.name, REPLAY)
        own = (name for name, playback in self._playbacks.items() if node.name in playback.nodes)
        self._due[node.name] = _Due(own)
        threading.Thread(target=self._follow, args=(process,), daemon=True).start()
        process.patience_s = (
            ANSWER_TIMEOUT_S  # until it has read the traces, which may be larger than SSH's window
        )
        process.write(encode_line(first_order(self._playbacks, node.name)))
        process.patience_s = math.inf

    def _follow(self, process: RemoteProcess) -> None:
        end: NodeError | Result = Result(process.node, LOST, b"", b"")
        try:
            for line in process.lines():
                if (said := self._read(process.node, line)) is not None:
                    self._said.put((process.node, said))
            process.patience_s = ANSWER_TIMEOUT_S
            exit_code, words = process.wait()
            end = Result(process.node, exit_code, b"", words)
        except NodeError as error:
            process.close()  # not a replay, whatever it is
            end = error
        finally:  # waiters must learn that it ended
            self._said.put((process.node, end))

    def _read(self, node: str, line: str) -> Answer | None:
        """Return an answer; None if it is no news."""
        said = parse_answer(node, line)
        with understood(node):
            answer = read_either(ANSWERS, said)
            if isinstance(answer, Ended):
                playback = self._playbacks.get(answer.ended)
                if playback is None or node not in playback.nodes:
                    raise FormatError(f"{shown(answer.ended)} is not played there", "ended")
            is_news = self._due[node].take(answer)
        return answer if is_news else None

    def _tell(self, nodes: Collection[str], order: Order) -> None:
        line = encode_order(ORDERS, order)
        for node in nodes:
            self._processes[node].write(line)

    def _hear_from(self, nodes: Collection[str], kind: type[Answer]) -> None:
        waiting = set(nodes)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S  # renewed by each node that has answered
        while waiting:
            try:
                node, said = self._hear(max(0.0, deadline - time.monotonic()))
            except queue.Empty as error:
                raise self._silent(waiting) from error
            if isinstance(said, kind) and node in waiting:
                waiting.discard(node)
                deadline = time.monotonic() + ANSWER_TIMEOUT_S

    def _hear(self, timeout_s: float | None) -> tuple[str, Answer]:
        """Return the next answer of any node.

        Raises:
            NodeError: a node's process has ended.
        """
        node, said = (
            self._said.get(timeout=timeout_s) if timeout_s != 0 else self._said.get_nowait()
        )
        if isinstance(said, NodeError | Result):
            self._processes.pop(node, None)  # `close` may have taken them all
            raise self._failure(said)
        self._keep(node, said)
        return node, said

    def _failure(self, end: NodeError | Result) -> NodeError:
        """Return the reason why a process ended unexpectedly."""
        if isinstance(end, NodeError):
            return end
        self._check([end])
        return NodeError("a trace cannot be replayed", {end.node: "the process ended"})

    def _keep(self, node: str, said: Answer) -> None:
        if isinstance(said, Ended):
            self._reports.setdefault(said.ended, {})[node] = said

    def _whole(self) -> list[TraceExit]:
        """Return the traces that have ended on all their nodes, each only once."""
        whole = []
        for name, reports in list(self._reports.items()):
            if reports.keys() == self._playbacks[name].nodes:
                del self._reports[name]
                whole.append(_worst_of(name, reports.values()))
        return whole

    def _check(self, ends: Collection[Result]) -> None:
        failed = {end.node: end.words() for end in ends if end.exit_code != 0}
        if failed:
            raise NodeError("a trace could not be replayed", failed)

    def _silent(self, nodes: Collection[str]) -> NodeError:
        words = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        return NodeError("a trace could not be replayed", dict.fromkeys(sorted(nodes), words))


def _worst_of(name: str, reports: Collection[Ended]) -> TraceExit:
    """Return a trace's figures from the nodes that did worst."""
    return TraceExit(
        name,
        changes=max(report.changes for report in reports),
        late=max(report.late for report in reports),
        worst_ms=max(report.worst_ms for report in reports),
    )
