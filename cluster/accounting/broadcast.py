"""Broadcasts of weights, held against what the links allow: the alpha-beta model of a pipelined chain or tree. Pure.

A version goes out in shards; a rank passes each on as it comes. With links alike a chain of d hops takes
P/B · (1 + (d - 1)/s) + d · delay for P bytes in s shards; here the same shard by shard, as links are not alike. What
several transfers share (the learner's uplink, in a star) carries no more than its rate: that is a second bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cluster.accounting.bounds import Network

LEARNER = 0
MOST_STEPS = 1_000_000  # of bounds, each a shard on a link: a second


@dataclass(frozen=True)
class Receipt:
    """A version's arrival at one rank.

    Attributes:
        source: the rank that it came from.
        asked_at_s: when this rank was there to get it, Unix time, as are the others.
        published_at_s: when the learner had it.
        received_at_s: when all of it was there.
    """

    source: int
    shards: int
    bytes: int
    asked_at_s: float
    published_at_s: float
    received_at_s: float


Receipts = Mapping[int, Receipt]
"""Of one version, by rank."""


def arrivals_s(
    parents: Mapping[int, int], size: int, shards: int, network: Network
) -> dict[int, float]:
    """When each rank has all of a version at best, from when the learner begins; nothing where a route is missing.

    Args:
        parents: of each rank who sends to it.
        size: payload bytes.
        shards: how many those are cut into.
        network: routes and rates.
    """
    order = _from_the_root(parents)
    if len(order) < len(parents) or any((parents[r], r) not in network.routes for r in order):
        return {}
    heard = {LEARNER: [0.0] * shards}
    for rank in order:
        route = network.routes[parents[rank], rank]
        free, heard[rank] = 0.0, []
        for there_s in heard[parents[rank]]:
            free = max(free, there_s) + size / shards / route.byte_s
            heard[rank].append(free + route.delay_s)
    shared = _shared_ends_s(parents, {r: times[0] for r, times in heard.items()}, size, network)
    return {rank: max(heard[rank][-1], shared[rank]) for rank in order}


def broadcast_summary(
    receipts: Mapping[int, Receipts], actors: Iterable[int], network: Network | None
) -> dict[str, Any]:
    """How long versions took to reach all actors, beside the bound; of those that all of them were waiting for.

    Args:
        receipts: by version, then by rank.
        actors: ranks that a version is to reach.
        network: routes between the ranks; None where nothing is known of them.

    Returns:
        {"versions", "timed", "seconds", "bound_s", "ratio"}: medians; None where there is nothing to tell.
    """
    wanted = set(actors)
    timed = [of for of in receipts.values() if of.keys() >= wanted and _all_waited(of)]
    seconds = [_seconds(of) for of in timed]
    bounds = [_bound_s(of, network) for of in _affordable(timed)] if network else []
    known = [(s, bound) for s, bound in zip(seconds, bounds, strict=False) if bound]
    return {
        "versions": len(receipts),
        "timed": len(timed),
        "seconds": _median(seconds),
        "bound_s": _median([bound for _, bound in known]),
        "ratio": _median([s / bound for s, bound in known]),
    }


def read_receipts(
    lines: Mapping[int, Iterable[Mapping[str, Any]]],
) -> dict[int, dict[int, Receipt]]:
    """Receipts by version, then by rank, from the `weights` lines of each rank's metrics."""
    receipts: dict[int, dict[int, Receipt]] = {}
    for rank, of_rank in lines.items():
        for line in of_rank:
            own = {name: line[name] for name in Receipt.__dataclass_fields__}
            receipts.setdefault(line["version"], {})[rank] = Receipt(**own)
    return receipts


def _all_waited(receipts: Receipts) -> bool:
    """Else it was late because what came before it was."""
    return all(one.asked_at_s <= one.published_at_s for one in receipts.values())


def _affordable(timed: Sequence[Receipts]) -> Iterator[Receipts]:
    """Those that the bounds of can be had for."""
    steps = 0
    for receipts in timed:
        steps += sum(one.shards for one in receipts.values())
        if steps > MOST_STEPS:
            return
        yield receipts


def _seconds(receipts: Receipts) -> float:
    return max(one.received_at_s - one.published_at_s for one in receipts.values())


def _bound_s(receipts: Receipts, network: Network) -> float | None:
    parents = {rank: one.source for rank, one in receipts.items()}
    size, shards = (
        max(getattr(one, name) for one in receipts.values()) for name in ("bytes", "shards")
    )
    return max(arrivals_s(parents, size, shards, network).values(), default=None)


def _from_the_root(parents: Mapping[int, int]) -> list[int]:
    """Each rank after who sends to it; those that nothing leads to are left out."""
    order: list[int] = []
    level: Sequence[int] = [LEARNER]
    while level:
        level = [rank for rank, parent in parents.items() if parent in level and rank not in order]
        order += level
    return order


def _shared_ends_s(
    parents: Mapping[int, int], begins_s: Mapping[int, float], size: int, network: Network
) -> dict[int, float]:
    """For each rank when the last byte can have come through what has most to carry on its route."""
    users: dict[str, list[int]] = {}
    for rank, parent in parents.items():
        for carrier in network.routes[parent, rank].carriers:
            users.setdefault(carrier, []).append(rank)
    ends = dict.fromkeys(parents, 0.0)
    for carrier, ranks in users.items():
        began = min(begins_s[parents[rank]] for rank in ranks)
        delay_s = min(network.routes[parents[rank], rank].delay_s for rank in ranks)
        end = began + len(ranks) * size / network.byte_s[carrier] + delay_s
        ends |= {rank: max(ends[rank], end) for rank in ranks}
    return ends


def _median(values: Sequence[float]) -> float | None:
    return round(median(values), 4) if values else None
