"""Copies a program's files to the nodes and fetches results; once fetched, nothing of either stays on the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cluster.base.console import Console
from cluster.run.checkpoints import send_checkpoints
from cluster.run.job import Job
from cluster.run.program import pack
from cluster.run.rank_exit import RankExit
from cluster.run.rank_placement import RankPlacement
from cluster.run.results import SILENCE_S, Fetch, fetch_results
from cluster.run.run_folder import sort_results
from cluster.run.shared_folder import fetch_shared, make_shared
from cluster.ssh.fleet import Fleet
from protocol.places import FIT_FOLDER, RESUME_FOLDER, run_dir, work_dir
from protocol.rank import LOST


@dataclass
class Staging:
    """The ends of a run's ranks, and the outcome of fetching their results.

    Attributes:
        ended: how the ranks ended.
        lost: the nodes that did not answer at the end.
        not_fetched: node -> why its results are missing or incomplete; filled at the end.
        shared_not_fetched: likewise for the shared folder; empty if it is complete.
    """

    ended: list[RankExit] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    not_fetched: dict[str, str] = field(default_factory=dict)
    shared_not_fetched: str = ""

    def missing(self, places: Iterable[RankPlacement]) -> list[str]:
        """Return the nodes whose results are missing, except for lost nodes without an essential rank."""
        essential = {place.node for place in places if place.is_essential}
        return [n for n in self.not_fetched if n in essential or n not in self.lost]

    def reasons(self, nodes: Iterable[str]) -> str:
        """Return why the results of these nodes are missing, in words; equal reasons once."""
        by_reason: dict[str, list[str]] = {}
        for node in nodes:
            by_reason.setdefault(self.not_fetched[node], []).append(node)
        return "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())


@contextmanager
def staged(fleet: Fleet, job: Job, folder: Path, console: Console) -> Iterator[Staging]:
    """Copy the program to every node for the duration of the block; then fetch the results into the run folder."""
    staging = Staging()
    try:
        _send_program(fleet, job, work_dir(folder.name))
        if job.shared:
            make_shared(fleet, folder.name)
        yield staging
    finally:
        _fetch(fleet, job, folder, staging, console)


def _send_program(fleet: Fleet, job: Job, place: str) -> None:
    program = job.program
    names = [node.name for node in fleet.nodes]
    if program.folder:
        _send(fleet, dict.fromkeys(names, pack(program.folder)), place)
    if program.order:
        _send(fleet, dict.fromkeys(names, pack(program.order)), f"{place}/{FIT_FOLDER}")
    if program.resume:
        send_checkpoints(fleet, program.resume, f"{place}/{RESUME_FOLDER}", job.places)


def _send(fleet: Fleet, archives: Mapping[str, bytes], place: str) -> None:
    fleet.run(["mkdir", "-p", place])
    fleet.run(["tar", "-x", "-C", place], stdin=archives)


def _fetch(fleet: Fleet, job: Job, folder: Path, staging: Staging, console: Console) -> None:
    """Fetch what the ranks left, then remove it from nodes that are alive and were fetched completely."""
    there = run_dir(folder.name)
    answers = fleet.run(["true"], check=False, patience_s=SILENCE_S)
    staging.lost = {node for node, answer in answers.items() if answer.exit_code == LOST}
    alive = [node for node in answers if node not in staging.lost]
    fetched = fetch_results(
        fleet, alive, Fetch(there, folder / "files", job.max_results_bytes), console
    )
    for node, of_node in fetched.items():
        for words in of_node.notes:
            console.say(f"{node}: {words}")
    if job.shared:
        staging.shared_not_fetched = fetch_shared(
            fleet, alive, folder, job.max_results_bytes, console
        )
    failures = {node: one.failure for node, one in fetched.items() if one.failure}
    for node in alive:
        try:
            sort_results(folder, node, [place for place in job.places if place.node == node])
        except OSError as error:
            failures[node] = f"{error.strerror} on this machine"
    staging.not_fetched |= failures | dict.fromkeys(sorted(staging.lost), "the connection broke")
    _tell_not_fetched(staging.not_fetched, there, console)
    whole = [node for node in alive if node not in failures]
    sent = [work_dir(folder.name)] if job.program.sends else []
    fleet.run(["rm", "-rf", there, *sent], nodes=whole, check=False)


def _tell_not_fetched(failures: Mapping[str, str], there: str, console: Console) -> None:
    for node, why in failures.items():
        console.say(
            f"{node}: what its ranks left could not be fetched: {why}; all of it is still on {node}, in {there}"
        )
