"""Programs of this machine are run with a timeout."""

import pytest

from cluster.base import processes
from cluster.base.errors import ClusterError
from cluster.base.processes import run_bounded


def test_a_program_that_does_not_end_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(processes, "TIMEOUT_S", 0.2)
    with pytest.raises(ClusterError, match="`sleep 60` has not answered for 0 s"):
        run_bounded(["sleep", "60"])


def test_what_a_program_says_and_its_exit_code_come_back():
    done = run_bounded(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin="said")
    assert (done.returncode, done.stdout, done.stderr) == (3, "said", "wrong\n")
