"""Asks node.train only once for the configuration of the same arguments, as starting it takes a third of a second."""

from functools import cache

import pytest

from cluster.base.processes import run_bounded


@pytest.fixture(autouse=True)
def resolved_once(request, monkeypatch):
    """Remember what `node.train --dry-run` said; tests of node.train itself start it each time."""
    if request.path.name not in ("test_own_strategy.py", "test_own_task.py"):
        monkeypatch.setattr("cluster.run.program.run_bounded", _once)


def _once(argv, *, cwd, env):
    """Run it, or return what it said before in the same environment; files that arguments name may have changed."""
    if any("/" in word or "resume" in word for word in argv[3:]):
        return run_bounded(argv, cwd=cwd, env=env)
    same = {name: value for name, value in env.items() if name != "PYTEST_CURRENT_TEST"}
    return _remembered(tuple(argv), cwd, frozenset(same.items()))


@cache
def _remembered(argv, cwd, env):
    return run_bounded(argv, cwd=cwd, env=dict(env))
