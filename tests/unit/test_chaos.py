"""The plan of faults and the report of their outcomes; tests/cluster plays faults on real containers."""

import signal

import chaos_play
import pytest
from chaos_plan import KINDS, Fault, plan_faults, table


def test_a_seed_makes_one_plan_and_a_longer_one_begins_with_it():
    assert plan_faults(200, 1)[:50] == plan_faults(50, 1)
    assert plan_faults(200, 1) != plan_faults(200, 2)


def test_two_hundred_faults_have_every_kind_in_every_phase():
    played = {(fault.kind, fault.phase) for fault in plan_faults(200, 1)}
    assert played == {(name, phase) for name, kind in KINDS.items() for phase in kind.phases}


def test_some_kinds_alone():
    assert {f.kind for f in plan_faults(30, 1, ["node paused", "links cut"])} == {
        "node paused",
        "links cut",
    }


def test_the_table_counts_kinds_by_outcomes():
    assert table([("node paused", "went on"), ("node paused", "violated")]) == (
        "| kind | faults | violated | went on |\n"
        "|---|---|---|---|\n"
        "| node paused | 2 | 1 | 1 |\n"
        "| all | 2 | 1 | 1 |"
    )


@pytest.mark.parametrize(
    ("code", "lines", "owed"),
    [
        (1, ["node1 | Traceback (most recent call last):", "error: rank 1 on node2 was lost"], ""),
        (1, ["error: something went wrong"], "not named"),
        (1, [], "not named"),
        (3, ["error: node2: KeyError", "  this is a bug in gradwire"], "exit code 3"),
        (1, ["Traceback (most recent call last):", "error: node2"], "Traceback"),
        (0, [], "ended well"),
        (None, [], "did not end"),
    ],
)
def test_what_a_command_owes(code, lines, owed):
    fault = Fault(0, "node paused", "launch running", 0.5, "node2")
    found = "\n".join(chaos_play._judge(fault, code, lines))
    assert owed in found if owed else not found


def test_a_command_is_heard_to_its_end_and_its_pipe_is_closed(tmp_path):
    heard = tmp_path / "heard"
    script = f"echo one; echo two >&2; while [ ! -e {heard} ]; do sleep 0.02; done; exit 3"
    command = chaos_play.Command(["sh", "-c", script])
    assert command.await_words("two", 1, 10)
    heard.touch()
    assert command.end(10) == 3
    assert command.lines == ["one", "two"]
    assert command.process.stdout.closed


def test_a_command_that_does_not_end_is_killed():
    command = chaos_play.Command(["sleep", "600"])
    assert command.end(0.1) is None
    assert command.process.returncode == -signal.SIGKILL
    assert command.process.stdout.closed


def test_a_result_without_its_hash_is_not_whole(tmp_path):
    (tmp_path / "result.bin").write_bytes(b"half")
    assert not chaos_play._is_whole(tmp_path)


@pytest.mark.parametrize(
    ("said", "has_left"),
    [("ready\nleft\n", True), ("OSError: [Errno 28] No space left on device\n", False)],
)
def test_a_rank_has_left_its_result_where_it_says_so(tmp_path, said, has_left):
    log = tmp_path / "node1.log"
    log.write_text(said)
    assert chaos_play._has_left(log) is has_left
