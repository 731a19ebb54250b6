"""Computes the figures of summary.json from counters and metrics: bytes, collectives, seconds."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.accounting.attribution import attribute_run
from cluster.accounting.better_link import what_if
from cluster.accounting.broadcast import Receipt, receipts_of
from cluster.accounting.causes import Interval, causes_summary, find_causes, parse_events
from cluster.accounting.clocks import correction_of, read_clocks
from cluster.accounting.collective_stats import (
    Ends,
    all_sent,
    bucket_seconds,
    collective_rows,
    loop_bytes,
    read_collectives,
)
from cluster.accounting.collectives import Collective
from cluster.accounting.critical_path import find_path, path_summary
from cluster.accounting.experience import experience_summary
from cluster.accounting.metrics import LastLines, read_events
from cluster.accounting.rank_time import RankTime, rank_time
from cluster.accounting.routes import Contract, link_paths, make_network
from cluster.accounting.tcp_timing import restarts_after_idle
from cluster.accounting.wire_bytes import Sent, expected_by_link
from cluster.shaping.link_state import LinkState
from protocol.link import Pair
from protocol.metrics import Start, Weights

Told = Mapping[str, LastLines]
"""Rank name -> the last lines of its metrics; in rank order."""
Paths = Mapping[Pair, Sequence[Pair]]


def account(
    folder: Path,
    told: Told,
    nodes: Sequence[str],
    addresses: Sequence[str],
    link_state: LinkState,
    carried: Mapping[str, int],
    contract: Contract | None,
    *,
    changing: bool,
    throttled_s: Mapping[str, float],
) -> dict[str, Any]:
    """Return bytes, collectives and their bounds, seconds, causes, environments and experience for summary.json.

    Args:
        folder: the run's, with the ranks' files.
        told: the last lines of the ranks' metrics.
        nodes: the node of each rank.
        addresses: of those nodes, by rank.
        link_state: the links in force when the run began.
        carried: bytes on each link, from before the ranks started until after they ended.
        contract: the measurement of the links, if there was one.
        changing: whether the links changed or were lost during the run; then there are no bounds.
        throttled_s: node -> how long its CPU limit stopped it.
    """
    ranks = list(told)
    starts = {name: lines.start for name, lines in told.items()}
    ends = {name: lines.end for name, lines in told.items()}
    paths = link_paths(nodes, link_state.links, isolated=link_state.isolated)
    collectives = read_collectives(folder, ranks, addresses)
    network = make_network(
        nodes,
        link_state.links,
        {"uplink": link_state.uplinks, "downlink": link_state.downlinks},
        link_state.mtu,
        contract,
        isolated=link_state.isolated,
    )
    known = bool(link_state.links) and not changing
    lossy = [f"{link.src}->{link.dst}" for link in link_state.links if link.is_impaired]
    loop = loop_bytes(starts, ends, nodes, paths, lossy)
    receipts = _receipts(folder, ranks, ends)
    experience = experience_summary(told, network if known else None, receipts)
    times = _rank_times(folder, ends, collectives)
    slow_start = restarts_after_idle(link_state.tcp, is_on=link_state.slow_start_after_idle)
    return {
        "bytes": byte_summary(carried, all_sent(ends, nodes), all_sent(ends, nodes, "eval"), paths)
        | {"loop": loop},
        "bounds": network.source if known else None,
        "collectives": collective_rows(collectives, ends, network if known else None),
        "attribution": attribute_run(
            collectives, network if known else None, slow_start=slow_start
        ),
        "what_if": what_if(collectives, network if known else None, slow_start=slow_start),
        "critical_path": path_summary(
            find_path(collectives, times, network, slow_start=slow_start), times
        )
        if known and times and not experience
        else None,
        "causes": causes_summary(
            find_causes(
                collectives,
                times,
                network if known else None,
                _events(folder / "events.jsonl"),
                throttled_s,
                slow_start=slow_start,
            ),
            _wall_s(times),
        )
        if not experience
        else [],
        "seconds": bucket_seconds(ends, collectives),
        # A restarted rank counts from 0 again; for actors the learner's figures are used.
        "environments": None if experience else environment_summary(told),
        "experience": experience,
    }


def _rank_times(folder: Path, ends: Ends, collectives: Sequence[Collective]) -> list[RankTime]:
    """Return the time lines of the ranks; empty if one has no end, or lacks lines of some of its collectives."""
    times = [rank_time(name, read_events(folder / "metrics" / f"{name}.jsonl")) for name in ends]
    ranks = [one for one in times if one is not None]
    parts = Counter(part.rank for one in collectives for part in one.parts)
    booked = [sum(one.count for one in end.collectives) if end else 0 for end in ends.values()]
    if len(ranks) < len(times) or [parts[rank] for rank in range(len(times))] != booked:
        return []
    return ranks


def _wall_s(ranks: Sequence[RankTime]) -> float:
    return max((r.end for r in ranks), default=0.0) - min((r.start for r in ranks), default=0.0)


def _events(path: Path) -> list[Interval]:
    """Return the schedule's events; the host itself wrote this file, so it is not checked."""
    if not path.is_file():
        return []
    return parse_events(map(json.loads, path.read_text(encoding="utf-8").splitlines()))


def _receipts(folder: Path, ranks: Sequence[str], ends: Ends) -> dict[int, dict[int, Receipt]]:
    """Return when weights arrived at which actor, if they are broadcast; else nothing."""
    end = ends[ranks[0]] if ranks else None
    if end is None or end.experience is None or end.experience.pull_every:
        return {}
    files = {rank: folder / "metrics" / f"{name}.jsonl" for rank, name in enumerate(ranks) if rank}
    ahead_s = correction_of(read_clocks(folder), ranks[0])
    return receipts_of({rank: _latest_weights(path, ahead_s) for rank, path in files.items()})


def _latest_weights(path: Path, ahead_s: float) -> list[Weights]:
    """Return the `weights` lines since the rank's last start; the learner's clock is ahead by `ahead_s`."""
    lines: list[Weights] = []
    for line in read_events(path):
        if isinstance(line, Start):
            lines = []
        elif isinstance(line, Weights):
            lines.append(line._replace(published_at_s=line.published_at_s - ahead_s))
    return lines


def environment_summary(told: Told) -> dict[str, Any] | None:
    """Return the environment steps of all ranks, and their rate from when ranks were ready until all was done.

    The rate is None if a rank did not reach its end, or the run resumed another, whose steps count, too.
    """
    rollouts = [lines.rollout for lines in told.values() if lines.rollout]
    if not rollouts:
        return None
    steps = sum(line.env_steps for line in rollouts)
    ends = [lines.end.time for lines in told.values() if lines.end]
    starts = [lines.start for lines in told.values() if lines.start]
    whole = len(ends) == len(starts) == len(told) and not any(map(_goes_on, starts))
    seconds = max(ends) - min(line.time for line in starts) if whole else 0.0
    return {"steps": steps, "steps_s": round(steps / seconds, 1) if seconds > 0 else None}


def _goes_on(start: Start) -> bool:
    return start.config is not None and start.config.get("resume") is not None


def byte_summary(
    carried: Mapping[str, int], sent: Sequence[Sent], tests: Sequence[Sent], paths: Paths
) -> dict[str, Any]:
    """Return the bytes of a run: what the links carried, next to what the collectives should send.

    Args:
        carried: 'node1->node2' -> bytes by the kernel's counters, headers included; empty if they were not read.
        sent: what the ranks report to have sent; if empty, nothing is expected.
        tests: the part of it that was for tests.
        paths: the links on the path from each node to each other.
    """
    expected = expected_by_link(sent, paths) if sent else None
    expected_bytes = sum(expected.values()) if expected else None
    for_tests = expected_by_link(tests, paths)
    total = sum(carried.values()) if carried else None
    ratio = round(total / expected_bytes, 4) if total is not None and expected_bytes else None
    return {
        "total": total,
        "links": dict(carried),
        "payload": sum(one.payload for one in sent) if sent else None,
        "expected": expected_bytes,
        "tests": None if for_tests is None else sum(for_tests.values()),
        "measured_over_expected": ratio,
    }
