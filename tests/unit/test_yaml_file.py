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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "loss_pct: 1\ndelay_ms: 2\nloss_pct: 3\n",
            "key 'loss_pct' is there twice in line 3, column 1",
        ),
        ("- {at: 1s, 'at': 2s}\n", "key 'at' is there twice in line 1, column 12"),
        ("a: {<<: {b: 1}, c: 1, c: 2}\n", "key 'c' is there twice in line 1, column 23"),
        ('{"a": 1, "a": 2}', "key 'a' is there twice in line 1, column 10"),
        ("8: a\n010: b\n", "key '010' is there twice in line 2, column 1"),
        ("{1: a, true: b}", "key 'true' is there twice in line 1, column 8"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_and_not_lost(tmp_path, text, words):
    path = tmp_path / "mine.yml"
    path.write_text(text)
    with pytest.raises(UsageError) as refusal:
        read_yaml(path)
    assert refusal.value.message == f"{path}: not YAML: {words}"


def test_keys_that_are_merged_may_be_overridden(tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text(
        "far: {a: &far {delay_ms: 80, loss_pct: 1}, b: &near {<<: *far, delay_ms: 5}}\n"
        "near: {<<: *near, loss_pct: 0}\n"
        "both: {<<: [*near, *far], delay_ms: 7}\n"
        "twice: {<<: *far, <<: {rate_mbyte_s: 6}}\n"
        "'1': word\n1: number\n"
    )
    assert read_yaml(path) == {
        "far": {"a": {"delay_ms": 80, "loss_pct": 1}, "b": {"delay_ms": 5, "loss_pct": 1}},
        "near": {"delay_ms": 5, "loss_pct": 0},
        "both": {"delay_ms": 7, "loss_pct": 1},
        "twice": {"delay_ms": 80, "loss_pct": 1, "rate_mbyte_s": 6},
        "1": "word",
        1: "number",
    }
