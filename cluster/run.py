"""One run, from the links as they are to the summary: verify, send, start, follow, collect.

Everything that a run asked for, measured and left behind lies in its folder (`cluster.runs`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cluster.console import Console, LinePrinter, unheard
from cluster.contract.measure import measure_contract
from cluster.contract.probes import EFFORTS
from cluster.contract.table import print_contract
from cluster.delivery import delivered
from cluster.engine import Engine
from cluster.errors import ContractBroken, NodeError, RunFailed
from cluster.failures import raise_failure
from cluster.fleet import Fleet
from cluster.job import Job
from cluster.network import Contract
from cluster.overload import host_summary
from cluster.places import place_ranks
from cluster.player import Player
from cluster.processors import Processors
from cluster.program import Program
from cluster.ranks import Ended, Ranks
from cluster.runs import last_events, make_run_folder, write_config, write_json, write_links
from cluster.schedule import Event
from cluster.shaping import Shape, read_shape, sent_bytes
from cluster.spec import PROJECT_DIR, ClusterSpec
from cluster.summary import account

RUNS_DIR = PROJECT_DIR / "runs"


@dataclass(frozen=True)
class Run:
    """A launch that has ended: its folder and its summary.json."""

    folder: Path
    summary: dict[str, Any]


def run_program(
    engine: Engine,
    spec: ClusterSpec,
    fleet: Fleet,
    shape: Shape,
    program: Program,
    console: Console,
    *,
    verify: bool = True,
    schedule: Sequence[Event] = (),
    nproc_per_node: int = 1,
) -> Run:
    """Verify the links, run the program on every node, `nproc_per_node` ranks each, collect what it left.

    `shape` is the links in force as they were just read.

    Raises:
        UsageError: the schedule speaks of what is not there, or so many ranks cannot be; nothing was started.
        ClusterError: traces that somebody plays by hand are in the way of it, or of measuring; nothing was started.
        ContractBroken: a link is not what was asked for; nothing was started.
        RunFailed: a rank failed; names the first one, with its log.
    """
    places = place_ranks([node.name for node in spec.nodes], nproc_per_node)
    job = Job(spec, program, places, shape, schedule, verify)
    job.check()
    folder = make_run_folder(RUNS_DIR, shape.profile or "unshaped", program.name)
    try:
        return _run(engine, fleet, job, folder, console)
    except KeyboardInterrupt:
        console.say(f"interrupted; what there is of the run: {folder}")
        raise


def _run(engine: Engine, fleet: Fleet, job: Job, folder: Path, console: Console) -> Run:
    processors = Processors(engine, job.spec.name)
    write_links(folder, job.shape.links, job.places)
    write_config(folder, job.config(processors.document()))
    contract = None
    if job.verify and job.shape.links:
        contract = _verify(fleet, job, folder, console)
        # With the counters as they are now: the probes' bytes are not this run's.
        job = replace(job, shape=read_shape(fleet))
    player = Player(
        fleet,
        job.shape,
        processors,
        job.schedule,
        job.metrics_file(folder.name),
        folder / "events.jsonl",
        console,
    )
    started = time.monotonic()
    ended = _run_ranks(fleet, job, folder, console, player)
    summary = _collect(fleet, job, folder, ended, time.monotonic() - started, contract)
    write_json(folder / "summary.json", summary)
    isolated = job.shape.links if job.shape.isolated else ()
    raise_failure(folder, ended, job.spec.nodes, isolated, summary)
    if player.failure:
        raise RunFailed(
            f"the ranks are done, but the schedule was not kept: {player.failure}",
            f"what was: {folder / 'events.jsonl'}",
            summary,
        )
    return Run(folder, summary)


def _verify(fleet: Fleet, job: Job, folder: Path, console: Console) -> dict[str, Any]:
    """Measure the links; contract.json.

    Raises:
        ContractBroken: a link is not what was asked for.
    """
    contract = measure_contract(fleet, job.shape, console, EFFORTS["normal"])
    document = contract.document()
    write_json(folder / "contract.json", document)
    with unheard(sys.stderr):
        print_contract(contract, sys.stderr)
    if not contract.holds:
        raise ContractBroken(
            f"the links are not what was asked for: {contract.verdict()}; nothing was started",
            f"{contract.remedy(job.spec.name)}; --no-verify runs all the same",
            document,
        )
    return document


def _run_ranks(
    fleet: Fleet, job: Job, folder: Path, console: Console, player: Player
) -> list[Ended]:
    """Start the ranks and stay until all have ended."""
    printer = LinePrinter([place.name for place in job.places], console.program_output)
    with delivered(fleet, job, folder, console) as ended, player:
        ended += Ranks(fleet, job.orders(folder.name), folder / "logs", printer).wait()
    return ended


def _collect(
    fleet: Fleet,
    job: Job,
    folder: Path,
    ended: Sequence[Ended],
    wall_s: float,
    contract: Contract | None,
) -> dict[str, Any]:
    """summary.json."""
    before, places = job.shape, job.places
    told = {place.name: last_events(folder, place.name) for place in places}
    nodes = [place.node for place in places]
    first = told[places[0].name].get("end", {})
    try:
        after = read_shape(fleet)
        links, host = sent_bytes(before, after), host_summary(before.readings, after.readings)
    except NodeError:
        links, host = {}, None  # a node is gone, and its counters with it
    codes = {end.place: end.exit_code for end in ended}
    return {
        "run": folder.name,
        "folder": str(folder),
        "status": "failed" if any(codes.values()) else "done",
        "wall_s": round(wall_s, 3),
        "exit_codes": {place.name: codes[place] for place in places},
        "test_accuracy": first.get("test_accuracy"),
        "tested": first.get("tested", {}),
        "final_loss": first.get("final_loss"),
        "steps": first.get("steps"),
        **account(folder, told, nodes, before, links, contract, changing=bool(job.schedule)),
        "host": host,
        "links": [asdict(link) for link in before.links],
        "verified": contract is not None,
    }
