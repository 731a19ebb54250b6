"""What holds a rank on its node: whose the node is."""

import pytest

from node import rank


@pytest.fixture(autouse=True)
def no_folders(monkeypatch, tmp_path):
    monkeypatch.setattr(rank, "RUN_FOLDERS", (tmp_path / "runs",))


def test_ranks_of_one_run_share_a_node_and_another_run_does_not_get_it(tmp_path):
    path = tmp_path / "lock"
    with path.open("a+") as first, path.open("a+") as second:
        assert rank.take_node(first, "run-a") == "run-a"
        assert rank.take_node(second, "run-a") == "run-a"
        with path.open("a+") as other:
            assert rank.take_node(other, "run-b") == "run-a"
    with path.open("a+") as other:
        assert rank.take_node(other, "run-b") == "run-b"


def test_the_first_rank_of_a_run_forgets_other_runs_and_those_after_it_do_not(tmp_path):
    old, own = tmp_path / "runs" / "run-a", tmp_path / "runs" / "run-b"
    old.mkdir(parents=True)
    own.mkdir()
    with (tmp_path / "lock").open("a+") as first, (tmp_path / "lock").open("a+") as second:
        rank.take_node(first, "run-b")
        assert (old.exists(), own.exists()) == (False, True)
        old.mkdir()
        rank.take_node(second, "run-b")
        assert old.exists()
