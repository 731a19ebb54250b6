"""From Python: what is natural in a notebook is taken, and what cannot be is refused in one line, before any start."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from past_runs import write_run

from cluster import Cluster, api, load_experiment, make_link_spec, training, user_program
from cluster.base.errors import ClusterError, UsageError
from cluster.links.changes import LONGEST_S
from cluster.run import runner
from cluster.run.past_run import read_past_launch

SEEDS = ["7", 1.5, None, True, 2**31, -(2**31), 10**40]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "x.py"
    path.touch()
    return path


def test_a_profile_and_a_topology_may_be_paths(tmp_path):
    near, line = tmp_path / "near.yml", tmp_path / "line.yml"
    near.write_text("rate_mbyte_s: 6\ndelay_ms: 2\n")
    line.write_text("links:\n- ends: [node1, node2]\n")
    asked = Cluster("t-python", profile=near, topology=line).request.link_spec
    assert asked == make_link_spec(str(near), str(line), 1, "auto")
    assert (asked.profile.name, asked.topology.name) == ("near", "line")
    assert Cluster("t-python", profile=Path("wan")).request.link_spec.profile.name == "wan"


def test_numbers_and_paths_among_words_are_taken_as_text(script):
    own = user_program([script, "--epochs", 3, "--lr", 0.1])
    assert own == user_program([str(script), "--epochs", "3", "--lr", "0.1"])
    assert training(["--steps", 40]) == training(("--steps", "40"))


@pytest.mark.parametrize(
    "words", ["x.py", b"x.py", 3, None, {"x.py"}, ["x.py", None], ["x.py", ["a"]]]
)
def test_what_is_no_list_of_words_is_refused(words):
    for make in (user_program, training):
        with pytest.raises(UsageError, match="no (list of words|word of a command)"):
            make(words)


def test_no_words_are_no_program_of_ones_own():
    with pytest.raises(UsageError, match="no program"):
        user_program([])


@pytest.mark.parametrize("nodes", ["3", 3.0, True, [3]])
def test_a_number_of_nodes_is_whole(nodes):
    with pytest.raises(UsageError, match="nodes is .*"):
        Cluster("t-python", nodes=nodes)
    with pytest.raises(UsageError, match="slot is .*"):
        Cluster("t-python", slot=nodes)


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_a_seed_of_links_is_a_whole_number_of_the_nodes(seed):
    with pytest.raises(UsageError, match="link seed is "):
        make_link_spec("wan", "full", seed, "auto")


def test_a_seed_may_be_as_large_as_in_a_file():
    for seed in (2**31 - 1, -(2**31) + 1):
        assert make_link_spec("wan", "full", seed, "auto").seed == seed


@pytest.mark.parametrize("name", ["-x.yml", "--help", "-f"])
def test_a_name_of_a_file_is_no_flag(name):
    with pytest.raises(UsageError, match=f"cannot read {name}: No such file"):
        load_experiment(name)


@pytest.fixture
def up(monkeypatch):
    """A function that makes a cluster seem to be up, with these links and limits; a launch returns its experiment."""
    monkeypatch.setattr(runner, "run_program", lambda *args: args[4])

    def up(cluster, spec, links=(), limits=None):
        monkeypatch.setattr(Cluster, "engine", None)
        monkeypatch.setattr(Cluster, "fleet", None)
        cluster.alone, cluster._spec = nullcontext(), spec
        monkeypatch.setattr(cluster, "settle", lambda: SimpleNamespace(links=links))
        found = SimpleNamespace(document=lambda: limits or {})
        monkeypatch.setattr(api, "CpuLimits", lambda engine, name: found)
        return cluster

    return up


@pytest.mark.parametrize("seconds", [-5, 0.1, math.nan, math.inf, "60", True, LONGEST_S * 2])
def test_a_time_after_which_nothing_can_have_stalled_is_refused(seconds):
    with pytest.raises(UsageError, match="stall_timeout_s is "):
        Cluster("t-python").launch(training([]), stall_timeout_s=seconds)


@pytest.mark.parametrize("seconds", [None, 0, 3, 60, LONGEST_S])
def test_a_time_that_the_flag_takes_is_taken(up, seconds):
    own = Cluster("t-python")
    ran = up(own, own.request.spec(None, ())).launch(training([]), stall_timeout_s=seconds)
    assert ran.stall_timeout_s == seconds


@pytest.fixture
def unshaped(tmp_path):
    """The folder of a run without links and without limits."""
    folder = write_run(tmp_path / "run")
    (folder / "links.json").write_text("[]")
    return folder


@pytest.mark.parametrize(
    ("links", "limits", "words"),
    [(True, {}, "other links than the run had"), ((), {"node1": {"cpus": 1}}, "may use more")],
)
def test_a_run_is_not_repeated_on_a_cluster_that_is_not_the_runs(
    tmp_path, up, unshaped, links, limits, words
):
    again, spec = load_experiment(unshaped), read_past_launch(unshaped).spec
    shaped = read_past_launch(write_run(tmp_path / "shaped")).links if links else ()
    assert up(Cluster.of(again), spec).launch(again) == again
    with pytest.raises(ClusterError, match=f"cluster 'lab' is up, and has .*{words}"):
        up(Cluster.of(again), spec, shaped, limits).launch(again)
    named = replace(again, request=replace(again.request, name="other"))
    with pytest.raises(ClusterError, match=words):
        up(Cluster.of(named), replace(spec, name="other"), shaped, limits).launch(named)


def test_a_run_may_be_repeated_on_other_links_if_that_is_said(tmp_path, up, unshaped):
    again, spec = load_experiment(unshaped), read_past_launch(unshaped).spec
    links = read_past_launch(write_run(tmp_path / "shaped")).links
    wide = make_link_spec("wan", "full", 1, "auto")
    other = replace(again, request=replace(again.request, link_spec=wide))
    assert up(Cluster.of(other), spec, links).launch(other) == other
    free = replace(again, run=None)
    assert up(Cluster.of(free), spec, links).launch(free) == free
