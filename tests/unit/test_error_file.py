"""What a rank says of its own failure, as the launchers read it."""

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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"message": '])
def test_words_that_are_none_say_nothing(tmp_path, text):
    (tmp_path / "error.json").write_text(text)
    assert read_error(tmp_path / "error.json") == (math.inf, "")
    assert read_error(tmp_path / "none.json") == (math.inf, "")
