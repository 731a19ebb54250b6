"""Placement of ranks, and each rank's environment: torchrun's variables, and the ranks to which it has a link."""

import pytest

from cluster.accounting.routes import make_network
from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import make_link_spec
from cluster.run.rank_placement import (
    fill_arguments,
    place_ranks,
    rank_environment,
    resolve_max_restarts,
)
from cluster.run.run_folder import write_links

NODES = ClusterSpec(size=4).nodes
NAMES = [node.name for node in NODES]


def environments(places, links=()):
    return [
        rank_environment(place, places, links, "run", "/run", 60, silence_s=60) for place in places
    ]


@pytest.mark.parametrize(
    ("topology", "neighbours"),
    [
        ("full", ["1,2,3", "0,2,3", "0,1,3", "0,1,2"]),
        ("ring", ["1,3", "0,2", "1,3", "0,2"]),
        ("star", ["1,2,3", "0", "0", "0"]),
    ],
)
def test_a_rank_knows_its_neighbours(topology, neighbours):
    links = make_link_spec("mobile", topology, 1, "auto").links(NODES)
    environs = environments(place_ranks(NAMES), links)
    assert [e["GRADWIRE_NEIGHBOURS"] for e in environs] == neighbours
    assert [(e["RANK"], e["WORLD_SIZE"]) for e in environs] == [(str(r), "4") for r in range(4)]


def test_without_links_nobody_says_which_there_are():
    for environ in environments(place_ranks(NAMES, 2)):
        assert environ["GRADWIRE_NEIGHBOURS"] == ""


def test_ranks_of_one_node_are_each_others_neighbours():
    links = make_link_spec("mobile", "ring", 1, "auto").links(NODES)
    first = environments(place_ranks(NAMES, 2), links)[0]
    assert first["GRADWIRE_NEIGHBOURS"] == "1,2,3,6,7"


def test_several_ranks_a_node_are_numbered_as_under_torchrun():
    """Numbers and environment are those of `torchrun --nnodes 2 --nproc-per-node 3`."""
    places = place_ranks(NAMES[:2], 3)
    names = [place.name for place in places]
    assert names == ["node1-0", "node1-1", "node1-2", "node2-0", "node2-1", "node2-2"]
    environ = environments(places)[4]
    wanted = {
        "RANK": "4",
        "WORLD_SIZE": "6",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "4",
        "ROLE_WORLD_SIZE": "6",
        "MASTER_ADDR": "node1",
        "OMP_NUM_THREADS": "1",
    }
    assert {key: environ[key] for key in wanted} == wanted
    assert len({one["TORCHELASTIC_ERROR_FILE"] for one in environments(places)}) == 6
    assert places[4].file("metrics.jsonl") == "metrics-rank4.jsonl"


def test_a_nodes_only_rank_has_its_name_and_its_processors():
    [place] = place_ranks(["node1"])
    assert (place.name, place.file("metrics.jsonl")) == ("node1", "metrics.jsonl")
    assert "OMP_NUM_THREADS" not in environments([place])[0]


@pytest.mark.parametrize("number", [-1, 0, 65])
def test_a_number_of_ranks_that_cannot_be_is_refused(number):
    with pytest.raises(UsageError, match=f"{number} ranks a node"):
        place_ranks(NAMES, number)


def test_ranks_that_are_not_essential_are_told_how_often_they_may_be_started_again():
    places = place_ranks(NAMES[:2], 2, essential=[0, 3])
    assert [place.is_essential for place in places] == [True, False, False, True]
    environs = [
        rank_environment(p, places, (), "run", "/run", 60, silence_s=60, max_restarts=5)
        for p in places
    ]
    assert [e["TORCHELASTIC_MAX_RESTARTS"] for e in environs] == ["0", "5", "5", "0"]
    assert {e["TORCHELASTIC_RESTART_COUNT"] for e in environs} == {"0"}
    assert all(place.is_essential for place in place_ranks(NAMES))


def test_an_essential_rank_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="rank 4 is to be essential, and there is none") as refused:
        place_ranks(NAMES, essential=[0, 5, 4])
    assert refused.value.hint == "0 to 3"


@pytest.mark.parametrize(("asked", "times"), [(None, 3), (0, 0), (7, 7)])
def test_how_often_ranks_are_started_again(asked, times):
    assert resolve_max_restarts(asked, place_ranks(NAMES, essential=[0])) == times


def test_where_all_ranks_are_essential_none_is_started_again():
    places = place_ranks(NAMES)
    assert resolve_max_restarts(None, places) == resolve_max_restarts(0, places) == 0
    with pytest.raises(UsageError, match="could not join its process group"):
        resolve_max_restarts(1, places)
    with pytest.raises(UsageError, match="--max-restarts -1"):
        resolve_max_restarts(-1, places)


def test_the_hostfile_says_how_many_ranks_a_node_has(tmp_path):
    write_links(tmp_path, (), place_ranks(NAMES[:2], 4))
    assert (tmp_path / "hostfile").read_text() == "node1 slots=4\nnode2 slots=4\n"


def test_between_ranks_of_one_node_nothing_takes_time():
    links = make_link_spec("mobile", "ring", 1, "auto").links(NODES)
    network = make_network([place.node for place in place_ranks(NAMES, 2)], links, {})
    assert len(network.routes) == 8 * 7
    assert network.routes[0, 1].carriers == ()
    assert network.routes[0, 2] == network.routes[1, 3]
    assert network.routes[0, 4].carriers  # two hops away


def test_arguments_name_the_rank_and_where_all_meet():
    places = place_ranks(["node1", "node2"], 2)
    words = ["t.py", "--rank={rank}/{world_size}", "{local_rank}", "{node}"]
    words.append("tcp://{master_addr}:{master_port}")
    assert fill_arguments(words, places[3], places) == [
        "t.py",
        "--rank=3/4",
        "1",
        "node2",
        "tcp://node1:29500",
    ]


@pytest.mark.parametrize("word", ['{"rank": 1}', "{}", "{ rank }", "{nodes}", "{", "{{a}}"])
def test_other_braces_stay_as_they_are(word):
    places = place_ranks(["node1"])
    assert fill_arguments([word], places[0], places) == [word]
