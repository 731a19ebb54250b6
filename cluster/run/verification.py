"""Verifies the links before a run: measures all, or takes a look if they were proved before; writes contract.json."""

import io
from dataclasses import dataclass
from pathlib import Path

from cluster.base.console import eprint
from cluster.base.json_file import write_json
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.prover import Looked, Prover
from cluster.contract.refusal import refusal
from cluster.contract.table import print_contract
from cluster.run.job import Job
from cluster.run.launch_words import LOOK
from cluster.shaping.link_state import LinkState, read_link_state

MEASUREMENT = "measurement"


@dataclass(frozen=True)
class Verified:
    """Links that hold, or are undecided if that is allowed.

    Attributes:
        document: the content of contract.json.
        link_state: the links after the verification, with their counters at that time.
    """

    document: dict[str, object]
    link_state: LinkState


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
    return Verified({**proof.contract, **of_look}, link_state)


def _by_measurement(prover: Prover, job: Job, folder: Path) -> Verified:
    contract = prover.measure(job.link_state, EFFORTS["normal"])
    proof = prover.kept()
    proved_at = proof.at if proof and contract.holds else ""
    document = contract.document() | {"by": MEASUREMENT, "proved_at": proved_at, "look": None}
    write_json(folder / "contract.json", document)
    print_contract(contract, table := io.StringIO())
    eprint(table.getvalue().rstrip())  # not a plain print: the notes contain nodes' own words
    if contract.is_broken or not (contract.decided or job.allow_undecided):
        raise refusal(contract, job.spec.name, of_launch=True)
    return Verified(document, read_link_state(prover.fleet))


def _words(looked: Looked) -> str:
    assert looked.proof and looked.look
    return (
        f"contract: {looked.proof.contract['verdict']}, as proved {looked.proof.at}; "
        f"a look shows nothing else ({looked.look.seconds:.1f} s)"
    )
