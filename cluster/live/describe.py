"""Builds the state document from what is known about a run. Pure; callers pass the time, in Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from cluster.live.rank_state import Seen, judge
from cluster.live.sample import RankSample
from cluster.live.state import HistoryRow, LineRow, LinkRow, LiveState, RankRow
from cluster.live.tracker import LEAST_STEP_S, LiveRank, NodeFacts, Tracker, seen_of
from protocol.link import Link
from protocol.telemetry import LinkLook

MOST_HISTORY = 120
SPEED_WINDOW_S = 30.0
SILENT_INTERVALS = 3.5


def remember(tracker: Tracker, at: float) -> Tracker:
    """Return the tracker with one more row of history; call it once per interval while ranks run."""
    if tracker.ranks_at is None:
        return tracker
    carried = sum(link.mbyte_s or 0.0 for link in _links(tracker, at))
    first = seen_of(tracker, tracker.ranks[0]).sample
    row = HistoryRow(round(at - tracker.ranks_at, 3), carried, first.loss, first.step)
    return replace(tracker, history=(*tracker.history, row)[-MOST_HISTORY:])


def describe(
    tracker: Tracker, lines: Sequence[LineRow], at: float, host_cpu_pct: float | None = None
) -> LiveState:
    """Return the state document.

    Args:
        tracker: what is known about the run.
        lines: the last lines that ranks printed.
        at: the current time.
        host_cpu_pct: CPU share of the live view in the launcher, in percent of one processor.
    """
    seen = {rank: seen_of(tracker, rank) for rank in tracker.ranks}
    ranks = tuple(_rank(tracker, rank, seen, at) for rank in tracker.ranks)
    step, steps_s = _progress(tracker, seen)
    steps_left = None if step is None or tracker.steps is None else max(0, tracker.steps - step)
    computing, communicating = _mean(ranks)
    return LiveState(
        run=tracker.run,
        folder=tracker.folder,
        program=tracker.program,
        profile=tracker.profile,
        phase=tracker.phase,
        time=round(at, 3),
        elapsed_s=round(at - tracker.began_at, 3),
        interval_s=tracker.interval_s,
        step=step,
        steps=tracker.steps,
        steps_s=steps_s,
        left_s=steps_left / steps_s if steps_left is not None and steps_s else None,
        computing=computing,
        communicating=communicating,
        other=None
        if computing is None or communicating is None
        else max(0.0, 1.0 - computing - communicating),
        told_by=_told_by(seen) if computing is not None else "",
        ranks=ranks,
        links=_links(tracker, at),
        events=tracker.events,
        lines=tuple(lines),
        history=tracker.history,
        notes=tracker.notes,
        nodes_cpu_pct=_nodes_cpu_pct(tracker),
        host_cpu_pct=host_cpu_pct,
    )


def _rank(tracker: Tracker, rank: LiveRank, seen: Mapping[LiveRank, Seen], at: float) -> RankRow:
    sample, silent_s = seen[rank].sample, _silent_s(tracker, rank.node, at)
    exit_code, restarts = tracker.exits.get(rank.name), tracker.restarts.get(rank.name, 0)
    others = _awaited(tracker, rank, seen)
    is_running = tracker.ranks_at is not None
    state, doing = judge(
        seen[rank], others, exit_code, silent_s, is_running=is_running, restarts=restarts
    )
    computing, communicating = _shares(tracker, rank, seen[rank])
    return RankRow(
        name=rank.name,
        node=rank.node,
        rank=rank.rank,
        state=state,
        doing=doing,
        step=sample.step,
        loss=sample.loss,
        score=f"{sample.score[0]} {sample.score[1]:.4g}" if sample.score else "",
        computing=computing,
        communicating=communicating,
        restarts=restarts,
        exit_code=exit_code,
        silent_s=round(silent_s, 1),
        bad_loss="not a number" if _has_bad_loss(tracker, sample) else "",
    )


def _has_bad_loss(tracker: Tracker, sample: RankSample) -> bool:
    """Return whether the last step's loss is NaN or infinite: nodes do not send it then.

    Our own training, whose number of steps is known, tells both the loss and `compute_s` of every step.
    """
    return tracker.steps is not None and sample.compute_s is not None and sample.loss is None


def _awaited(tracker: Tracker, rank: LiveRank, seen: Mapping[LiveRank, Seen]) -> dict[str, Seen]:
    """Return the ranks that this rank's collective waits for; a rank that is not essential waits for none."""
    if not rank.is_essential or not seen[rank].is_in_collective:
        return {}
    there = (other for other in tracker.ranks if other.name not in tracker.exits)
    return {other.name: seen[other] for other in there if other.is_essential and other != rank}


def _silent_s(tracker: Tracker, node: str, at: float) -> float:
    """Return how long a node has sent no telemetry; 0 while the gap is not unusual."""
    if tracker.ranks_at is None or tracker.phase in ("collecting", "ended"):
        return 0.0
    facts = tracker.nodes.get(node)
    since = facts.heard_at if facts else tracker.ranks_at
    # Before its first line a node is given more time: it is still starting ranks.
    patience = SILENT_INTERVALS * tracker.interval_s * (1 if facts else 4)
    return at - since if at - since > patience else 0.0


def _shares(tracker: Tracker, rank: LiveRank, seen: Seen) -> tuple[float | None, float | None]:
    """Return a rank's shares of time spent computing and communicating: from metrics, else from sampled states."""
    sample = seen.sample
    if sample.compute_s is not None and sample.comm_s is not None:
        span_s = (sample.told or 0.0) - (sample.began or 0.0)
        parts = [max(0.0, sample.compute_s), max(0.0, sample.comm_s)]
        whole_s = max(span_s, sum(parts))
        return (parts[0] / whole_s, parts[1] / whole_s) if whole_s > 0 else (None, None)
    facts = tracker.nodes.get(rank.node)
    computing, collective, count = facts.looks.get(rank.rank, (0, 0, 0)) if facts else (0, 0, 0)
    return (computing / count, collective / count) if count else (None, None)


def _told_by(seen: Mapping[LiveRank, Seen]) -> str:
    has_metrics = any(one.sample.compute_s is not None for one in seen.values())
    return "metrics" if has_metrics else "looks"


def _mean(ranks: Sequence[RankRow]) -> tuple[float | None, float | None]:
    known = [
        (row.computing, row.communicating)
        for row in ranks
        if row.computing is not None and row.communicating is not None
    ]
    if not known:
        return None, None
    return fmean(one for one, _ in known), fmean(other for _, other in known)


def _progress(tracker: Tracker, seen: Mapping[LiveRank, Seen]) -> tuple[int | None, float | None]:
    """Return the last step of the first rank that counts steps, and rank 0's recent steps per second."""
    steps = (one.sample.step for one in seen.values())
    step = next((one for one in steps if one is not None), None)
    rows = [row for row in tracker.history if row.step is not None]
    recent = [row for row in rows if rows[-1].at_s - row.at_s <= SPEED_WINDOW_S]
    if len(recent) < 2 or step is None:
        return step, None
    made = (recent[-1].step or 0) - (recent[0].step or 0)
    over_s = recent[-1].at_s - recent[0].at_s
    return step, made / over_s if made > 0 and over_s > 0 else None


def _links(tracker: Tracker, at: float) -> tuple[LinkRow, ...]:
    silent = {rank.node: _silent_s(tracker, rank.node, at) for rank in tracker.ranks}
    return tuple(
        _link(tracker.nodes.get(link.src), link, is_silent=silent.get(link.src, 0.0) > 0)
        for link in tracker.links
    )


def _link(facts: NodeFacts | None, link: Link, *, is_silent: bool) -> LinkRow:
    now = facts.now.links.get(link.dst) if facts else None
    if facts is None or now is None:
        return LinkRow(link.src, link.dst, link.rate_mbyte_s)
    sent, dropped = facts.carried.get(link.dst, (0.0, 0.0))
    return LinkRow(
        link.src,
        link.dst,
        now.asked_mbyte_s,
        None if is_silent else _rate_mbyte_s(facts, link.dst, now),
        sent,
        0.0 if is_silent else now.backlog_bytes,
        dropped,
    )


def _rate_mbyte_s(facts: NodeFacts, peer: str, now: LinkLook) -> float | None:
    before = facts.before.links.get(peer) if facts.before else None
    over_s = facts.now.time - facts.before.time if facts.before else 0.0
    if before is None or over_s < LEAST_STEP_S or now.sent_bytes < before.sent_bytes:
        return None
    return (now.sent_bytes - before.sent_bytes) / over_s / 1e6


def _nodes_cpu_pct(tracker: Tracker) -> float | None:
    """Return the CPU share of telemetry on all nodes together, in percent of one processor."""
    spent = [facts.spent for facts in tracker.nodes.values()]
    shares = [spent_s / over_s for spent_s, over_s in spent if over_s > 0]
    return 100 * sum(shares) if shares else None
