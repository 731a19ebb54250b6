"""What a measurement holds its findings against, whatever part of it is measured again."""

from types import SimpleNamespace

import pytest

from cluster.contract import measure
from cluster.contract.expected import Asked
from cluster.contract.measured import Measured
from cluster.contract.probes import EFFORTS
from cluster.links import Link

THERE = Link("node4", "node2", 5.0, 1.0, 0.0, 0.0, 40.0)
BACK = Link("node2", "node4", 5.0, 4.0, 0.0, 0.0, 40.0)


@pytest.fixture
def survey(monkeypatch):
    """Of a pair of nodes without a link, whose pings take 5 ms."""

    def ping_links(prober, links, asked, effort, apart):
        assert set(asked) == {THERE, BACK}
        return {(link.src, link.dst): Measured(5.0, 0.0, 60, 60, 60, 0) for link in links}

    monkeypatch.setattr(measure, "ping_links", ping_links)
    nodes = SimpleNamespace(nodes=["node2", "node4"])
    return measure._Survey(nodes, Asked(()), (THERE, BACK), EFFORTS["normal"], None, print)


@pytest.mark.parametrize("links", [[THERE, BACK], [THERE], [BACK]])
def test_a_path_has_two_directions_also_where_one_is_measured_again(survey, links):
    """With one of them alone, half of a round trip was expected: a path that was doubtful once stayed broken."""
    for verdict in survey.paths(measure._Look(links)):
        assert verdict.expected_rtt_ms == 5.0
        assert verdict.broken == ()
