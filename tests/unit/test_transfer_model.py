"""Samples stand for all collectives that are alike."""

import pytest
from books import mesh, ring

from cluster.accounting.collectives import Collective
from cluster.accounting.transfer_model import take_samples


def alike(count):
    return [
        Collective(tuple(ring(3, 3_000, entered=[10.0 * n] * 3, ended=10.0 * n + 1)))
        for n in range(count)
    ]


def test_the_first_stands_for_itself_as_its_connections_are_new():
    collectives = alike(40)
    (sample,) = take_samples(collectives, mesh(3), most=8)
    assert sample.stands_for[0] == collectives[:1]
    assert sample.collectives[0] is collectives[0]
    assert len(sample.collectives) == 8


@pytest.mark.parametrize("most", [1, 2, 8])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40, 41])
def test_each_is_stood_for_once_by_one_of_its_own(count, most):
    collectives = alike(count)
    (sample,) = take_samples(collectives, mesh(3), most)
    assert [one for some in sample.stands_for for one in some] == collectives
    assert 1 <= len(sample.collectives) <= most
    pairs = zip(sample.collectives, sample.stands_for, strict=True)
    assert all(any(one is other for other in some) for one, some in pairs)
