"""Verifies the links before a run: measures them all, or looks at them where they were proved before; contract.json."""

import io
from dataclasses import dataclass
from pathlib import Path

from cluster.base.console import eprint
from cluster.base.json_file import write_json
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.prove import Looked, Prover
from cluster.contract.refusal import refusal
from cluster.contract.table import print_contract
from cluster.run.job import Job
from cluster.run.launch_words import LOOK
from cluster.shaping.link_state import LinkState, read_link_state

MEASUREMENT = "measurement"


@dataclass(frozen=True)
class Verified:
    """Links that are as asked, as far as that was to be told.

    Attributes:
        document: contract.json.
        link_state: the links after that, with what they had counted by then.
    """

    document: dict[str, object]
    link_state: LinkState


def verify_links(prover: Prover, job: Job, folder: Path) -> Verified:
    """Verify them as the job has it, and write contract.json.

    Raises:
        ContractBroken: a link is not what was asked for.
        ContractUndecided: nobody can tell, and that was not allowed.
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
    """What a look has shown; None where the links have to be measured."""
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
    eprint(table.getvalue().rstrip())  # nodes' own words stand in its notes
    if contract.is_broken or not (contract.decided or job.allow_undecided):
        raise refusal(contract, job.spec.name, of_launch=True)
    return Verified(document, read_link_state(prover.fleet))


def _words(looked: Looked) -> str:
    assert looked.proof and looked.look
    return (
        f"contract: {looked.proof.contract['verdict']}, as proved {looked.proof.at}; "
        f"a look shows nothing else ({looked.look.seconds:.1f} s)"
    )
