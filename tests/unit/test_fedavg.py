"""Which ranks FedAvg averages in a round."""

from types import SimpleNamespace

import pytest

from node.strategies.fedavg import FedAvg


@pytest.mark.parametrize(
    ("fraction", "ranks", "averaged"),
    [(0.5, 5, 3), (0.5, 3, 2), (0.5, 4, 2), (0.3, 5, 2), (0.1, 3, 1)],
)
def test_a_fraction_of_half_a_rank_more_is_one_rank_more(fraction, ranks, averaged):
    """Python's round() takes the even number: 2 for 2.5 as well as for 1.5."""
    strategy = FedAvg(fraction=fraction)
    strategy.seed, strategy.comm = 1, SimpleNamespace(rank=0, world_size=ranks)
    members, receivers = strategy._circle(1)
    assert (len(members), len(receivers)) == (averaged, ranks)
