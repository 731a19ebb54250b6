"""The supervisor of a rank: which run a node belongs to, and what remains of other runs."""

import io
import itertools
import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from node import rank
from node.supervisor import descendants
from node.supervisor.descendants import _run_of
from node.supervisor.error_file import RankError
from protocol.places import run_dir
from protocol.rank import RankReport, StartOrder
from protocol.rank_variables import ERROR_FILE
from protocol.reader import document


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path):
    monkeypatch.setattr(rank, "WORK_FOLDER", tmp_path / "work")
    monkeypatch.setattr(rank, "RESULTS_FOLDERS", (tmp_path / "runs", tmp_path / "shared"))
    monkeypatch.setattr(rank, "kill_leftovers", lambda run: [])  # no node: other ranks may run here


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
    old, own = tmp_path / "work" / "run-a", tmp_path / "work" / "run-b"
    old.mkdir(parents=True)
    own.mkdir()
    with (tmp_path / "lock").open("a+") as first, (tmp_path / "lock").open("a+") as second:
        rank.take_node(first, "run-b")
        assert (old.exists(), own.exists()) == (False, True)
        old.mkdir()
        rank.take_node(second, "run-b")
        assert old.exists()


@pytest.mark.parametrize("place", ["runs", "shared"])
def test_results_that_nobody_has_fetched_stay_and_are_told_and_the_oldest_go(
    tmp_path, capsys, place
):
    for number in range(1, 5):
        folder = tmp_path / place / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "model.pt").touch()
        os.utime(folder, (number, number))
    (tmp_path / place / "run-5").mkdir()  # empty
    (tmp_path / place / "own").mkdir()
    with (tmp_path / "lock").open("a+") as lock:
        rank.take_node(lock, "own")
    assert {path.name for path in (tmp_path / place).iterdir()} == {"run-3", "run-4", "own"}
    kept, removed = "never fetched, they are in", "never fetched are removed:"
    said = capsys.readouterr().out.splitlines()
    assert sorted(line.partition("never")[2].rpartition("/")[2] for line in said) == [
        f"run-{number}" for number in range(1, 5)
    ]
    assert [
        words in line for line, words in zip(said, [removed] * 2 + [kept] * 2, strict=True)
    ] == [True] * 4


def test_only_what_lives_in_this_very_node_is_left_behind(tmp_path, monkeypatch):
    """A host sees the ranks of all its nodes too: if this runs on a host, it must not kill them."""
    killed = []
    monkeypatch.setattr(descendants, "PROC", tmp_path)
    monkeypatch.setattr(descendants.os, "kill", lambda pid, number: killed.append((pid, number)))
    for pid, space, run in (("self", 1, ""), ("7", 1, "old"), ("8", 2, "old"), ("9", 1, "now")):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns" / "pid").symlink_to(f"pid:[{space}]")
        (tmp_path / pid / "cmdline").write_text(f"python3\0{run}.py\0")
        environ = f"TORCHELASTIC_RUN_ID={run}\0GRADWIRE_RUN_DIR={run_dir(run)}\0"
        (tmp_path / pid / "environ").write_text(environ)
    (tmp_path / "10").mkdir()  # a process that has ended meanwhile
    assert descendants.kill_leftovers("now") == ["python3 old.py"]
    assert killed == [(7, signal.SIGKILL)]


@pytest.mark.parametrize(
    ("environ", "run"),
    [
        ("TORCHELASTIC_RUN_ID=a GRADWIRE_RUN_DIR=/root/gradwire/runs/a RANK=1", "a"),
        ("TORCHELASTIC_RUN_ID=a RANK=1", ""),  # torchrun, started by hand
        ("TORCHELASTIC_RUN_ID=a GRADWIRE_RUN_DIR=/tmp/mine", ""),
        ("GRADWIRE_RUN_DIR=/root/gradwire/runs/ HOME=/root", ""),
        ("", ""),
    ],
)
def test_what_a_launcher_started_is_told_from_what_somebody_runs_by_hand(environ, run):
    text = environ.replace("/root/gradwire/runs/a", run_dir("a")).replace(" ", "\0")
    assert _run_of(text.encode() + b"\0") == run


# Ignores SIGTERM; closing the pipe then lets the supervisor stop it.
DEAF = 'trap "" TERM; eval "exec $0>&-"; while :; do echo I am still here; sleep 0.02; done'


def test_a_rank_that_is_to_stop_has_ten_seconds(monkeypatch, tmp_path):
    """With a clock that advances by half a second at each reading."""
    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr(rank, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(rank, "CONTAINER_LOG", tmp_path / "none")
    for name in ("reap_orphans", "kill_descendants"):  # our descendants may belong to other tests
        monkeypatch.setattr(rank, name, lambda *_: None)
    ours, theirs = os.pipe()
    argv = ["bash", "-c", DEAF, str(theirs)]
    deaf = subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=[theirs], start_new_session=True)
    os.close(theirs)
    with os.fdopen(ours) as order, (tmp_path / "said").open("w") as said, deaf:
        monkeypatch.setattr(rank.sys, "stdin", order)
        monkeypatch.setattr(rank.sys, "stdout", said)
        rank._forward(deaf, deaf.stdout)
    assert deaf.returncode == -9
    assert 10 <= next(clock) <= 12


ORDER = StartOrder("run", ["train"], "/", "/run", {ERROR_FILE: "error.json"})


def test_a_rank_has_failed_when_it_said_so(monkeypatch):
    """The time of failure is that of its error, not of its exit: ranks that saw it fail may exit before it."""
    monkeypatch.setattr(rank, "run_rank", lambda order: (1, ""))
    monkeypatch.setattr(rank, "read_error", lambda path, since: RankError(1234.5, "boom"))
    report = rank.run_and_report(ORDER)
    assert (report.exit_code, report.time, report.error) == (1, 1234.5, "boom")
    assert report.reported == pytest.approx(time.time(), abs=60)
    monkeypatch.setattr(rank, "read_error", lambda path, since: RankError())
    assert rank.run_and_report(ORDER).time == pytest.approx(time.time(), abs=60)


def test_what_was_left_behind_is_told_without_its_arguments(monkeypatch, tmp_path, capsys):
    """They may hold tokens and passwords, and the output of a rank is kept."""
    line = json.dumps(document(ORDER)).encode() + b"\n"
    monkeypatch.setattr(rank.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(line)))
    monkeypatch.setattr(rank, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(rank, "run_and_report", lambda order: RankReport(0, 1.0, 1.0))
    left = ["/usr/bin/python3 old.py --hf-token hf_abcdef", ""]
    monkeypatch.setattr(rank, "kill_leftovers", lambda run: left)
    rank.main()
    words = "left behind by an earlier run, and ended:"
    assert capsys.readouterr().out.splitlines() == [f"{words} /usr/bin/python3", f"{words} ?"]


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_the_supervisor_ends_as_its_rank_did(monkeypatch, tmp_path, capsys, ended, code):
    line = json.dumps(document(ORDER)).encode() + b"\n"
    monkeypatch.setattr(rank.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(line)))
    monkeypatch.setattr(rank, "LOCK", tmp_path / "lock")
    report = RankReport(ended, 5.0, 6.0, "", False, False)
    monkeypatch.setattr(rank, "run_and_report", lambda order: report)
    assert rank.main() == code
    assert json.loads(capsys.readouterr().err)["exit_code"] == ended


@pytest.mark.parametrize(("said", "ended"), [(b"ends", b"\n"), (b"ends\n", b""), (b"", b"")])
def test_a_last_line_without_an_end_gets_one(tmp_path, said, ended):
    """Otherwise `docker logs` shows the next rank's first words at its end."""
    log = tmp_path / "log"
    log.touch()
    outlets = [
        os.open(log, os.O_WRONLY),
        os.open(tmp_path, os.O_RDONLY),
    ]  # of the last, none can be written to
    rank._end_line(said, outlets)
    for outlet in outlets:
        os.close(outlet)
    assert log.read_bytes() == ended
