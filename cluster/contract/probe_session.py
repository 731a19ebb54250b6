"""A node.probe process on every node: orders in, answers out, one JSON line each (docs/formats.md)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from cluster.base.errors import NodeError
from cluster.contract.probe_plan import order_s
from cluster.ssh.answers import parse_answer
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess

# What a busy machine may add to an order's own time; TCP gives a link up after its start, twice over.
MARGIN_S, MARGIN_TIMES = 120.0, 4.0


class ProbeSession:
    """A node.probe on every node, for as long as the `with` block lasts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._addresses = {node.name: node.address for node in fleet.nodes}
        self._processes: dict[str, RemoteProcess] = {}
        self._lines: dict[str, Iterator[str]] = {}

    def __enter__(self) -> Self:
        try:
            for name, address in self._addresses.items():
                process = self._fleet.start(name, ("python3", "-m", "node.probe", address))
                process.patience_s = MARGIN_S
                self._processes[name], self._lines[name] = process, process.lines()
            self._answers(list(self._processes))
        except BaseException:
            self.__exit__()
            raise
        return self

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

    def ask(self, orders: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, Any]]:
        """Give each node its order, all at once; their answers, by node.

        Raises:
            NodeError: a probe failed, or does not answer.
        """
        patience_s = MARGIN_S + MARGIN_TIMES * max(map(order_s, orders.values()), default=0.0)
        for name, order in orders.items():
            self._processes[name].patience_s = patience_s
            self._processes[name].write(json.dumps(order).encode() + b"\n")
        return self._answers(list(orders))

    def _answers(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        answers = {name: self._answer(name, self._processes[name]) for name in names}
        errors = {name: answer["error"] for name, answer in answers.items() if "error" in answer}
        if errors:
            raise NodeError("the links cannot be measured", errors, "python -m cluster.doctor")
        return answers

    def _answer(self, name: str, process: RemoteProcess) -> dict[str, Any]:
        line = next(self._lines[name], None)
        if line is None:
            _, stderr = process.wait()
            words = stderr.decode(errors="replace").strip().splitlines()
            gone = self._fleet.lost.get(name, "no SSH")
            raise NodeError("the probe ended", {name: words[-1] if words else gone})
        return parse_answer(name, line)
