"""The lock of a cluster: one for each engine, however that is named."""

import os

import pytest

from cluster.base.errors import ClusterError
from cluster.lifecycle.exclusive_lock import ClusterLock

NAME = f"lock-test-{os.getpid()}"  # other suites, on other Pythons, run at the same time


@pytest.mark.parametrize("engine", ["unix:///var/run/docker.sock", "unix:///run/docker.sock", ""])
def test_an_engine_that_is_named_another_way_has_the_same_lock(monkeypatch, engine):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with ClusterLock(NAME):
        monkeypatch.setenv("DOCKER_HOST", engine)
        with pytest.raises(ClusterError, match="in use"), ClusterLock(NAME):
            pass


def test_another_engine_has_another_lock(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with ClusterLock(NAME):
        monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
        with ClusterLock(NAME):
            pass
