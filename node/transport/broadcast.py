"""Topologies of a broadcast: which rank gets weights from which. Pure."""

from collections.abc import Iterable, Mapping

LEARNER = 0
CHILDREN = {"chain": 1, "tree": 2}
"""The number of ranks that each rank sends to, by topology; in a star, the learner sends to all."""


def parents(topology: str, actors: Iterable[int]) -> Mapping[int, int]:
    """Return the rank that sends weights to each of these actors: a heap in order of rank, with the learner as root.

    Args:
        topology: star, chain or tree (of two children).
        actors: ranks of the actors that are there.
    """
    if topology not in CHILDREN:
        return dict.fromkeys(actors, LEARNER)
    order = [LEARNER, *sorted(actors)]
    children = CHILDREN[topology]
    return {rank: order[(place - 1) // children] for place, rank in enumerate(order) if place}
