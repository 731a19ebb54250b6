"""Reads a run folder of any version, however the run ended. Changes nothing in it.

Whatever is missing, truncated or of the wrong type is left out, because reports of failed runs are worth most. The
run's notes name an unreadable or too large summary.json or contract.json, and metrics of which only the start is shown.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.collectives import Collective
from cluster.accounting.metrics import slim_events
from cluster.base.errors import UsageError
from cluster.reporting.experiment import command_of, facts_of, title_of
from cluster.reporting.failures import failed_ranks, failure_of, read_tails, root_cause_of
from cluster.reporting.link_figures import MOST_LINKS, proof_of, read_links
from cluster.reporting.link_stretches import read_looks, stretches_of
from cluster.reporting.notes import cut_notes, first_shown, metrics_notes, notes_of
from cluster.reporting.run_data import (
    Attribution,
    ByteFigures,
    Cause,
    CollectiveRow,
    CriticalPath,
    Experience,
    Measure,
    Move,
    PathPart,
    Rank,
    RunData,
    ScheduleEvent,
    StepPoint,
    WhatIf,
)
from cluster.reporting.run_times import Recorded, began_at, span_of, time_notes, within
from cluster.reporting.traced_rates import traced_rates, with_traces
from cluster.reporting.values import (
    MOST_CONTRACT_BYTES,
    MOST_JSON_BYTES,
    Record,
    count,
    number,
    numbers,
    read_json,
    record,
    records,
    word,
    words,
)
from cluster.reporting.yaml_document import read_run_yml
from protocol.metrics import Evaluation, Line, Rollout, Start, Step
from protocol.metrics import Experience as ExperienceLine
from protocol.values import MOST_RANKS, NAME

MOST_STEP_LINES = 400_000  # over all ranks
LEAST_STEP_LINES = 2_000  # per rank, unless that is more than MOST_LINES over all
MOST_LINES = 2_000_000
MOST_MOVES = 300_000
MOST_EVENTS = 20_000  # a link that flaps 10,000 times
MARKS = ("run.yml", "summary.json", "contract.json", "links.json", "metrics", "logs")
OF_TESTS = (
    *("test_accuracy", "test_loss", "validation_loss", "validation_bits", "test_return"),
    *("test_length", "test_success", "test_steps", "steps_over_cbs"),
    "eval_s",
)
OF_ROLLOUTS = ("env_steps", "episode_return", "episode_length")
OF_EXPERIENCE = ("env_steps", "updates_s", "replay_ratio")
FIGURES_OF = {Evaluation: OF_TESTS, Rollout: OF_ROLLOUTS, ExperienceLine: OF_EXPERIENCE}
DISTRIBUTIONS = ("staleness_updates", "staleness_s", "weights_age_s")
CARRIED = ("delay", "bytes", "window")


def read_run(folder: Path) -> RunData:
    """Return all that a report shows of a run.

    Raises:
        UsageError: the folder is no run folder.
    """
    if not folder.is_dir() or not any((folder / mark).exists() for mark in MARKS):
        raise UsageError(f"{folder} is no folder of a run", "runs/<time>-<profile>-<what>")
    summary = record(read_json(folder / "summary.json"))
    config = read_run_yml(folder / "run.yml")
    contract = record(read_json(folder / "contract.json", MOST_CONTRACT_BYTES))
    ranks, cause = read_ranks(folder, summary), root_cause_of(summary)
    failed = failed_ranks(ranks, summary, config.get("essential_ranks"), cause)
    links = read_links(contract, read_json(folder / "links.json"), record(summary.get("bytes")))
    cut = [
        *first_shown("ranks", len(ranks), MOST_RANKS),
        *first_shown("links", len(links), MOST_LINKS),
    ]
    run = RunData(
        name=word(folder.resolve().name),
        status=_status(summary),
        wall_s=number(summary.get("wall_s")),
        ranks=ranks[:MOST_RANKS],
        proof=proof_of(summary, contract, links),
        links=links[:MOST_LINKS],
        limits=_limits(summary),
        bytes=_bytes(record(summary.get("bytes"))),
        final_loss=number(summary.get("final_loss")),
        steps_done=count(summary.get("steps")),
        tested=numbers(summary.get("tested")),
        collectives=[_collective(row) for row in records(summary.get("collectives"))],
        bounds=word(summary.get("bounds")),
        attribution=_attribution(record(summary.get("attribution"))),
        what_if=_what_if(summary.get("what_if"), record(read_json(folder / "whatif.json"))),
        is_predicted=summary.get("what_if") is not None,
        causes=list(_causes(summary.get("causes"))),
        path=_path(record(summary.get("critical_path"))),
        experience=_experience(record(summary.get("experience"))),
        title=title_of(config, ranks),
        command=command_of(config),
        facts=facts_of(config, contract),
        is_training=bool(record(config.get("training"))),
        failure=failure_of(summary),
        root_cause=cause,
        failed=len(failed),
        tails=read_tails(folder, failed, cause),
        notes=[*notes_of(folder, summary, contract, config), *cut],
    )
    return _with_traces(_with_metrics(run, folder), config)


def read_ranks(folder: Path, summary: Record) -> list[Rank]:
    """Return all ranks in order: from summary.json, else from the files that they left."""
    codes = record(summary.get("exit_codes"))
    names = [name for name in codes if NAME.fullmatch(name)] or _names_of_files(folder)
    seconds, restarts = record(summary.get("seconds")), numbers(summary.get("restarts"), MOST_RANKS)
    return [
        Rank(
            name,
            name.partition("-")[0],
            _exit_code(codes.get(name)),
            numbers(seconds.get(name)),
            int(restarts.get(name, 0)),
        )
        for name in names
    ]


def _names_of_files(folder: Path) -> list[str]:
    """Return the ranks of a run without a recorded end, node10 after node9."""
    metrics = {p.stem for p in folder.glob("metrics/*.jsonl") if "." not in p.stem}
    found = metrics | {path.stem for path in folder.glob("logs/*.log")}
    names = [name for name in found if NAME.fullmatch(name)]
    return sorted(names, key=lambda name: [int(n) for n in _digits(name)] or [0])


def _digits(name: str) -> list[str]:
    return "".join(
        letter if letter.isdecimal() and letter.isascii() else " " for letter in name
    ).split()


def _exit_code(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _status(summary: Record) -> str:
    if not summary:
        return "open"
    if summary.get("status") in ("done", "failed"):
        older = record(summary.get("not_fetched")) or word(summary.get("links_lost"))
        flaw = word(summary.get("failure")) if "failure" in summary else older
        return "failed" if flaw or summary["status"] == "failed" else "done"
    codes = record(summary.get("exit_codes")).values()  # from before `status` existed
    return "failed" if any(code != 0 for code in codes) else "done"


def _limits(summary: Record) -> tuple[str, ...] | None:
    host = record(summary.get("host"))
    return words(host["limits"]) if isinstance(host.get("limits"), list) else None


def _bytes(found: Record) -> ByteFigures:
    loop = record(found.get("loop"))
    return ByteFigures(
        number(found.get("total")), number(loop.get("ratio")), words(loop.get("off"))
    )


def _collective(row: Record) -> CollectiveRow:
    timed, bounded = count(row.get("timed")), count(row.get("bounded"))
    return CollectiveRow(
        word(row.get("kind"), 64),
        word(row.get("purpose"), 64),
        count(row.get("bytes")) or 0,
        count(row.get("count")) or 0,
        number(row.get("seconds")),
        number(row.get("gloo_bound_s")),
        number(row.get("links_bound_s")),
        number(row.get("ratio")),
        row.get("sizes_vary") is True,
        max(0, timed - bounded) if timed is not None and bounded is not None else 0,
    )


def _attribution(found: Record) -> Attribution | None:
    seconds = numbers(found.get("seconds"))
    rows = [
        (_collective(row), numbers(row.get("seconds"))) for row in records(found.get("collectives"))
    ]
    return Attribution(seconds, rows) if seconds else None


def _what_if(found: object, trials: Record) -> list[WhatIf]:
    """Return the changes that say how much they save, with what came of those in `trials`, the content of whatif.json.

    Predicted and achieved are both of collectives alone: computing and tests vary by more than most changes save.
    """
    achieved_s = {
        (word(row.get("what"), 64), word(row.get("of"), 64)): number(
            row.get("achieved_collectives_s")
        )
        for row in records(trials.get("tried"))
    }
    changes = []
    for row in records(found):
        what, carrier = word(row.get("what"), 64), word(row.get("carrier"), 64)
        if (saves_s := number(row.get("saves_s"))) is not None:
            changes.append(WhatIf(what, carrier, saves_s, achieved_s.get((what, carrier))))
    return changes


def _causes(found: object) -> Iterator[Cause]:
    """Yield the causes that say how much they cost, in the order of the file: the most costly first."""
    for row in records(found):
        if (seconds := number(row.get("seconds"))) is not None:
            yield Cause(word(row.get("words"), 200), seconds)


def _path(found: Record) -> CriticalPath | None:
    wall_s, parts = number(found.get("wall_s")), list(_path_parts(found))
    if not wall_s or wall_s < 0 or not parts:
        return None
    return CriticalPath(wall_s, parts, max(0.0, number(found.get("not_known_s")) or 0.0))


def _path_parts(found: Record) -> Iterator[PathPart]:
    for who, seconds in list(record(found.get("ranks")).items())[:MOST_RANKS]:
        for kind, s in numbers(seconds).items():
            if s > 0:
                yield PathPart(word(who, 64), kind, s, is_rank=True)
    for who, seconds in list(record(found.get("links")).items())[:MOST_LINKS]:
        for kind in CARRIED:
            s = number(record(seconds).get(f"{kind}_s")) or 0.0
            if s > 0:
                yield PathPart(word(who, 64), kind, s, is_rank=False)


def _experience(found: Record) -> Experience | None:
    if not found:
        return None
    medians = {
        f"{name} median": number(record(found.get(name)).get("median")) for name in DISTRIBUTIONS
    }
    known = {name: value for name, value in medians.items() if value is not None}
    actors = {word(name, 64): numbers(actor) for name, actor in record(found.get("actors")).items()}
    return Experience(numbers(found) | known, actors)


def _with_metrics(run: RunData, folder: Path) -> RunData:
    """Return the run with what the ranks' own lines add, on one clock that starts at the first event."""
    names = [rank.name for rank in run.ranks]
    share, least = (count // max(1, len(names)) for count in (MOST_STEP_LINES, MOST_LINES))
    most = max(share, min(LEAST_STEP_LINES, least))
    events, actions = _schedule_events(folder / "events.jsonl")
    found = Recorded(
        {name: _first_lines(folder / "metrics" / f"{name}.jsonl", most) for name in names},
        read_collectives(folder, names),
        events,
        read_looks(folder / "links.csv", {link.name for link in run.links}),
    )
    kept = within(span_of(folder, found), found)
    began, own = began_at(kept), list(kept.lines.values())
    moves = list(_moves(kept.collectives, began))
    notes = metrics_notes([name for name, some in found.lines.items() if len(some) == most], most)
    notes += first_shown("actions of the schedule", actions, MOST_EVENTS)
    cut = cut_notes(run.collectives, found.collectives, len(moves), MOST_MOVES)
    return replace(
        run,
        steps=[point for rank, some in enumerate(own) for point in _steps(rank, some, began)],
        measures=[one for rank, some in enumerate(own) for one in _measures(rank, some, began)],
        moves=moves[:MOST_MOVES],
        starts_s={r: one for r, some in enumerate(own) for one in _starts(some, began)},
        stretches=stretches_of(kept.looks, began),
        events=[ScheduleEvent(at - began, what) for at, what in kept.events],
        notes=[*run.notes, *notes, *time_notes(found, kept), *cut],
        began_at=began,
    )


def _with_traces(run: RunData, config: Record) -> RunData:
    """Return the run with the link rates that traces set."""
    traces = traced_rates(config, run.events)
    return replace(run, stretches=with_traces(run.stretches, traces)) if traces else run


def _first_lines(path: Path, most: int) -> list[Line]:
    found: list[Line] = []
    for line in slim_events(path):
        found.append(line)
        if len(found) == most:
            break
    return found


def _starts(own: Sequence[Line], began: float) -> Iterator[float]:
    first = next((line for line in own if isinstance(line, Start)), None)
    if first is not None:
        yield first.time - began


def _steps(rank: int, own: Sequence[Line], began: float) -> Iterator[StepPoint]:
    for line in (line for line in own if isinstance(line, Step)):
        yield StepPoint(
            rank,
            line.step,
            line.time - began,
            number(line.loss),
            max(0.0, line.compute_s or 0.0),
            max(0.0, line.comm_s or 0.0),
            float(line.sent_bytes),
            max(0.0, line.strategy_s or 0.0),
            _not_finite(line.loss),
            max(0.0, line.waiting_s or 0.0),
        )


def _not_finite(loss: float | None) -> str:
    if loss is None or math.isfinite(loss):
        return ""
    return "NaN" if math.isnan(loss) else "infinite"


def _measures(rank: int, own: Sequence[Line], began: float) -> Iterator[Measure]:
    """Yield the figures of tests, rollouts and experience; `eval_s` is the duration of a test."""
    for line in own:
        if isinstance(line, Evaluation | Rollout | ExperienceLine):
            for name, value in _figures_of(line):
                if (found := number(value)) is not None:
                    yield Measure(name, rank, line.step, line.time - began, found)


def _figures_of(line: Evaluation | Rollout | ExperienceLine) -> Iterator[tuple[str, object]]:
    """Yield the figures that are shown; their values may be missing or no numbers."""
    names = FIGURES_OF[type(line)]
    yield from ((name, getattr(line, name)) for name in names)
    if isinstance(line, ExperienceLine):
        for name in DISTRIBUTIONS:
            for which in ("median", "p95"):
                yield f"{name} {which}", getattr(line, name).get(which)


def _moves(collectives: Sequence[Collective], began: float) -> Iterator[Move]:
    for index, one in enumerate(collectives):
        for part in one.parts:
            yield Move(
                number=index,
                rank=part.rank,
                step=part.step,
                kind=part.kind,
                purpose=part.purpose,
                size_bytes=part.size,
                entered_s=part.entered - began,
                waited_from_s=part.ended - part.waited_s - began,
                complete_s=one.complete_at - began,
                ended_s=part.ended - began,
                hidden=part.hidden,
                tests=one.tests,
                to=part.to,
            )


def _schedule_events(path: Path) -> tuple[list[tuple[float, str]], int]:
    """Return the Unix time of each event with what was done, and how many there are; not all if these are many."""
    if not path.is_file() or path.stat().st_size > MOST_JSON_BYTES:
        return [], 0
    texts = path.read_bytes().splitlines()
    return list(_events(texts[:MOST_EVENTS])), len(texts)


def _events(texts: Sequence[bytes]) -> Iterator[tuple[float, str]]:
    for text in texts:
        try:
            line = record(json.loads(text))
        except (ValueError, RecursionError):
            continue
        at = number(line.get("time"))
        if at is not None:
            yield at, word(line.get("what"))
