"""The environment of a rank: torchrun's, and which ranks it has a link to."""

import pytest

from cluster.ranks import rank_environment
from cluster.spec import ClusterSpec
from cluster.wanted import make_wanted

NODES = ClusterSpec(size=4).nodes


@pytest.mark.parametrize(
    ("topology", "neighbours"),
    [
        ("full", ["1,2,3", "0,2,3", "0,1,3", "0,1,2"]),
        ("ring", ["1,3", "0,2", "1,3", "0,2"]),
        ("star", ["1,2,3", "0", "0", "0"]),
    ],
)
def test_a_rank_knows_its_neighbours(topology, neighbours):
    links = make_wanted("mobile", topology, 1, "auto").links(NODES)
    environments = [rank_environment(n, NODES, links, "run", "/run", 60) for n in NODES]
    assert [e["GRADWIRE_NEIGHBOURS"] for e in environments] == neighbours
    assert [(e["RANK"], e["WORLD_SIZE"]) for e in environments] == [(str(r), "4") for r in range(4)]


def test_without_links_nobody_says_which_there_are():
    assert rank_environment(NODES[0], NODES, (), "run", "/run", 60)["GRADWIRE_NEIGHBOURS"] == ""
