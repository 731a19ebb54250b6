"""Summaries of ping logs: losses, duplicates, overtaking pings, and the delays of the others."""

from node.probe.pings import overtakers, summarise_arrivals


def log(*numbers):
    return [(number, number / 100, 0.02 + number / 1e4) for number in numbers]


def test_nothing_happened():
    found = summarise_arrivals(log(0, 1, 2))
    assert (found.arrived, found.twice, found.gaps, found.reordered) == (3, 0, 0, 0)
    assert found.sent_ms == [0.0, 10.0, 20.0]
    assert found.one_way_ms == [20.0, 20.1, 20.2]


def test_losses_in_a_row_are_one_gap():
    found = summarise_arrivals(log(2, 3, 7, 8, 10))
    assert (found.arrived, found.gaps) == (5, 3)


def test_a_double_counts_once():
    found = summarise_arrivals(log(0, 1, 1, 2))
    assert (found.arrived, found.twice, found.reordered) == (3, 1, 0)
    assert len(found.one_way_ms) == 3


def test_who_overtakes_tells_nothing_of_the_delay():
    sent = [0.0, 0.04, 0.01, 0.02, 0.03, 0.05]
    assert overtakers(sent) == [False, True, False, False, False, False]
    found = summarise_arrivals(log(0, 4, 1, 2, 3, 5))
    assert (found.arrived, found.reordered, found.gaps) == (6, 1, 0)
    assert found.one_way_ms == [20.0, 20.1, 20.2, 20.3, 20.5]


def test_pings_sent_together_may_be_swapped_by_the_host():
    """They leave on two processors; a link that reorders lets pings overtake others that were sent long before."""
    together = [(0, 0.0, 0.02), (2, 0.01001, 0.02), (1, 0.01, 0.02002), (3, 0.02, 0.02)]
    assert summarise_arrivals(together).reordered == 0
    together[1:3] = [(2, 0.012, 0.01), (1, 0.01, 0.02)]
    assert summarise_arrivals(together).reordered == 1


def test_nothing_came():
    found = summarise_arrivals([])
    assert (found.arrived, found.gaps, found.one_way_ms) == (0, 0, [])
