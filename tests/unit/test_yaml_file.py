"""A user's YAML file that cannot be read: one line says where and why."""

import json
import os

import pytest
import yaml

from cluster.base.errors import UsageError
from cluster.base.yaml_file import read_yaml


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"rate: [1, 2\ndelay: 5\n",
            "not YAML: expected ',' or ']', but got ':' in line 2, column 6",
        ),
        (b"a: b: c\n", "not YAML: mapping values are not allowed here in line 1, column 5"),
        (b"a: \x07\n", "not YAML: "),
        (b"a: \xff\n", "not YAML: it is no text in UTF-8"),
    ],
)
def test_what_is_no_yaml_is_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "mine.yml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refusal:
        read_yaml(path, "like this")
    assert f"{path}: {words}" in refusal.value.message
    assert "\n" not in refusal.value.message
    assert refusal.value.hint == "like this"


def test_what_is_not_there_or_no_file_is_refused_in_one_line(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*none.yml: No such file"):
        read_yaml(tmp_path / "none.yml")
    with pytest.raises(UsageError, match="cannot read .*: Is a directory"):
        read_yaml(tmp_path)


def test_a_pair_of_surrogates_is_the_letter_that_json_means_by_it(tmp_path):
    """JSON is YAML, and json.dumps writes letters beyond U+FFFF as pairs of surrogates."""
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps({"💥": ["a💥"]}))
    assert read_yaml(path) == {"💥": ["a💥"]}


def test_a_name_that_is_no_utf_8_is_read_as_run_yml_has_it(tmp_path):
    path = tmp_path / "run.yml"
    path.write_text(yaml.safe_dump(os.fsdecode(b"l\xe4uft.py")))
    assert os.fsencode(read_yaml(path)) == b"l\xe4uft.py"


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\udfff": 1}', r'"a\0b"', r'!!str "\ud800"'])
def test_what_no_file_name_and_no_argument_can_hold_is_refused(tmp_path, text):
    path = tmp_path / "mine.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match="no text in line 1"):
        read_yaml(path)
