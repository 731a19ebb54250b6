"""Statistics of a run's collectives: bytes and seconds, from metrics that the ranks wrote and the links they used.

They are `bytes.loop` and `collectives` of summary.json, and the buckets `transfer` and `waiting`, which replace the
ranks' own `comm`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.accounting.bounds import Network, bound_s
from cluster.accounting.collectives import Collective, Part, by_key, make_part, put_together
from cluster.accounting.links_bound import Reach, links_bound_s, reach_of
from cluster.accounting.metrics import read_parts
from cluster.accounting.wire_bytes import Sent, reconcile_links, sent_by
from protocol.collectives import CollectiveLine
from protocol.link import Pair
from protocol.metrics import End, Start

Ends = Mapping[str, End | None]
"""Rank name -> its last line, None if it did not come that far; in rank order."""
SumKey = tuple[str, str, int | None]
"""Kind, purpose, and size; None for all sizes together, if they vary."""
MOST_BOUNDS = 1000  # per kind, purpose and size
MOST_STEPS = 5_000_000  # messages of all ranks for which bounds are computed, shared by all kinds: some seconds


def read_collectives(
    folder: Path, ranks: Sequence[str], addresses: Sequence[str] = ()
) -> list[Collective]:
    """Read the lines that the ranks left of their collectives; a line that a killed rank did not finish is skipped.

    `ranks` are names; `addresses` are those of their nodes, by rank: with them, the lines' TCP state is read, too.
    """
    return put_together(read_own_parts(folder, ranks, addresses))


def read_own_parts(
    folder: Path, ranks: Sequence[str], addresses: Sequence[str] = ()
) -> list[list[Part]]:
    """Read each rank's parts in collectives, as `read_collectives` does, without joining them."""
    parts: list[list[Part]] = []
    for rank, name in enumerate(ranks):
        lines = read_parts(folder / "metrics" / f"{name}.collectives.jsonl")
        known = (line for line in lines if _is_among(line, len(ranks)))
        parts.append([make_part(rank, line, addresses) for line in known])
    return parts


def _is_among(line: CollectiveLine, world_size: int) -> bool:
    """Return whether a line names only ranks that exist; a hostile one could name millions."""
    return all(peer < world_size for peer in (*line.to, *line.sources))


def bucket_seconds(ends: Ends, collectives: Sequence[Collective]) -> dict[str, dict[str, float]]:
    """Return the seconds by bucket of each rank that wrote its last line: `comm` as `transfer` and `waiting`.

    For collectives beyond those that have a line of their own, the same share counts as waiting. What a learner or an
    actor itself booked as `waiting` is added: its messages have no lines.
    """
    waiting_s, waited_s = _waits(collectives)
    buckets = {}
    for rank, (name, end) in enumerate(ends.items()):
        if end is not None and end.seconds is not None:
            booked_s = sum(one.waited_s for one in end.collectives if one.purpose != "eval")
            share = waiting_s.get(rank, 0.0) / waited_s[rank] if waited_s.get(rank) else 0.0
            buckets[name] = _split_comm(end.seconds, booked_s * share)
    return buckets


def collective_rows(
    collectives: Sequence[Collective],
    ends: Ends,
    network: Network | None,
) -> list[dict[str, Any]]:
    """Return one row for each kind, purpose and size, or for all that vary in size: count, time, and the bounds on it.

    Returns:
        {"kind", "purpose", "bytes", "sizes_vary", "count", "timed", "bounded", "seconds", "gloo_bound_s",
        "links_bound_s", "ratio"}, those with most seconds in total first. `bytes` is the mean if sizes vary. Seconds
        are means over the `timed`, from the last rank's arrival until the last is done: as measured, at best with
        gloo's algorithm, at best with any; `ratio` is the first over the second. The bounds and the ratio are those of
        `bounded` of them, evenly spaced.
    """
    reach = reach_of(network) if network else None
    counts, groups = _counts(ends), by_key(collectives)
    each = MOST_STEPS // max(1, len(groups))
    rows = [
        dict(zip(("kind", "purpose", "bytes"), key, strict=True))
        | {"sizes_vary": group[0].parts[0].sizes_vary, "count": _count(group, counts)}
        | _times(group, network, reach, each)
        for key, group in groups.items()
    ]
    return sorted(rows, key=lambda row: -(row["seconds"] or 0.0) * row["count"])


def loop_bytes(
    starts: Mapping[str, Start | None],
    ends: Ends,
    nodes: Sequence[str],
    paths: Mapping[Pair, Sequence[Pair]],
    lossy: Collection[str] = (),
) -> dict[str, object] | None:
    """Return what the links carried between the ranks' own readings at the start and the end of their loops.

    Returns None if a rank left no reading, or nothing is shaped. Ranks of one node share its links: the first reading
    at the start and the last at the end count.
    """
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for node, name in zip(nodes, ends, strict=True):
        start, end = starts[name], ends[name]
        if not (start and end and start.link_bytes and end.link_bytes):
            return None
        for peer, count in end.link_bytes.items():
            link = f"{node}->{peer}"
            before[link] = min(start.link_bytes.get(peer, 0), before.get(link, count))
            after[link] = max(count, after.get(link, 0))
    carried = {link: count - before[link] for link, count in after.items()}
    return reconcile_links(carried, all_sent(ends, nodes), paths, lossy) or None


def all_sent(ends: Ends, nodes: Sequence[str], purpose: str = "") -> list[Sent]:
    """Return what all ranks report to have sent to other nodes; traffic within a node uses no link.

    Args:
        ends: of the ranks, in rank order.
        nodes: the node of each rank.
        purpose: only of collectives for this ("train", "eval" …); empty: of all.
    """
    sent: list[Sent] = []
    for node, end in zip(nodes, ends.values(), strict=True):
        sums = end.collectives if end else ()
        sent += sent_by(nodes, node, [s for s in sums if purpose in ("", s.purpose)])
    return [one for one in sent if one.src != one.dst]


def _waits(collectives: Sequence[Collective]) -> tuple[dict[int, float], dict[int, float]]:
    """Return by rank the seconds of waiting for slower ranks, and for collectives in total; without those of tests."""
    waiting_s: dict[int, float] = {}
    waited_s: dict[int, float] = {}
    for one in (one for one in collectives if not one.tests):
        for part in one.parts:
            waiting_s[part.rank] = waiting_s.get(part.rank, 0.0) + one.waiting_s(part)
            waited_s[part.rank] = waited_s.get(part.rank, 0.0) + part.waited_s
    return waiting_s, waited_s


def _split_comm(seconds: Mapping[str, float], waiting_s: float) -> dict[str, float]:
    """Return the same buckets, with `transfer` and `waiting` instead of `comm`; the rank's own `waiting` is added."""
    split: dict[str, float] = {}
    for name, value in seconds.items():
        parts = {"transfer": value - waiting_s, "waiting": waiting_s}
        for part, s in (parts if name == "comm" else {name: value}).items():
            split[part] = split.get(part, 0.0) + s
    return split


def _sum_key(one: Collective) -> SumKey:
    part = one.parts[0]
    return part.kind, part.purpose, None if part.sizes_vary else part.size


def _count(group: Sequence[Collective], counts: Mapping[SumKey, int]) -> int:
    """Return how many there were: as ranks counted them at their ends, at least those that have a line."""
    lines = Counter(part.rank for one in group for part in one.parts)
    return max(counts.get(_sum_key(group[0]), 0), *lines.values())


def _counts(ends: Ends) -> dict[SumKey, int]:
    """Return the largest number of collectives of each kind, purpose and size on any rank."""
    counts: dict[SumKey, int] = {}
    for end in ends.values():
        for one in end.collectives if end else ():
            key = one.kind, one.purpose, None if one.sizes_vary else one.bytes
            counts[key] = max(one.count, counts.get(key, 0))
    return counts


def _times(
    group: Sequence[Collective], network: Network | None, reach: Reach | None, most_steps: int
) -> dict[str, object]:
    timed = [one for one in group if not one.hidden]
    some = _affordable(timed, most_steps) if network else []
    least = [links_bound_s(one, reach) if reach else None for one in some]
    gloo = [_gloo_bound_s(*one, network) for one in zip(some, least, strict=True)]
    both = [
        (_took_s(one), bound) for one, bound in zip(some, gloo, strict=True) if bound is not None
    ]
    total_s, at_best_s = (sum(values) for values in zip(*both, strict=True)) if both else (0.0, 0.0)
    return {
        "timed": len(timed),
        "bounded": len(both),
        "seconds": _mean([_took_s(one) for one in timed]),
        "gloo_bound_s": _mean([bound for _, bound in both]),
        "links_bound_s": _mean([bound for bound in least if bound is not None]),
        "ratio": round(total_s / at_best_s, 4) if at_best_s else None,
    }


def _affordable(timed: Sequence[Collective], most_steps: int) -> Sequence[Collective]:
    """Return evenly spaced collectives whose bounds take so many steps at most; none if one alone exceeds that."""
    steps = max((one.replay_steps + len(one.parts) ** 2 for one in timed), default=1)
    most = min(MOST_BOUNDS, most_steps // steps)
    return timed[:: -(-len(timed) // most)] if most and timed else ()


def _took_s(one: Collective) -> float:
    return max(part.ended for part in one.parts) - one.complete_at


def _gloo_bound_s(one: Collective, least_s: float | None, network: Network | None) -> float | None:
    """Return gloo's bound, at least `least_s`: for tensors of a few bytes the links' bound is the larger one."""
    bound = bound_s(one, network) if network else None
    return None if bound is None else max(bound, least_s or 0.0)


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None
