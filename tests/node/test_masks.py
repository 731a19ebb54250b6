"""Tests of which parameters sparta averages in a step."""

import math

import pytest
import torch

from node.strategies.masks import Masks


@pytest.mark.parametrize(("size", "p"), [(1000, 0.3), (1003, 0.1), (7, 0.06), (10, 1.0)])
def test_a_partition_is_cut_into_equal_parts(size, p):
    masks, draws = Masks(size, p, "partition", seed=1), math.ceil(round(1 / p, 6))
    parts = [masks.draw(step) for step in range(1, draws + 1)]
    order = torch.cat(parts)
    assert sorted(order.tolist()) == list(range(size))
    assert all(map(torch.equal, parts, order.tensor_split(draws)))
    assert not torch.equal(torch.cat([masks.draw(draws + 1 + n) for n in range(draws)]), order)


def test_a_small_share_of_a_partition_costs_no_more_than_a_large_one():
    """Making all of its parts would take gigabytes."""
    masks = Masks(1000, 1e-9, "partition", seed=1)
    assert [len(masks.draw(step)) for step in (1, 1000, 1001)] == [1, 1, 0]
