"""Which rank sends to which in a gossip step, and how the receiver weighs what it gets: pure functions.

A graph is a sequence of sets: the ranks to which each rank sends.
"""

from collections.abc import Sequence

Graph = Sequence[frozenset[int]]


def complete(size: int) -> Graph:
    """Return the graph in which every rank sends to all others."""
    return [frozenset(range(size)) - {rank} for rank in range(size)]


def ring(size: int) -> Graph:
    """Return the graph in which every rank sends to the one before and the one after it."""
    return [frozenset({(r - 1) % size, (r + 1) % size}) - {r} for r in range(size)]


def exponential(size: int, step: int) -> Graph:
    """Return the graph in which every rank sends to one, a power of two away; the next power each step (SGP)."""
    powers = max(1, (size - 1).bit_length())
    distance = 2 ** ((step - 1) % powers)
    return [frozenset({(rank + distance) % size}) - {rank} for rank in range(size)]


def senders(graph: Graph, rank: int) -> list[int]:
    """Return the ranks that send to this one."""
    return [other for other, receivers in enumerate(graph) if rank in receivers]


def weights(graph: Graph, rank: int, *, push_sum: bool) -> dict[int, float]:
    """Return the weight of each rank's parameters in this rank's mix, its own included.

    With push-sum, a sender splits its parameters equally between its receivers and itself: the weights of one sender
    sum to 1. Otherwise weights are those of Metropolis and Hastings (Xiao and Boyd, 2004): if links go both ways, the
    weights of one sender and those of one receiver both sum to 1.
    """
    degrees = [len(receivers) for receivers in graph]
    if push_sum:
        return {r: 1 / (1 + degrees[r]) for r in [rank, *senders(graph, rank)]}
    mix = {r: 1 / (1 + max(degrees[r], degrees[rank])) for r in senders(graph, rank)}
    return {rank: 1 - sum(mix.values()), **mix}
