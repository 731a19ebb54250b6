"""Runs one launch from links in force to the summary: verify, stage, start, follow, collect.

The run folder (`cluster.run.run_folder`) keeps what was requested and measured, and the results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from cluster.accounting.clocks import Clocks, HostClock, correction_of
from cluster.accounting.metrics import LastLines
from cluster.accounting.routes import Contract
from cluster.accounting.summary import account
from cluster.base.console import Console, command_line
from cluster.base.errors import ClusterError, RunFailed
from cluster.base.json_file import finite, write_json
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.contract.prover import Prover
from cluster.engine.client import Engine
from cluster.engine.cpu_limits import CpuLimits
from cluster.engine.image import require_packages
from cluster.engine.node_fate import node_fate
from cluster.live.live_run import LiveOptions, LiveRun, live_run
from cluster.live.news import ClocksMeasured, Phase
from cluster.reporting.after_run import report_run
from cluster.reporting.failures import RANKS_DONE, lost_words
from cluster.run.experiment import Experiment
from cluster.run.host_clocks import measure_clocks
from cluster.run.job import Job, make_job
from cluster.run.launch_words import NONE
from cluster.run.live_view import live_posts, live_tracker
from cluster.run.rank_exit import RankExit
from cluster.run.rank_order import resolve_rank_order
from cluster.run.ranks import RankProcesses
from cluster.run.root_cause import cause_document, raise_failure
from cluster.run.run_folder import (
    last_events,
    make_run_folder,
    write_clocks,
    write_config,
    write_links,
)
from cluster.run.staging import Staging, staged
from cluster.run.stall_watcher import StallWatch
from cluster.run.summary_document import Summary
from cluster.run.verification import Verified, links_after, verify_links
from cluster.run.versions import run_versions
from cluster.schedule.runner import ScheduleRunner
from cluster.shaping.host_load import HostLoad, compare_readings
from cluster.shaping.link_state import LinkState, sent_bytes
from cluster.shaping.temporary_changes import give_up, note_temporary_change
from cluster.ssh.fleet import Fleet
from protocol.metrics import End
from protocol.places import run_dir, shared_dir
from protocol.rank import LOST

RUNS_DIR = PROJECT_DIR / "runs"
LIVE = LiveOptions()


@dataclass(frozen=True)
class Run:
    """A launch that has ended: its folder and its summary.json."""

    folder: Path
    summary: Summary


def run_program(
    engine: Engine,
    spec: ClusterSpec,
    fleet: Fleet,
    link_state: LinkState,
    experiment: Experiment,
    console: Console,
    live_options: LiveOptions = LIVE,
) -> Run:
    """Verify the links, run the program on every node, collect its results.

    Args:
        engine: the engine of the cluster's containers.
        spec: the cluster.
        fleet: connections to its nodes.
        link_state: the links in force, just read.
        experiment: what to run.
        console: for messages.
        live_options: how the run is shown while it goes on.

    Raises:
        UsageError: the schedule does not fit, the number, order or restarts of ranks are invalid, an essential rank
            does not exist, or the node image lacks a package; nothing was started.
        ClusterError: traces that a user is playing would interfere with the schedule or with measuring; nothing was
            started.
        ContractBroken: a link is not as asked; nothing was started.
        ContractUndecided: the host was too busy to tell whether the links hold; nothing was started.
        RunFailed: an essential rank failed (names the root cause, with its log), the run stalled, links were lost, the
            schedule was not kept, or results could not be fetched.
    """
    names = [node.name for node in spec.nodes]
    order = resolve_rank_order(experiment.rank_order, names, link_state, experiment.nproc_per_node)
    if order.words:
        console.say(order.words)
    job = make_job(experiment, spec, order.nodes, link_state)
    job.check()
    program = experiment.program
    require_packages(engine, spec.image, program.needed_packages)
    folder = make_run_folder(RUNS_DIR, link_state.profile or "unshaped", program.name)
    tracker = live_tracker(job, folder, time.time())
    try:
        with live_run(tracker, spec.state_dir, folder, live_options, console.say) as live:
            run = _run(engine, fleet, job, folder, console, live)
    except (KeyboardInterrupt, ClusterError) as error:
        if isinstance(error, KeyboardInterrupt):
            console.say(f"interrupted; what there is of the run: {folder}")
        report_run(folder, console.say, is_named=True)
        raise
    report_run(folder, console.say)
    return run


def _run(
    engine: Engine,
    fleet: Fleet,
    job: Job,
    folder: Path,
    console: Console,
    live: LiveRun,
) -> Run:
    processors = CpuLimits(engine, job.spec.name)
    write_links(folder, job.link_state.links, job.places)
    versions = run_versions(engine, fleet, job.spec)
    write_config(folder, job.config(processors.document()) | versions)
    write_clocks(folder, clocks := _clocks(engine, fleet, job.spec))
    live.tell(ClocksMeasured(clocks))
    prover, verified = Prover(engine, job.spec, fleet, console), None
    if job.verify != NONE and job.link_state.links:
        live.tell(Phase("measuring"))
        verified = verify_links(prover, job, folder)
        # With the counters as they are now: the probes' bytes do not count as the run's.
        job = replace(job, link_state=verified.link_state)
    player = ScheduleRunner(
        fleet,
        job.link_state,
        processors,
        job.schedule,
        job.metrics_file(folder.name),
        folder / "events.jsonl",
        console,
    )
    started, since = time.monotonic(), time.time()
    watch = StallWatch(fleet, folder.name, console.say, job.stalled_after_s, clocks)
    with _noted(job, processors, player):
        staging = _run_ranks(fleet, job, folder, console, player, watch, live)
    wall_s = time.monotonic() - started
    summary = _collect(prover, job, folder, staging, wall_s, verified, console)
    _write_summary(
        folder, summary
    )  # before engines are asked about lost nodes, which may take long
    fates = _fates(engine, fleet, job, staging.ended, since, clocks)
    cause = summary["root_cause"] = cause_document(staging.ended, fates, watch.stall)
    failure = _incomplete(job, folder, staging, player, summary)
    said = failure.message if failure else ""
    summary["failure"] = said.removeprefix(RANKS_DONE) if cause else said
    _write_summary(folder, summary)
    isolated = job.link_state.links if job.link_state.isolated else ()
    raise_failure(folder, staging.ended, fates, watch.stall, job.spec.nodes, isolated, summary)
    if failure:
        raise failure
    return Run(folder, summary)


def _incomplete(
    job: Job, folder: Path, staging: Staging, player: ScheduleRunner, summary: Summary
) -> RunFailed | None:
    """Return why a run has failed although its ranks are done; None if it has not."""
    by_hand = f"fetch it by hand: ssh -F {job.spec.state_dir}/ssh_config"
    kept = "the node keeps it until two more runs have left unfetched results"
    if lost := summary["links_lost"]:
        return RunFailed(
            f"{RANKS_DONE}{lost_words(lost)}",
            "launch again: that applies them again",
            summary,
        )
    if missing := staging.missing(job.places):
        return RunFailed(
            f"{RANKS_DONE}what they left could not all be fetched: {staging.reasons(missing)}",
            f"{by_hand} {missing[0]} tar -C {run_dir(folder.name)} -c . > results.tar; {kept}, or the node is removed",
            summary,
        )
    if staging.shared_not_fetched:
        return RunFailed(
            f"{RANKS_DONE}their shared folder could not be fetched: {staging.shared_not_fetched}",
            f"{by_hand} {job.places[0].node} tar -C {shared_dir(folder.name)} -c . > shared.tar; {kept}",
            summary,
        )
    if player.failure:
        return RunFailed(
            f"{RANKS_DONE}the schedule was not kept: {player.failure}",
            document=summary,
            see=str(folder / "events.jsonl"),
        )
    return None


@contextmanager
def _noted(job: Job, processors: CpuLimits, player: ScheduleRunner) -> Iterator[None]:
    """Keep a note of a schedule's changes until they are undone.

    If we are killed, or an interrupt or a failure keeps us from undoing all of them, the next command undoes them.
    """
    if not job.schedule:
        yield
        return
    note = note_temporary_change(job.spec, command_line(), processors.before)
    try:
        yield
    finally:
        if player.is_restored:
            note.unlink(missing_ok=True)
        else:
            give_up(note)


def _run_ranks(
    fleet: Fleet,
    job: Job,
    folder: Path,
    console: Console,
    player: ScheduleRunner,
    watch: StallWatch,
    live: LiveRun,
) -> Staging:
    printer = live.printer([place.name for place in job.places], console.program_output)
    posts, say, tell = live_posts(job, folder.name), console.say, live.tell
    orders, logs = job.orders(folder.name), folder / "logs"  # before the schedule's clock starts
    with staged(fleet, job, folder, console) as staging, player, live.following(fleet, posts):
        ranks = RankProcesses(fleet, orders, logs, printer, watch, say, job.max_restarts, tell)
        staging.ended += ranks.wait()
    return staging


def _write_summary(folder: Path, summary: Summary) -> None:
    """Write summary.json.

    Raises:
        RunFailed: it could not be written; --json still prints the summary.
    """
    try:
        write_json(folder / "summary.json", summary)
    except OSError as error:
        raise RunFailed(
            f"{folder / 'summary.json'} could not be written: {error.strerror}",
            "free disk space; --json prints the summary even then",
            summary,
        ) from None


def _clocks(engine: Engine, fleet: Fleet, spec: ClusterSpec) -> dict[str, HostClock]:
    """Return the clocks of the nodes on other hosts, as far as these answer."""
    parts = [(part.where, nodes) for part, nodes in engine.parts(spec) if part.where]
    return measure_clocks(fleet, {node: where for where, nodes in parts for node in nodes})


def _fates(
    engine: Engine,
    fleet: Fleet,
    job: Job,
    ended: Sequence[RankExit],
    since: float,
    clocks: Clocks,
) -> dict[str, str]:
    """Return why nodes were lost, by node, as far as known."""
    lost = {end.place.node for end in ended if end.exit_code == LOST}
    fates = {node: words for node, words in fleet.lost.items() if node in lost}
    for part, nodes in engine.parts(job.spec) if lost else ():
        since_there = {
            node: since + correction_of(clocks, node) for node in lost.intersection(nodes)
        }
        fates |= _fates_on(part, job.spec.name, fates, since_there)
    return fates


def _fates_on(
    engine: Engine, name: str, fates: Mapping[str, str], since: Mapping[str, float]
) -> dict[str, str]:
    """Return what one host's engine tells of its lost nodes, or else what `fates` already has.

    `since`: lost node -> when its container was known to run, by the clock of its host.
    """
    found, lost = {}, sorted(since)
    try:
        ids = {c.node: c.id for c in engine.containers(name)} if lost else {}
        for node in lost:
            inspected = engine.inspect(ids[node]) if node in ids else None
            found[node] = node_fate(inspected, since[node]) or fates.get(node, "")
    except ClusterError:  # the engine is gone, too; for a remote engine assume that its host is
        if engine.where:
            return dict.fromkeys(lost, f"{engine.where} does not answer any more")
    return found


def _collect(
    prover: Prover,
    job: Job,
    folder: Path,
    staging: Staging,
    wall_s: float,
    verified: Verified | None,
    console: Console,
) -> Summary:
    """Return the content of summary.json, whatever the ranks left."""
    before, places = job.link_state, job.places
    told = {place.name: last_events(folder, place.name) for place in places}
    nodes = [place.node for place in places]
    first = told[places[0].name].end or End(0, 0.0)
    alive = [node.name for node in prover.fleet.nodes if node.name not in staging.lost]
    contract = verified.document if verified else None
    links_then = links_after(prover, job, verified.standing if verified else None, alive)
    after = links_then.link_state
    links = sent_bytes(before, after) if after else {}
    load = compare_readings(before.shown, after.shown, hosts=prover.fleet.hosts) if after else None
    is_changing = bool(job.schedule) or not links_then.stayed
    ends = {end.place: end for end in staging.ended}
    summary = {
        "run": folder.name,
        "folder": str(folder),
        "status": "failed" if any(ends[p].exit_code for p in places if p.is_essential) else "done",
        "wall_s": round(wall_s, 3),
        "exit_codes": {place.name: ends[place].exit_code for place in places},
        "restarts": {p.name: end.restarts for p, end in ends.items() if end.restarts},
        "test_accuracy": first.test_accuracy,
        "tested": first.tested,
        "final_loss": first.final_loss,
        "steps": first.steps,
        **_account(
            folder, told, nodes, job, links, contract, load, console, is_changing=is_changing
        ),
        "host": load.document() if load else None,
        "links": [link._asdict() for link in before.links],
        "links_lost": links_then.lost,
        "links_changed": links_then.changed,
        "verified": contract is not None,
        "verified_by": contract["by"] if contract else "",
        "proved_at": contract["proved_at"] if contract else "",
        "undecided": "" if contract is None or contract["decided"] else contract["verdict"],
        "not_fetched": staging.not_fetched,
        "failure": "",
        "root_cause": None,
    }
    return cast(Summary, finite(summary))


def _account(
    folder: Path,
    told: Mapping[str, LastLines],
    nodes: Sequence[str],
    job: Job,
    carried: Mapping[str, int],
    contract: Contract | None,
    load: HostLoad | None,
    console: Console,
    *,
    is_changing: bool,
) -> dict[str, object]:
    """Return the accounts; without the ranks' records if these are inconsistent."""
    reckon = partial(
        account,
        nodes=nodes,
        addresses=job.spec.addresses(nodes),
        link_state=job.link_state,
        carried=carried,
        contract=contract,
        changing=is_changing,
        throttled_s=load.throttled_s if load else {},
    )
    try:
        return reckon(folder, told)
    except Exception as error:  # the lines' types were checked, but their values are not trusted
        console.say(f"no accounting: the records of the ranks are inconsistent ({error!r})")
        return reckon(folder / "none", {name: LastLines() for name in told})
