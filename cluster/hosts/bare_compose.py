"""Makes the nodes of a host without an engine as Compose would: from the same document, changing only what differs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from cluster.base.errors import ClusterError, SlotTaken
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec, Node
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp
from cluster.hosts.bare_host import BareHost
from cluster.hosts.vxlan import Endpoint, vxlan_plan
from protocol.bare import BareNode, Limit, Listed
from protocol.labels import WORKING_DIR
from protocol.places import FIRST_PLAN, SHARED_FOLDER
from protocol.reader import document

LABEL_CONFIG = "gradwire.config"
"""The digest of a node's order: a node whose order has another one is replaced."""


class BareCompose(ComposeUp):
    """One call for one cluster on a host without an engine.

    Args:
        name: the cluster's name.
        host: the host.
        engine: the engine of all hosts of the cluster.
    """

    is_local = False

    def __init__(self, name: str, host: BareHost, engine: Engine) -> None:
        super().__init__(name)
        self._host, self.where, self._engine = host, host.where, engine
        self._services: dict[str, dict[str, Any]] = {}
        self._is_finished = False

    def get_ready(self) -> None:
        """Do nothing: there is no program to start early."""

    def give(self, document: str) -> None:
        """See ComposeUp.give."""
        self._services = yaml.safe_load(document)["services"]

    def has_ended(self, spec: ClusterSpec) -> bool:
        """Return whether the nodes were made and started."""
        return self._is_finished

    def finish(self, spec: ClusterSpec) -> None:
        """Make the nodes that are missing or differ, and start all.

        Raises:
            SlotTaken: a port is taken. ClusterError: the host cannot do it.
        """
        if self._is_finished:
            return
        nodes = [node for node in spec.nodes if node.name in self._services]
        image = self._host.image_id(spec.image) or ""
        endpoints = _endpoints(self._engine, spec)
        orders = [self._order(spec, node, image, endpoints) for node in nodes]
        there = {one.name: one for one in self._host.listed()}
        kept = [one for one in orders if _is_same(one, there.get(one.name))]
        news = [one for one in orders if one not in kept]
        try:
            if news:
                self._host.make(news)
            limits = [_limit_of(one) for one in kept]
            self._host.limit([one for one in limits if one != _limit_of(there[one.name])])
            self._host.start([order.name for order in orders])
        except ClusterError as error:
            raise self._failure(error, spec) from error
        self._is_finished = True

    def end(self) -> None:
        """Do nothing: no program of ours goes on."""

    def _failure(self, error: ClusterError, spec: ClusterSpec) -> ClusterError:
        """Return the error of a cluster that could not be brought up, with what helps on a host without Docker."""
        message = f"{spec.name!r} could not be brought up: {error.message}"
        said = error.message.lower()
        if "address already in use" in said:
            return SlotTaken(message, "free the port, or use another --slot")
        if "no space left" in said:
            room = f"on {self.where}: {self._host.make_room}, or use a larger disk"
            return ClusterError(message, room)
        return ClusterError(message, error.hint or "python -m cluster.doctor")

    def _order(
        self, spec: ClusterSpec, node: Node, image: str, endpoints: Mapping[str, Endpoint]
    ) -> BareNode:
        service = self._services[node.name]
        order = BareNode(
            name=service["container_name"],
            hostname=service["hostname"],
            image=image,
            labels=service["labels"] | {WORKING_DIR: str(PROJECT_DIR)},
            capabilities=service["cap_add"],
            sysctls=service["sysctls"],
            pids_limit=service["pids_limit"],
            ssh_port=node.ssh_port,
            vxlan=vxlan_plan(spec, node, endpoints),
            keys=_keys(spec, node),
            shared=SHARED_FOLDER,
            cpu_period_us=service.get("cpu_period", 0),
            cpu_quota_us=service.get("cpu_quota", 0),
            memory_bytes=service.get("mem_limit", 0),
        )
        return order._replace(labels=order.labels | {LABEL_CONFIG: _digest(order)})


def _is_same(order: BareNode, there: Listed | None) -> bool:
    return there is not None and there.labels.get(LABEL_CONFIG) == order.labels[LABEL_CONFIG]


def _limit_of(node: BareNode | Listed) -> Limit:
    return Limit(node.name, node.cpu_period_us, node.cpu_quota_us, node.memory_bytes)


def _endpoints(engine: Engine, spec: ClusterSpec) -> dict[str, Endpoint]:
    """Return where each node's tunnel ends: at its host's address for the others, or the loopback address.

    Its UDP port has the number of its SSH port, which is its own on the host.
    """
    ports = {node.name: node.ssh_port for node in spec.nodes}
    return {
        node: (part.host.internal_ip or "127.0.0.1", ports[node])
        for part, nodes in engine.parts(spec)
        if isinstance(part, BareHost)
        for node in nodes
    }


def _keys(spec: ClusterSpec, node: Node) -> dict[str, str]:
    folder = spec.state_dir / node.name
    return {path.name: base64.b64encode(path.read_bytes()).decode() for path in folder.iterdir()}


def _digest(order: BareNode) -> str:
    """Return a digest of everything that a running node cannot change."""
    keys = {name: content for name, content in order.keys.items() if name != FIRST_PLAN}
    fixed = order._replace(keys=keys, cpu_period_us=0, cpu_quota_us=0, memory_bytes=0)
    return hashlib.sha256(json.dumps(document(fixed), sort_keys=True).encode()).hexdigest()[:16]
