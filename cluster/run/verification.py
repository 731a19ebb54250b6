"""Verifies the links before a run, and looks whether they are the same after it; writes contract.json.

Before: all are measured, or a look is taken if they were proved before.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster.base.console import eprint
from cluster.base.errors import ClusterError
from cluster.base.json_file import write_json
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.proof import Standing
from cluster.contract.prover import Looked, Prover
from cluster.contract.refusal import refusal
from cluster.contract.table import print_contract
from cluster.reporting.failures import IN_FORCE_UNKNOWN
from cluster.run.job import Job
from cluster.run.launch_words import LOOK
from cluster.shaping.cluster_links import read_cluster_links
from cluster.shaping.link_state import LinkState, playing_words
from cluster.shaping.restore import lost_links

MEASUREMENT = "measurement"
STAYED = "whether they stayed as they were"


@dataclass(frozen=True)
class Verified:
    """Links that hold, or are undecided if that is allowed.

    Attributes:
        document: the content of contract.json.
        link_state: the links after the verification, with their counters at that time.
        standing: everything that decided then how they behave.
    """

    document: dict[str, object]
    link_state: LinkState
    standing: Standing


class LinksAfter(NamedTuple):
    """The links once the ranks have ended.

    Attributes:
        link_state: the links in force; None if the nodes do not tell.
        lost: which links are not in force any more, or that this is not known; empty: none.
        changed: what is not as it was when the links were verified (empty: nothing, or they were not), or that another
            command's trace plays.
    """

    link_state: LinkState | None
    lost: str
    changed: str

    @property
    def stayed(self) -> bool:
        """Whether the figures of the links hold for the whole run: none was lost, and nothing has changed."""
        return not (self.lost or self.changed)


def links_after(
    prover: Prover, job: Job, standing: Standing | None, alive: Sequence[str]
) -> LinksAfter:
    """Look whether links are as they were before the run; with a schedule, which lays them anew, whether all are there.

    Of a cluster that has lost nodes, whether those that are left have theirs.

    Args:
        prover: of the cluster.
        job: with the links as they were.
        standing: of that time; None if the links were not verified.
        alive: the nodes that were not lost.
    """
    is_whole = len(alive) == len(prover.fleet.nodes)
    then = None if job.schedule else standing
    try:
        if then is not None and is_whole:
            after, now = prover.now()
            changed = "; ".join(then.differences(now))
        else:
            after = read_cluster_links(prover.fleet, job.spec, alive)
            changed = "" if then is None else _changes_of_alive(prover, then, alive)
    except ClusterError as error:
        # A node is gone, and its counters with it, or its answer is invalid.
        if is_whole:
            in_force = f"{IN_FORCE_UNKNOWN}: {error.message}"
            return LinksAfter(None, in_force if job.link_state.links else "", "")
        return LinksAfter(None, "", f"{STAYED} is not known: {error.message}" if then else "")
    lost = lost_links(job.link_state, after, alive)
    played = {pair for event in job.schedule if event.playback for pair in event.playback.pairs}
    changes = "; ".join(filter(None, [playing_words(after, played), changed]))
    return LinksAfter(after, lost, "" if lost else changes)


def _changes_of_alive(prover: Prover, then: Standing, alive: Sequence[str]) -> str:
    """Return what has changed of nodes that are left; an engine may be gone with the others, and then it is unknown."""
    try:
        return "; ".join(then.of(alive).differences(prover.now(alive)[1]))
    except ClusterError as error:
        return f"{STAYED} is not known: {error.message}"


def verify_links(prover: Prover, job: Job, folder: Path) -> Verified:
    """Verify the links as the job asks, and write contract.json.

    Raises:
        ContractBroken: a link is not as asked.
        ContractUndecided: a link is undecided, and the job does not allow that.
    """
    if job.verify == LOOK:
        looked = prover.look(job.link_state)
        if (seen := _by_look(looked)) is not None:
            write_json(folder / "contract.json", seen.document)
            prover.console.say(_words(looked))
            return seen
        if looked.proof is not None:
            prover.console.say(
                f"the links are measured: proved {looked.proof.at}, changed since: {looked.changed}"
            )
    return _by_measurement(prover, job, folder)


def _by_look(looked: Looked) -> Verified | None:
    """Return what a look has shown; None if the links have to be measured."""
    proof, look, link_state = looked.proof, looked.look, looked.link_state
    if proof is None or look is None or link_state is None or looked.changed:
        return None
    of_look = {"by": LOOK, "proved_at": proof.at, "look": look.document()}
    return Verified({**proof.contract, **of_look}, link_state, proof.standing)


def _by_measurement(prover: Prover, job: Job, folder: Path) -> Verified:
    contract, link_state, standing = prover.measure(job.link_state, EFFORTS["normal"])
    proof = prover.kept()
    proved_at = proof.at if proof and contract.holds else ""
    document = contract.document() | {"by": MEASUREMENT, "proved_at": proved_at, "look": None}
    write_json(folder / "contract.json", document)
    print_contract(contract, table := io.StringIO())
    eprint(table.getvalue().rstrip())  # not a plain print: the notes contain nodes' own words
    if contract.is_broken or not (contract.decided or job.allow_undecided):
        raise refusal(contract, job.spec.name, of_launch=True)
    return Verified(document, link_state, standing)


def _words(looked: Looked) -> str:
    assert looked.proof and looked.look
    return (
        f"contract: {looked.proof.contract['verdict']}, as proved {looked.proof.at}; "
        f"a look shows nothing else ({looked.look.seconds:.1f} s)"
    )
