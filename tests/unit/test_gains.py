"""How much a run can gain from quicker collectives, by hand."""

from dataclasses import replace

import pytest
from books import part, ring

from cluster.accounting.collectives import Collective, put_together
from cluster.accounting.gains import limits_of, most_gained_s


def all_reduce(at, took_s, waits, entered=None):
    """An all-reduce of which each rank waited for the last `waits` seconds."""
    came = entered or [at] * len(waits)
    parts = ring(len(waits), 300, entered=came, ended=max(came) + took_s)
    return Collective(tuple(replace(p, waited_s=s) for p, s in zip(parts, waits, strict=True)))


def gains(*collectives):
    found = most_gained_s(collectives)
    return [pytest.approx(found[id(one)]) for one in collectives]


def test_where_ranks_do_nothing_but_wait_the_whole_transfer_can_be_gained():
    some = [all_reduce(10.0 * n, 4.0, [4.0, 4.0]) for n in range(3)]
    assert gains(*some) == [4.0, 4.0, 4.0]


def test_waiting_for_a_late_rank_is_none_of_the_transfer():
    one = all_reduce(0.0, 4.0, [6.0, 4.0], entered=[0.0, 2.0])
    assert gains(one) == [4.0]


def test_behind_computing_only_what_was_waited_for_can_be_gained():
    assert gains(all_reduce(0.0, 10.2, [0.2, 0.1])) == [0.1]


def test_a_rank_that_does_not_wait_leaves_its_slack_to_be_gained():
    """Rank 1 computes until the first is done, and comes to the second 1.5 s before rank 0."""
    first = all_reduce(0.0, 10.0, [4.0, 0.0])
    second = all_reduce(0.0, 1.0, [1.0, 2.5], entered=[13.5, 12.0])
    assert gains(first, second) == [1.5, 1.0]


def test_the_rank_that_comes_last_decides():
    """Rank 0 waited 4 s for the first, and then came last: without these 4 s rank 1, 3 s ahead, would be last."""
    first = all_reduce(0.0, 10.0, [4.0, 0.0])
    second = all_reduce(0.0, 1.0, [1.0, 4.0], entered=[15.0, 12.0])
    assert gains(first, second)[0] == 3.0


def test_of_an_exchange_no_more_can_be_gained_than_its_rank_waited():
    parts = [[part(r, "exchange", {1 - r: 9}, sources=[1 - r], waited_s=0.25)] for r in range(2)]
    assert gains(*put_together(parts)) == [0.25, 0.25]


def test_a_total_takes_each_up_to_its_limit():
    some = [all_reduce(20.0 * n, 10.0, [s, s]) for n, s in enumerate((3.0, 1.0, 2.0))]
    limits = limits_of(some, most_gained_s(some))
    assert limits.ordered == [1.0, 2.0, 3.0]
    for quicker_s, total_s in ((0.5, 1.5), (1.5, 4.0), (9.0, 6.0), (-1.0, -3.0)):
        assert limits.gained_s(quicker_s) == pytest.approx(total_s)
