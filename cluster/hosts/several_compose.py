"""Compose for several hosts: one call for each host, with its part of the document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.compose import document_of
from cluster.engine.compose_up import ComposeUp
from cluster.hosts.each import each_host
from cluster.hosts.several import SeveralEngines


class SeveralCompose(ComposeUp):
    """A call of Compose on each host that has nodes of a cluster.

    Args:
        name: the cluster's name.
        engine: the engine of its hosts.
        make_call: makes the call for one host.
    """

    is_local = False

    def __init__(
        self, name: str, engine: SeveralEngines, make_call: Callable[[Engine], ComposeUp]
    ) -> None:
        super().__init__(name)
        self._engine, self._make_call = engine, make_call
        self._calls: list[tuple[ComposeUp, Sequence[str]]] = []

    def prepare(self, spec: ClusterSpec) -> None:
        """See ComposeUp.prepare."""
        self._calls = [(self._make_call(part), nodes) for part, nodes in self._engine.parts(spec)]

    def get_ready(self) -> None:
        """Do nothing: which hosts have nodes is not known yet."""

    def give(self, document: str) -> None:
        """Give each host its part; raises like ComposeUp.give."""
        for call, nodes in self._calls:
            call.give(document_of(document, nodes))

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Return whether all calls have ended; raises like ComposeUp.has_ended."""
        return all(call.has_ended(spec) for call, _ in self._calls)

    def finish(self, spec: ClusterSpec) -> None:
        """Wait for all calls, each of which starts its nodes; raises like ComposeUp.finish."""
        each_host([call for call, _ in self._calls], lambda call: call.finish(spec))

    def end(self) -> None:
        """End all calls; see ComposeUp.end."""
        with ExitStack() as stack:
            for call, _ in self._calls:
                stack.enter_context(call)
            self._calls = []
