"""Lines of the ranks' metrics files: what counts as a line, which keys are read, and what is written."""

import json
import math
from typing import Annotated, NamedTuple

import pytest

from cluster.accounting.metrics import LastLines, last_lines, parse_event, read_events
from protocol.collectives import CollectiveSum, Traffic, read_collective
from protocol.metrics import (
    FIGURES,
    OF_SOLVER,
    SCORES,
    End,
    Evaluation,
    Rollout,
    Step,
    Unknown,
    line_document,
    read_line,
)
from protocol.reader import NOT_NULL, FormatError, ReadBy, parse, read

STEP = {"event": "step", "rank": 0, "time": 5, "step": 3, "sent_bytes": 7}
COLLECTIVE = {
    "time": 1.0,
    "step": 1,
    "kind": "exchange",
    "purpose": "train",
    "bytes": 8,
    "messages": 1,
    "to": {"2": 8},
    "done_s": 1.0,
    "waited_s": 0,
    "hidden": False,
}


class Inner(NamedTuple):
    """A document inside another one."""

    size: int


class Outer(NamedTuple):
    """A document with nested documents."""

    inner: Inner
    more: list[Inner]
    later: Annotated[int | None, NOT_NULL] = None


WITH_MORE = {"inner": {"size": 1, "x": 2}, "more": [{"size": 3, "y": []}], "z": None}


def test_unknown_keys_are_left_out_at_all_depths_where_that_is_asked_for():
    found = Outer(Inner(1), [Inner(3)])
    assert read(Outer, WITH_MORE, ignore_unknown=True) == found
    assert parse(Outer, json.dumps(WITH_MORE), ignore_unknown=True) == found
    with pytest.raises(FormatError, match="z: unknown key"):
        read(Outer, WITH_MORE)
    with pytest.raises(FormatError, match="inner.size: missing"):
        read(Outer, {"inner": {}, "more": []}, ignore_unknown=True)


def test_a_key_that_may_be_missing_need_not_be_allowed_to_be_null():
    assert read(Outer, {"inner": {"size": 1}, "more": []}).later is None
    with pytest.raises(FormatError, match="later: expected no null"):
        read(Outer, {"inner": {"size": 1}, "more": [], "later": None})


def test_a_type_may_bring_a_reader_of_its_own_and_be_checked_all_the_same():
    kind = Annotated[int, ReadBy(len, "size")]
    assert read(kind, "four") == 4
    assert read(Annotated[kind, NOT_NULL], "four") == 4


def test_what_a_step_has_besides_is_ignored_and_numbers_stay_as_they_were_written():
    line = read_line(STEP | {"compute_s": 2, "own": "words"})
    assert line == Step(0, 5, 3, 7, compute_s=2)
    assert isinstance(line.time, int) and isinstance(line.compute_s, int)
    assert line.loss is line.comm_s is None


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300, None, 5])
def test_a_loss_may_be_none(loss):
    [found] = [read_line(STEP | {"loss": loss}).loss]
    assert found is loss or found == loss


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": -1},
        {"step": 1.5},
        {"step": True},
        {"rank": None},
        {"time": math.nan},
        {"time": 1e20},
        {"compute_s": None},
        {"comm_s": "1"},
        {"loss": "0.1"},
        {"loss": 10**400},
        {"event": 5},
        {"event": "step "},
        {"event": "\x1b"},
    ],
)
def test_a_line_with_something_of_another_type_counts_as_not_there(wrong):
    assert parse_event(json.dumps(STEP | wrong)) is None
    [key] = wrong
    with pytest.raises(FormatError, match=key):
        read_line(STEP | wrong)


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000, b"\xff", '{"a":' * 5000])
def test_what_is_no_line_counts_as_not_there(text):
    assert parse_event(text) is None


def test_events_of_others_are_lines_too():
    assert read_line({"event": "mine", "rank": 1, "time": 2.0, "x": 1}) == Unknown(1, 2.0, "mine")


def test_ranks_are_numbers_also_where_they_are_keys():
    assert read_collective(COLLECTIVE).to == {2: 8}
    for rank in ("", "-1", "x", "²", "1" * 7):
        with pytest.raises(FormatError, match="to"):
            read_collective(COLLECTIVE | {"to": {rank: 8}})


def test_what_is_written_is_read_again():
    total = CollectiveSum("all_reduce", "train", 8, 2, 0.5, {1: Traffic(16, 2)}, 0.5)
    end = End(0, 1.0, 3, {"total": 1.0}, {"train": 16}, [total], {"node2": 99}, 0.1, tested={})
    for line in (end, Step(0, 1.0, 3, 16, 0.5), Rollout(0, 1.0, 3, 16, 5), Unknown(0, 1.0, "mine")):
        assert read_line(json.loads(json.dumps(line_document(line)))) == line


def test_what_a_line_lacks_is_not_written_but_for_the_accuracy_of_an_end():
    line = Evaluation(0, 1.0, 3, 0.5, test_loss=0.25)
    said = {"event": "eval", "rank": 0, "time": 1.0, "step": 3, "eval_s": 0.5, "test_loss": 0.25}
    assert line_document(line) == said
    assert line_document(line, {"test_loss": 9.0, "my_figure": 1.5}) == said | {"my_figure": 1.5}
    assert line_document(End(0, 1.0))["test_accuracy"] is None
    assert "experience" not in line_document(End(0, 1.0))


def test_the_last_of_each_event_is_kept(tmp_path):
    path = tmp_path / "node1.jsonl"
    assert last_lines(path) == LastLines()
    lines = [{"event": name, "rank": 0, "time": at} for at in (1, 2) for name in ("start", "end")]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, STEP]) + '{"event": "e')
    assert [line.time for line in read_events(path)] == [1, 1, 2, 2, 5]
    found = last_lines(path)
    assert (found.start.time, found.rollout, found.end.time) == (2, None, 2)


def test_of_a_file_that_is_too_long_the_beginning_is_read(tmp_path, monkeypatch):
    step = json.dumps(STEP) + "\n"
    path = tmp_path / "node1.jsonl"
    path.write_text(step * 100)
    whole = len(list(read_events(path)))
    monkeypatch.setattr("cluster.accounting.metrics.MOST_FILE_BYTES", 10 * len(step))
    assert (whole, len(list(read_events(path)))) == (100, 10)


def test_scores_are_figures_of_lines():
    assert set(OF_SOLVER) < set(FIGURES)
    assert SCORES.keys() <= {*FIGURES, *Rollout._fields}
