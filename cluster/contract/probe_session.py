"""A node.probe process on every node: orders in, answers out, one JSON line each (protocol/probe.py)."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Self, TypeVar

from cluster.base.errors import NodeError
from cluster.contract.probe_plan import order_s
from cluster.ssh.answers import parse_answer, understood
from cluster.ssh.fleet import Fleet
from cluster.ssh.liveness import ASK_INTERVAL_S, LOOK_INTERVAL_S
from cluster.ssh.remote_process import CLOSED, RemoteProcess
from protocol.lines import encode_order
from protocol.link_report import Shown
from protocol.probe import (
    ORDERS,
    Failure,
    NamingOrder,
    Order,
    ProbeReady,
    SendOrder,
    ShowOrder,
    TimersLate,
    TimersOrder,
    read_replies,
    read_reply,
)
from protocol.rank import LOST

T = TypeVar("T")

UNMEASURED = "the links cannot be measured"
# What a busy machine may add to an order's own time; a goodput probe waits up to twice its startup to connect, and
# again for its answer.
MARGIN_S, MARGIN_TIMES = 120.0, 4.0
# Within which the nodes of a host that falls silent are lost, one after the other.
TOGETHER_S = ASK_INTERVAL_S + 2 * LOOK_INTERVAL_S
# Size limit of one answer: 4000 pings to each of 64 nodes, at about 40 bytes each.
LONGEST_ANSWER_BYTES = 16 << 20


class ProbeSession:
    """A node.probe on every node, or on the nodes with these names, for as long as the `with` block lasts."""

    def __init__(self, fleet: Fleet, names: Collection[str] | None = None) -> None:
        self._fleet = fleet
        self._addresses = {
            node.name: node.address for node in fleet.nodes if names is None or node.name in names
        }
        self._processes: dict[str, RemoteProcess] = {}
        self._lines: dict[str, Iterator[str]] = {}

    def __enter__(self) -> Self:
        try:
            for name in self._addresses:
                self._start(name)
            self._replies(
                {name: lambda said: read_reply(ProbeReady, said) for name in self._processes}
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str) -> None:
        argv = ("python3", "-m", "node.probe", self._addresses[name], str(len(self._addresses)))
        try:
            process = self._fleet.start(name, argv)
        except NodeError as error:
            raise self._lost(error.outcomes) from error
        process.patience_s = MARGIN_S
        self._processes[name] = process
        self._lines[name] = process.lines(LONGEST_ANSWER_BYTES)

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()

    @property
    def nodes(self) -> list[str]:
        """The nodes' names, in their order."""
        return list(self._addresses)

    def address(self, node: str) -> str:
        """A node's address on the data network."""
        return self._addresses[node]

    def ask(
        self, orders: Mapping[str, SendOrder | TimersOrder | ShowOrder], kind: type[T]
    ) -> dict[str, T]:
        """Send each node its order, all at once; return their answers, of one type, by node.

        Raises:
            NodeError: a probe failed, does not answer, or gives an answer that cannot be parsed. Names all nodes that
                were lost, with their hosts if there are several.
        """
        self._give(orders)
        return self._replies({name: lambda said: read_reply(kind, said) for name in orders})

    def timers_late_ms(self) -> dict[str, float]:
        """Return by how much timers were late on each node since the last call, on average; raises as `ask`."""
        answers = self.ask(dict.fromkeys(self._addresses, TimersOrder()), TimersLate)
        return {name: answer.late_ms for name, answer in answers.items()}

    def shown(self) -> dict[str, Shown]:
        """Return what is in force on each node, as read by its probe: sooner than by a new process; raises as `ask`."""
        return self.ask(dict.fromkeys(self._addresses, ShowOrder()), Shown)

    def ask_of_each(
        self, orders: Mapping[str, NamingOrder], kind: type[T]
    ) -> dict[str, dict[str, T]]:
        """Send orders that name nodes; each answer has a value for each of these. Otherwise as `ask`."""
        self._give(orders)
        return self._replies(
            {name: partial(read_replies, kind, order) for name, order in orders.items()}
        )

    def _give(self, orders: Mapping[str, Order]) -> None:
        patience_s = MARGIN_S + MARGIN_TIMES * max(map(order_s, orders.values()), default=0.0)
        for name, order in orders.items():
            self._processes[name].patience_s = patience_s
            try:
                self._processes[name].write(encode_order(ORDERS, order))
            except NodeError as error:
                raise self._lost(error.outcomes) from error

    def _replies(self, readers: Mapping[str, Callable[[object], T | Failure]]) -> dict[str, T]:
        """Return the next answer of each of these nodes."""
        answers, failures = {}, {}
        for name, reader in readers.items():
            said = parse_answer(name, self._line(name))
            with understood(name):
                answer = reader(said)
            if isinstance(answer, Failure):
                failures[name] = answer.error
            else:
                answers[name] = answer
        if failures and not self._fleet.lost.keys().isdisjoint(self._addresses):
            raise self._lost({})  # that is why: a probe fails whose peer does not answer
        if failures:
            raise NodeError(UNMEASURED, failures, "python -m cluster.doctor")
        return answers

    def _line(self, name: str) -> str:
        line = next(self._lines[name], None)
        if line is None:
            exit_code, stderr = self._processes[name].wait()
            if exit_code == LOST:
                raise self._lost({name: CLOSED})
            words = stderr.decode(errors="replace").strip().splitlines()
            why = words[-1] if words else f"exit code {exit_code}"
            raise NodeError("the probe ended", {name: why}, "python -m cluster.doctor")
        return line

    def _lost(self, outcomes: Mapping[str, str]) -> NodeError:
        """Return the error for nodes that were lost: those of `outcomes`, and all others, with their hosts."""
        if self._fleet.hosts:  # a host is lost with all its nodes
            time.sleep(TOGETHER_S)
        gone = {name: why for name, why in self._fleet.gone().items() if name in self._addresses}
        return NodeError(UNMEASURED, {**outcomes, **gone}, "python -m cluster.status")
