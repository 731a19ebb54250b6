"""The error file in which a rank reports its own failure, as launchers read it."""

import json
import math
import os

import pytest

from node.supervisor.error_file import read_error


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
    assert read_error(path) == (1000.25, words)


def test_what_a_rank_left_before_it_was_started_again_is_no_word_of_its_new_failure(tmp_path):
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": "ValueError: of old"}))
    os.utime(path, (1000.25, 1000.25))
    assert read_error(path, since=1000.5) == (math.inf, "")
    assert read_error(path, since=1000.0).words == "ValueError: of old"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"message": '])
def test_words_that_are_none_say_nothing(tmp_path, text):
    (tmp_path / "error.json").write_text(text)
    assert read_error(tmp_path / "error.json") == (math.inf, "")
    assert read_error(tmp_path / "none.json") == (math.inf, "")
