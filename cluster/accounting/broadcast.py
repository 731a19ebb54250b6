"""Broadcasts of weights, compared with what links allow: the alpha-beta model of a pipelined chain or tree. Pure.

A version is sent in shards; a rank forwards each as it arrives. With equal links and shards, a chain of d hops takes
P/B · (1 + (d - 1)/s) + d · delay for P bytes in s shards; here the same is computed shard by shard, as links differ and
the last shard is shorter. A carrier that several transfers share (the learner's uplink, in a star) carries no more than
its rate: that is a second bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cluster.accounting.bounds import Network
from protocol.metrics import Weights

LEARNER = 0
SHARD_BYTES = 65_536  # node/transport/shards.py
MOST_STEPS = 1_000_000  # budget of all bounds, in shards times links: a second


@dataclass(frozen=True)
class Receipt:
    """A version's arrival at one rank.

    Attributes:
        source: the rank that sent it.
        bytes: payload; fewer for a delta than for all weights.
        waited: whether this rank was waiting for it when it was published.
        published_at_s: when the learner had it, Unix time.
        received_at_s: when all of it had arrived, Unix time.
    """

    source: int
    bytes: int
    waited: bool
    published_at_s: float
    received_at_s: float


Receipts = Mapping[int, Receipt]
"""Receipts of one version, by rank."""


def arrivals_s(parents: Mapping[int, int], size: int, network: Network) -> dict[int, float]:
    """Return when each rank can have all of a version, in seconds from the learner's start; {} if a route is missing.

    Args:
        parents: rank -> the rank that sends to it.
        size: payload bytes.
        network: routes and rates.
    """
    order = _from_the_root(parents)
    if len(order) < len(parents) or any((parents[r], r) not in network.routes for r in order):
        return {}
    shards = _shards(size)
    heard = {LEARNER: [0.0] * len(shards)}
    for rank in order:
        route = network.routes[parents[rank], rank]
        free, heard[rank] = 0.0, []
        for shard, there_s in zip(shards, heard[parents[rank]], strict=True):
            free = max(free, there_s) + shard / route.byte_s
            heard[rank].append(free + route.delay_s)
    shared = _shared_ends_s(parents, {r: times[0] for r, times in heard.items()}, size, network)
    return {rank: max(heard[rank][-1], shared[rank]) for rank in order}


def cycles_s(parents: Mapping[int, int], size: int, network: Network) -> dict[int, float]:
    """Return how soon the next version can follow to each rank, which the slowest hop on its path decides.

    Each rank requests the next version when it has all of one: a hop takes the request's delay plus the transfer.

    Args:
        parents: rank -> the rank that sends to it; all must be reachable from the learner.
        size: payload bytes.
        network: with all their routes.
    """
    cycles = {LEARNER: 0.0}
    for rank in _from_the_root(parents):
        pair = parents[rank], rank
        route, back = network.routes[pair], network.routes.get(pair[::-1])
        shared_s = [
            size * users / network.byte_s[carrier]
            for carrier in route.carriers
            if (users := _users(parents, carrier, network))
        ]
        hop_s = max([size / route.byte_s, *shared_s]) + route.delay_s
        cycles[rank] = max(cycles[parents[rank]], hop_s + (back.delay_s if back else route.delay_s))
    del cycles[LEARNER]
    return cycles


def broadcast_summary(
    receipts: Mapping[int, Receipts], actors: Iterable[int], network: Network | None
) -> dict[str, object]:
    """Return how long versions took to reach all actors, next to the bound; only versions that all actors waited for.

    Args:
        receipts: by version, then by rank.
        actors: the ranks that each version must reach.
        network: routes between the ranks; None if unknown.

    Returns:
        {"versions", "timed", "seconds", "bound_s", "ratio"}: medians; None if there is no value.
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


def receipts_of(lines: Mapping[int, Iterable[Weights]]) -> dict[int, dict[int, Receipt]]:
    """Return receipts by version, then by rank, from the `weights` lines of each rank's metrics."""
    receipts: dict[int, dict[int, Receipt]] = {}
    for rank, of_rank in lines.items():
        for line in of_rank:
            receipts.setdefault(line.version, {})[rank] = Receipt(
                line.source, line.bytes, line.waited, line.published_at_s, line.received_at_s
            )
    return receipts


def parents_and_size(receipts: Receipts) -> tuple[dict[int, int], int]:
    """Return each rank's sender, and the version's bytes: a delta's if some ranks got all weights, others a delta."""
    parents = {rank: one.source for rank, one in receipts.items()}
    return parents, min(one.bytes for one in receipts.values())


def _shards(size: int) -> list[int]:
    whole, rest = divmod(size, SHARD_BYTES)
    return [SHARD_BYTES] * whole + ([rest] if rest else [])


def _users(parents: Mapping[int, int], carrier: str, network: Network) -> int:
    """Return the number of transfers that use a carrier at once."""
    pairs = ((parent, rank) for rank, parent in parents.items())
    return sum(carrier in network.routes[pair].carriers for pair in pairs)


def _all_waited(receipts: Receipts) -> bool:
    """Return whether all ranks waited; otherwise it was late because the version before it was."""
    return all(one.waited for one in receipts.values())


def _affordable(timed: Sequence[Receipts]) -> Iterator[Receipts]:
    """Yield the receipts whose bounds fit into the budget."""
    steps = 0
    for receipts in timed:
        steps += (parents_and_size(receipts)[1] // SHARD_BYTES + 1) * len(receipts)
        if steps > MOST_STEPS:
            return
        yield receipts


def _seconds(receipts: Receipts) -> float:
    return max(one.received_at_s - one.published_at_s for one in receipts.values())


def _bound_s(receipts: Receipts, network: Network) -> float | None:
    return max(arrivals_s(*parents_and_size(receipts), network).values(), default=None)


def _from_the_root(parents: Mapping[int, int]) -> list[int]:
    """Return the ranks so that each follows its sender; unreachable ranks are left out."""
    order: list[int] = []
    level: Sequence[int] = [LEARNER]
    while level:
        level = [rank for rank, parent in parents.items() if parent in level and rank not in order]
        order += level
    return order


def _shared_ends_s(
    parents: Mapping[int, int], begins_s: Mapping[int, float], size: int, network: Network
) -> dict[int, float]:
    """Return, for each rank, when the last byte can have passed the busiest carrier on its route."""
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
