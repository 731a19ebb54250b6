"""Measures links, keeps the proof, and checks whether an earlier proof still holds.

.gradwire/NAME/proof.json    the last contract that held, and all that it was measured on
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cluster.base.console import Console
from cluster.base.files import write_atomically
from cluster.base.json_file import json_text
from cluster.base.paths import CODE_DIR
from cluster.base.spec import ClusterSpec
from cluster.contract.look import Look, look_at_links
from cluster.contract.measure import measure_contract
from cluster.contract.probe_plan import Effort
from cluster.contract.proof import Proof, Standing, make_standing, read_proof
from cluster.contract.verdicts import Contract
from cluster.engine.client import Engine
from cluster.engine.resources import enforced_limits
from cluster.shaping.cluster_links import inspect_cluster_links, read_cluster_links
from cluster.shaping.link_state import LinkState, playing_words, refuse_replayed
from cluster.shaping.restore import changed_links
from cluster.ssh.fleet import Fleet
from protocol.link_report import Marks

FILE = "proof.json"
JUDGING = "cluster/contract", "cluster/links", "cluster/shaping", "protocol"


@dataclass(frozen=True)
class Looked:
    """Whether the links were proved before, and the result of a look.

    Attributes:
        proof: the last proof; None if there is none.
        look: the result of the look; None if none was made, because there is no proof or it no longer holds.
        link_state: the links after a look that found nothing wrong, with their counters by then.
        changed: why the proof does not hold; '' if it does.
    """

    proof: Proof | None = None
    look: Look | None = None
    link_state: LinkState | None = None
    changed: str = ""


@dataclass(frozen=True)
class ProofStatus:
    """When the links were proved, and whether that still holds.

    Attributes:
        at: time in ISO 8601; '' if they were not proved.
        changed: what has changed since then; '' if nothing has.
    """

    at: str = ""
    changed: str = ""

    def words(self) -> str:
        """Return the status as a sentence for the user."""
        if not self.at:
            return "not proved: the next launch measures the links"
        if self.changed:
            return (
                f"proved {self.at}; the next launch measures again, changed since: {self.changed}"
            )
        return f"proved {self.at}, nothing has changed since: the next launch only looks"

    def document(self) -> dict[str, object] | None:
        """Return the value of `proof` in the output of `status --json`."""
        return {"at": self.at, "changed": self.changed} if self.at else None


class Measurement(NamedTuple):
    """A contract, and the links after it was measured, with everything that decides how they behave."""

    contract: Contract
    link_state: LinkState
    standing: Standing


@dataclass(frozen=True)
class Prover:
    """The prover of one cluster's links."""

    engine: Engine
    spec: ClusterSpec
    fleet: Fleet
    console: Console

    def measure(
        self,
        link_state: LinkState,
        effort: Effort,
        most_s: float | None = None,
        marks: Mapping[str, Marks] | None = None,
    ) -> Measurement:
        """Measure all links, and keep the proof if they hold.

        `marks` have just been read together with `link_state`; None: they are read here, which takes seconds with many
        nodes. If links are lost or anything of their standing changes meanwhile, or a trace plays after it, the
        contract does not hold; without speeds only the plans are compared. No proof is kept if speeds were not
        measured. A contract that does not hold deletes an earlier proof.

        Raises:
            ClusterError: as `measure_contract`, or a trace plays already.
        """
        before = self._before(link_state, marks) if effort.speeds else None
        contract = measure_contract(self.fleet, link_state, self.console, effort, most_s)
        after, now = self.now()
        # Rather the words for plans and traces, which also tell why links are lost, and which links are played.
        changed = changed_links(link_state, after) or playing_words(after)
        if before is not None:
            changed = changed or "; ".join(before.differences(now))
        contract = replace(contract, changed=changed)
        if not contract.holds:
            self.forget()
        elif before is not None and contract.has_all_speeds:
            self._keep(now, contract.document())
        return Measurement(contract, after, now)

    def look(self, link_state: LinkState) -> Looked:
        """Check whether the links were proved, and whether that still holds."""
        proof = self.kept()
        if proof is None:
            return Looked()
        if changed := proof.standing.differences(self._standing(link_state)):
            return Looked(proof, changed="; ".join(changed))
        look = look_at_links(self.fleet, link_state)
        if look.failed:
            return Looked(proof, look, changed=f"not as asked: {look.words()}")
        link_state, marks = inspect_cluster_links(self.fleet, self.spec)
        standing = self._standing(link_state, marks)
        changes = playing_words(link_state) or "; ".join(proof.standing.differences(standing))
        return Looked(proof, look, link_state, changes)

    def kept(self) -> Proof | None:
        """Return the last proof, whether or not it still holds."""
        with suppress(OSError):
            return read_proof(self._path.read_bytes())
        return None

    def links_and_proof(self) -> tuple[LinkState, ProofStatus]:
        """Return the links in force, and the status of their proof as far as the nodes report it; sends no pings."""
        proof = self.kept()
        if proof is None:
            return read_cluster_links(self.fleet, self.spec), ProofStatus()
        link_state, marks = inspect_cluster_links(self.fleet, self.spec)
        changed = proof.standing.differences(self._standing(link_state, marks))
        return link_state, ProofStatus(proof.at, "; ".join(changed))

    def now(self, nodes: Sequence[str] | None = None) -> tuple[LinkState, Standing]:
        """Return the links in force, and everything that decides how they behave; raises as `inspect_cluster_links`.

        `nodes` are those that are left of a cluster that has lost some; None: all.
        """
        link_state, marks = inspect_cluster_links(self.fleet, self.spec, nodes)
        return link_state, self._standing(link_state, marks, nodes)

    def forget(self) -> None:
        """Delete the last proof."""
        self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.spec.state_dir / FILE

    def _before(self, link_state: LinkState, marks: Mapping[str, Marks] | None) -> Standing:
        if marks is not None:
            return self._standing(link_state, marks)
        found, standing = self.now()
        refuse_replayed(found, "the links cannot be measured")
        return standing

    def _keep(self, now: Standing, contract: Mapping[str, object]) -> None:
        if not now.is_whole:
            self.forget()
            return
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        text = json_text(Proof(now, at, contract).document())
        try:
            write_atomically(self._path, text.encode())
        except OSError as error:
            self.console.say(f"the proof is not kept: {self._path}: {error.strerror}")
            self.forget()

    def _standing(
        self,
        link_state: LinkState,
        marks: Mapping[str, Marks] | None = None,
        nodes: Sequence[str] | None = None,
    ) -> Standing:
        ids: dict[str, str] = {}
        limits: dict[str, object] = {}
        for engine in self._engines_of(nodes):
            found = engine.containers(self.spec.name)
            containers = [one for one in found if nodes is None or one.node in nodes]
            ids |= {container.node: container.id for container in containers}
            configs = engine.host_configs(containers)
            limits |= {node: enforced_limits(config) for node, config in configs.items()}
        return make_standing(
            link_state.plans, link_state.settings, ids, limits, judging_code(), marks
        )

    def _engines_of(self, nodes: Sequence[str] | None) -> Sequence[Engine]:
        """Return the engines that have these nodes: with a lost node its host may be gone, too."""
        if nodes is None:
            return [self.engine]
        parts = self.engine.parts(self.spec)
        return [engine for engine, there in parts if not set(there).isdisjoint(nodes)]


@cache
def judging_code() -> str:
    """Return a digest of the code that measures and judges: this folder, and those that it is built on."""
    sources = sorted(path for folder in JUDGING for path in (CODE_DIR / folder).glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
