"""What holds a rank on its node: whose the node is, and what a rank says of its failure."""

import json
import os

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


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"message": "ValueError: out of\ncheese", "extraInfo": {}}, "ValueError: out of cheese"),
        ("a plain one", "a plain one"),
    ],
)
def test_a_rank_failed_when_it_left_word_of_it(tmp_path, message, words):
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": message}))
    os.utime(path, (1000.25, 1000.25))
    assert rank.read_error(path) == {"time": 1000.25, "error": words}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"message": '])
def test_words_that_are_none_say_nothing(tmp_path, text):
    (tmp_path / "error.json").write_text(text)
    assert rank.read_error(tmp_path / "error.json") == {}
    assert rank.read_error(tmp_path / "none.json") == {}
