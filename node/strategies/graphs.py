"""Who sends to whom in a gossip step, and what the receiver makes of it: pure functions.

A graph is the ranks to which each rank sends: a sequence of sets.
"""

from collections.abc import Sequence

Graph = Sequence[frozenset[int]]


def complete(size: int) -> Graph:
    """Everyone to everyone."""
    return [frozenset(range(size)) - {rank} for rank in range(size)]


def ring(size: int) -> Graph:
    """Everyone to the one before and the one after."""
    return [frozenset({(r - 1) % size, (r + 1) % size}) - {r} for r in range(size)]


def exponential(size: int, step: int) -> Graph:
    """Everyone to one, at the distance of a power of two, the next one each step (SGP's graph)."""
    powers = max(1, (size - 1).bit_length())
    distance = 2 ** ((step - 1) % powers)
    return [frozenset({(rank + distance) % size}) - {rank} for rank in range(size)]


def senders(graph: Graph, rank: int) -> list[int]:
    """The ranks that send to this one."""
    return [other for other, receivers in enumerate(graph) if rank in receivers]


def weights(graph: Graph, rank: int, *, push_sum: bool) -> dict[int, float]:
    """What each rank's parameters count for in this one's mix; its own are among them.

    With push-sum a sender's are cut into equal parts, for its receivers and itself: what one hands
    out sums to 1. Otherwise by Metropolis and Hastings (Xiao and Boyd, 2004): where links go both
    ways, what one hands out and what one takes in both sum to 1.
    """
    degrees = [len(receivers) for receivers in graph]
    if push_sum:
        return {r: 1 / (1 + degrees[r]) for r in [rank, *senders(graph, rank)]}
    mix = {r: 1 / (1 + max(degrees[r], degrees[rank])) for r in senders(graph, rank)}
    return {rank: 1 - sum(mix.values()), **mix}
