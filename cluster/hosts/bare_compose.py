"""Makes the nodes of a host without an engine as Compose would: from the same document, changing only what differs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from cluster.base.errors import ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec, Node
from cluster.engine.client import Engine
from cluster.engine.compose_up import ComposeUp, compose_failure
from cluster.engine.container import WORKING_DIR
from cluster.hosts.bare_host import BareHost
from protocol.bare import BareNode, Listed
from protocol.places import SHARED_FOLDER
from protocol.reader import document
from protocol.vxlan_plan import VxlanPeer, VxlanPlan

LABEL_CONFIG = "gradwire.config"
"""The digest of a node's order: a node whose order has another one is replaced."""
FIRST_PLAN = "plan.json"
"""Beside a node's keys while it boots for the first time; no reason to replace it."""


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
        addresses = _addresses(self._engine, spec)
        orders = [self._order(spec, node, image, addresses) for node in nodes]
        there = {one.name: one for one in self._host.listed()}
        kept = [one for one in orders if _is_same(one, there.get(one.name))]
        news = [one for one in orders if one not in kept]
        try:
            if news:
                self._host.make(news)
            self._host.limit([one for one in kept if _limits(one) != _limits(there[one.name])])
            self._host.start([order.name for order in orders])
        except ClusterError as error:
            raise compose_failure(error.message, spec, self.where) from error
        self._is_finished = True

    def end(self) -> None:
        """Do nothing: no program of ours goes on."""

    def _order(
        self, spec: ClusterSpec, node: Node, image: str, addresses: Mapping[str, str]
    ) -> BareNode:
        service = self._services[node.name]
        order = BareNode(
            name=service["container_name"],
            hostname=service["hostname"],
            image=image,
            labels=service["labels"] | {WORKING_DIR: str(PROJECT_DIR)},
            hosts=dict(line.split(":", 1) for line in service["extra_hosts"]),
            capabilities=service["cap_add"],
            sysctls=service["sysctls"],
            pids_limit=service["pids_limit"],
            ssh_port=node.ssh_port,
            vxlan=_vxlan_plan(spec, node, addresses),
            keys=_keys(spec, node),
            shared=SHARED_FOLDER,
            cpu_period_us=service.get("cpu_period", 0),
            cpu_quota_us=service.get("cpu_quota", 0),
            memory_bytes=service.get("mem_limit", 0),
        )
        return order._replace(labels=order.labels | {LABEL_CONFIG: _digest(order)})


def _is_same(order: BareNode, there: Listed | None) -> bool:
    return there is not None and there.labels.get(LABEL_CONFIG) == order.labels[LABEL_CONFIG]


def _limits(node: BareNode | Listed) -> tuple[int, int, int]:
    return node.cpu_period_us, node.cpu_quota_us, node.memory_bytes


def _addresses(engine: Engine, spec: ClusterSpec) -> dict[str, str]:
    """Return where each node's tunnel is reached: at its host's address for the others, or the loopback address."""
    return {
        node: part.host.internal_ip or "127.0.0.1"
        for part, nodes in engine.parts(spec)
        if isinstance(part, BareHost)
        for node in nodes
    }


def _vxlan_plan(spec: ClusterSpec, node: Node, addresses: Mapping[str, str]) -> VxlanPlan:
    """Return the plan of a node's data device: its UDP port has the number of its SSH port, which is its own."""
    peers = {
        peer.name: VxlanPeer(peer.address, peer.mac, addresses[peer.name], peer.ssh_port)
        for peer in spec.nodes
        if peer != node
    }
    return VxlanPlan(node.name, node.address, node.mac, spec.vni, node.ssh_port, peers)


def _keys(spec: ClusterSpec, node: Node) -> dict[str, str]:
    folder = spec.state_dir / node.name
    return {path.name: base64.b64encode(path.read_bytes()).decode() for path in folder.iterdir()}


def _digest(order: BareNode) -> str:
    """Return a digest of everything that a running node cannot change."""
    keys = {name: content for name, content in order.keys.items() if name != FIRST_PLAN}
    fixed = order._replace(keys=keys, cpu_period_us=0, cpu_quota_us=0, memory_bytes=0)
    return hashlib.sha256(json.dumps(document(fixed), sort_keys=True).encode()).hexdigest()[:16]
