"""One run, from the links as they are to the summary: verify, send, start, follow, collect.

Everything that a run asked for, measured and left behind lies in its folder (`cluster.runs`).
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cluster.console import Console, LinePrinter
from cluster.contract.measure import measure_contract
from cluster.contract.probes import EFFORTS
from cluster.contract.table import print_contract
from cluster.engine import Engine
from cluster.errors import ContractBroken, NodeError, RunFailed
from cluster.failures import raise_failure
from cluster.fleet import Fleet
from cluster.links import Link, collective_timeout_s
from cluster.network import Contract
from cluster.overload import host_summary
from cluster.places import Place, place_ranks, rank_environment
from cluster.player import Player
from cluster.processors import Processors
from cluster.program import FIT, RESUME, Program, pack
from cluster.ranks import Ended, Ranks
from cluster.remote_process import LOST
from cluster.runs import (
    METRICS,
    last_events,
    make_run_folder,
    unpack_results,
    write_config,
    write_json,
    write_links,
)
from cluster.schedule import Event, check_nodes, check_schedule, check_steps
from cluster.shaping import Shape, read_shape, refuse_replayed, sent_bytes
from cluster.spec import PROJECT_DIR, ClusterSpec
from cluster.summary import account
from cluster.traces import Playback

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

    `shape` is the links in force as they were just read: what their counters have counted by then is not this run's.

    Raises:
        UsageError: the schedule speaks of what is not there, or so many ranks cannot be; nothing was started.
        ClusterError: traces that somebody plays by hand are in the way of it, or of measuring; nothing was started.
        ContractBroken: a link is not what was asked for; nothing was started.
        RunFailed: a rank failed; names the first one, with its log.
    """
    places = place_ranks([node.name for node in spec.nodes], nproc_per_node)
    check_schedule(schedule, shape.links)
    check_nodes(schedule, [node.name for node in spec.nodes])
    check_steps(schedule, int(program.config.get("steps", 0)))
    if schedule:
        refuse_replayed(shape, "a schedule cannot be kept")
    if verify:
        refuse_replayed(shape, "the links cannot be measured")
    folder = make_run_folder(RUNS_DIR, shape.profile or "unshaped", program.name)
    write_links(folder, shape.links, places)
    timeout_s = _timeout_s(spec, len(places), shape, schedule)
    config = _config(spec, program, shape, timeout_s, verify=verify)
    config["nproc_per_node"] = nproc_per_node
    processors = Processors(engine, spec.name)
    config["limits"] = processors.document()
    config["schedule"] = [event.words for event in schedule]
    config["traces"] = [event.playback.record() for event in schedule if event.playback]
    write_config(folder, config)
    contract = None
    if verify and shape.links:
        contract = _verify(fleet, shape, folder, console)
        shape = read_shape(
            fleet
        )  # with the counters as they are now: the probes' bytes are not this run's
    started = time.monotonic()
    log = folder / "events.jsonl"
    metrics = f"{_run_dir(folder)}/{places[0].file(METRICS)}"
    player = Player(fleet, shape, processors, schedule, metrics, log, console)
    ended = _run_ranks(fleet, program, folder, places, shape, timeout_s, console, player)
    wall_s = time.monotonic() - started
    summary = _collect(
        fleet, folder, places, shape, ended, wall_s, contract, changing=bool(schedule)
    )
    summary["verified"] = verify and bool(shape.links)
    write_json(folder / "summary.json", summary)
    isolated = shape.links if shape.isolated else ()
    raise_failure(folder, ended, spec.nodes, isolated, summary)
    if player.failure:
        raise RunFailed(
            f"the ranks are done, but the schedule was not kept: {player.failure}",
            f"what was: {folder / 'events.jsonl'}",
            summary,
        )
    return Run(folder, summary)


def _timeout_s(spec: ClusterSpec, ranks: int, shape: Shape, schedule: Sequence[Event]) -> float:
    """How long a collective may take on the slowest links that there will be, and while the longest change lasts."""
    links = [shape.links]
    for event in schedule:
        if event.profile is not None and shape.wanted is not None:
            wanted = replace(shape.wanted, profile=event.profile)
            links.append(wanted.links(spec.nodes))
        if event.playback is not None:
            links.append(tuple(_traced(link, event.playback) for link in shape.links))
    longest_s = max((_lasts_s(event) for event in schedule), default=0.0)
    return max(collective_timeout_s(some, ranks) for some in links) + longest_s


def _traced(link: Link, playback: Playback) -> Link:
    """A link as a trace has it in the mean."""
    trace = playback.trace
    if (link.src, link.dst) not in playback.pairs:
        return link
    rate_mbyte_s = trace.mean("rate_mbyte_s") if "rate_mbyte_s" in trace.fields else 0.0
    delay_ms = trace.mean("delay_ms") if "delay_ms" in trace.fields else link.delay_ms
    return replace(link, rate_mbyte_s=rate_mbyte_s or link.rate_mbyte_s, delay_ms=delay_ms)


def _lasts_s(event: Event) -> float:
    """How long something may be in the way of a collective: of a trace that goes on for ever it is one round."""
    if event.playback is not None:
        return min(event.playback.lasts_s, event.playback.trace.seconds)
    return event.for_s or 0.0


def _config(
    spec: ClusterSpec, program: Program, shape: Shape, timeout_s: float, *, verify: bool
) -> dict[str, object]:
    return {
        "command": shlex.join(sys.argv),
        "cluster": {"name": spec.name, "nodes": spec.size, "slot": spec.slot},
        "shaping": (shape.wanted.origin() if shape.wanted else {})
        | {"wire": shape.wire, "tcp": shape.tcp, "mtu": shape.mtu},
        "program": {"argv": list(program.argv), "folder": str(program.folder or "")},
        "training": program.config,
        "collective_timeout_s": round(timeout_s),
        "verify": verify,
    }


def _verify(fleet: Fleet, shape: Shape, folder: Path, console: Console) -> dict[str, Any]:
    """Measure the links; contract.json.

    Raises:
        ContractBroken: a link is not what was asked for.
    """
    contract = measure_contract(fleet, shape, console, EFFORTS["normal"])
    document = contract.document()
    write_json(folder / "contract.json", document)
    print_contract(contract, sys.stderr)
    if not contract.holds:
        raise ContractBroken(
            f"the links are not what was asked for: {contract.verdict()}; nothing was started",
            "python -m cluster.shape --profile NAME shapes them anew; --no-verify runs all the same",
            document,
        )
    return document


def _run_dir(folder: Path) -> str:
    """Where ranks leave what comes home, on every node."""
    return f"/run/gradwire/runs/{folder.name}"


def _run_ranks(
    fleet: Fleet,
    program: Program,
    folder: Path,
    places: Sequence[Place],
    shape: Shape,
    timeout_s: float,
    console: Console,
    player: Player,
) -> list[Ended]:
    """Send the program, start the ranks, stay until all have ended; nothing of it stays on the nodes' disks."""
    run_id = folder.name
    run_dir, place = _run_dir(folder), f"/root/work/{run_id}"
    orders = {
        one: {
            "run": run_id,
            "argv": program.argv,
            "cwd": place if program.sends else "/root",
            "run_dir": run_dir,
            "env": rank_environment(
                one,
                places,
                shape.links,
                run_id,
                run_dir,
                timeout_s,
                isolated=shape.isolated,
            ),
        }
        for one in places
    }
    names = [node.name for node in fleet.nodes]
    printer = LinePrinter([one.name for one in places], console.program_output)
    ended: list[Ended] = []
    try:
        if program.folder:
            _send(fleet, dict.fromkeys(names, program.folder), place)
        if program.order:
            _send(fleet, dict.fromkeys(names, program.order), f"{place}/{FIT}")
        if program.resume:
            files = {name: program.resume / "files" / name for name in names}
            _send(fleet, files, f"{place}/{RESUME}")
        with player:
            ended = Ranks(fleet, orders, folder / "logs", printer).wait()
    finally:
        _fetch(fleet, folder, places, run_dir, [place] if program.sends else [], ended)
    return ended


def _send(fleet: Fleet, folders: Mapping[str, Path], place: str) -> None:
    """Send each node its folder."""
    archives = {folder: pack(folder) for folder in set(folders.values())}
    fleet.run(["mkdir", "-p", place])
    stdin = {node: archives[folder] for node, folder in folders.items()}
    fleet.run(["tar", "-x", "-C", place], stdin=stdin)


def _fetch(
    fleet: Fleet,
    folder: Path,
    places: Sequence[Place],
    run_dir: str,
    sent: list[str],
    ended: Sequence[Ended],
) -> None:
    """Bring home what the ranks left, then remove it there; a node that is lost keeps its part."""
    lost = {end.place.node for end in ended if end.exit_code == LOST}
    alive = [node.name for node in fleet.nodes if node.name not in lost]
    results = fleet.run(["tar", "-C", run_dir, "-c", "."], nodes=alive, check=False)
    for node, result in results.items():
        if result.exit_code == 0:
            own = [place for place in places if place.node == node]
            unpack_results(folder, node, own, result.stdout)
    fleet.run(["rm", "-rf", run_dir, *sent], nodes=alive, check=False)


def _collect(
    fleet: Fleet,
    folder: Path,
    places: Sequence[Place],
    before: Shape,
    ended: Sequence[Ended],
    wall_s: float,
    contract: Contract | None,
    *,
    changing: bool,
) -> dict[str, Any]:
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
        **account(folder, told, nodes, before, links, contract, changing=changing),
        "host": host,
        "links": [asdict(link) for link in before.links],
    }
