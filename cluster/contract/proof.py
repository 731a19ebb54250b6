"""A proof: the record that a contract held, and on what. Pure values.

A later launch compares that with what is there then. The nodes' reports are compared here, on the host, verbatim, and
are never interpreted; the record is on the host, where nodes cannot reach it.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from protocol.link_report import Marks, Settings
from protocol.node_plan import NodePlan
from protocol.reader import document

FORMAT = 2
PARTS = {
    "container": "other containers",
    "plan": "other links are in force",
    "limit": "other limits of processors and memory",
    "settings": "other settings of the kernel",
    "laying": "links were applied again, or a trace has changed them",
    "start": "a restart",
    "queues": "queues (tc qdisc)",
    "classes": "rates (tc class)",
    "filters": "filters (tc filter)",
    "rules": "firewall rules (iptables)",
    "routes": "routes",
    "devices": "network devices or their offloads",
    "tcp": "settings of TCP",
    "wire": "the delayer (nfqueue)",
}
"""Part of a node's standing -> the phrase for a difference; the last parts are `protocol.link_report.Marks`."""


@dataclass(frozen=True)
class Standing:
    """Everything that decides how the links behave, as far as it can be compared: no counters, no measurements.

    Attributes:
        nodes: node -> part (`PARTS`) -> a digest or an id.
        judge: digest of the code that measures and judges: another version of gradwire needs a proof of its own.
    """

    nodes: Mapping[str, Mapping[str, str]]
    judge: str

    def differences(self, now: "Standing") -> list[str]:
        """Return what is different in `now`: a phrase for each part, with its nodes; empty if nothing is.

        Parts that one of the two does not have are not compared.
        """
        if self.nodes.keys() != now.nodes.keys():
            return ["other nodes"]
        if self.judge != now.judge:
            return ["another version of gradwire"]
        found = []
        for part, words in PARTS.items():
            differing = [node for node in now.nodes if self._differs(now, node, part)]
            if differing:
                found.append(f"{words} ({', '.join(differing)})")
        return found

    def _differs(self, now: "Standing", node: str, part: str) -> bool:
        then, found = self.nodes[node], now.nodes[node]
        return part in then and part in found and then[part] != found[part]

    def of(self, nodes: Collection[str]) -> "Standing":
        """Return the standing of some of the nodes."""
        return replace(self, nodes={n: parts for n, parts in self.nodes.items() if n in nodes})

    @property
    def is_whole(self) -> bool:
        """Whether every node has every part."""
        return bool(self.nodes) and all(of.keys() == PARTS.keys() for of in self.nodes.values())


@dataclass(frozen=True)
class Proof:
    """A contract that held, with its standing.

    Attributes:
        standing: the same before the measurement and after it.
        at: time of the measurement, in ISO 8601.
        contract: its contract.json.
    """

    standing: Standing
    at: str
    contract: Mapping[str, object]

    def document(self) -> dict[str, object]:
        """Return the proof as it is stored."""
        content = {
            "format": FORMAT,
            "at": self.at,
            "judge": self.standing.judge,
            "nodes": {node: dict(parts) for node, parts in self.standing.nodes.items()},
            "contract": dict(self.contract),
        }
        return content | {"digest": _digest(content)}


def read_proof(text: str | bytes) -> Proof | None:
    """Return a stored proof; None if it is damaged, changed or of another format."""
    try:
        found = json.loads(text)
        nodes = {
            str(node): {str(part): str(value) for part, value in parts.items()}
            for node, parts in found["nodes"].items()
        }
        standing = Standing(nodes, str(found["judge"]))
        proof = Proof(standing, str(found["at"]), dict(found["contract"]))
        is_ours = found["format"] == FORMAT and found.pop("digest") == _digest(found)
        return proof if is_ours and standing.is_whole and proof.contract["holds"] is True else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def make_standing(
    plans: Mapping[str, NodePlan],
    settings: Mapping[str, Settings],
    containers: Mapping[str, str],
    limits: Mapping[str, object],
    judge: str,
    marks: Mapping[str, Marks] | None = None,
) -> Standing:
    """Return the current standing.

    Args:
        plans: the plans in force, by node.
        settings: the settings of the nodes' kernels, by node.
        containers: node -> the engine's id.
        limits: what each node may use (`enforced_limits`).
        judge: as in `Standing`.
        marks: the nodes' marks of everything else; None: they were not asked, and those parts are missing.
    """
    parts: dict[str, dict[str, str]] = {node: {} for node in containers}
    for node, of in parts.items():
        of["container"] = containers[node]
        of["plan"] = _digest(document(plans[node]) if node in plans else None)
        of["limit"] = _digest(limits.get(node))
        of["settings"] = _digest(settings[node]._asdict() if node in settings else None)
        of |= marks[node]._asdict() if marks and node in marks else {}
    return Standing(parts, judge)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
