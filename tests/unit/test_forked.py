"""A verb in a process forked by the tests behaves as one started by a user: same output, exit code, environment."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import PROJECT_DIR, run_forked

TIMEOUT_S = 60


@pytest.mark.parametrize(
    "words",
    [
        ["cluster.profiles", "--json"],
        ["cluster.up", "--help"],
        ["cluster.up", "--bogus"],
        ["cluster.launch", "--", "/nowhere.py"],
        ["timeit", "-n", "1", "raise KeyError('out of cheese')"],
    ],
)
def test_it_says_and_returns_what_a_python_of_its_own_does(words):
    started = subprocess.run(
        [sys.executable, "-m", *words], cwd=PROJECT_DIR, capture_output=True, text=True
    )
    forked = run_forked(words[0], words[1:], TIMEOUT_S)
    assert forked.stdout == started.stdout
    # The first frames of a traceback belong to the module's caller.
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]
    assert forked.returncode == started.returncode


def test_it_has_our_environment_of_now(monkeypatch):
    monkeypatch.setenv("GRADWIRE_NODES", "many")
    assert (
        "GRADWIRE_NODES='many' in the environment: no int"
        in run_forked("cluster.up", [], TIMEOUT_S).stderr
    )


def test_a_signal_that_ends_it_is_told():
    assert run_forked("timeit", ["import os; os.kill(os.getpid(), 9)"], TIMEOUT_S).returncode == -9


def test_one_that_takes_too_long_is_killed(tmp_path):
    program = f"import os, time; os.mkdir(f'{tmp_path}/{{os.getpid()}}'); time.sleep(600)"
    with pytest.raises(TimeoutError):
        run_forked("timeit", [program], 1.0)
    deadline = time.monotonic() + TIMEOUT_S
    while any(Path("/proc", pid.name).exists() for pid in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
