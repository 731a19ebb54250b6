"""The lock of a cluster: one for each engine, however that is named, and one for each of its hosts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.base.errors import ClusterError
from cluster.base.paths import PROJECT_DIR
from cluster.hosts.hosts_file import Host, Hosts
from cluster.lifecycle import exclusive_lock
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


WEST, EAST = Host("west", f"me@west-{os.getpid()}"), Host("east", f"me@east-{os.getpid()}")
HOLDS = """
import sys
from cluster.lifecycle.exclusive_lock import ClusterLock
with ClusterLock(sys.argv[1]):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def on_hosts(monkeypatch):
    """A function that has the cluster on these hosts, as its record says, and this shell another DOCKER_HOST."""

    def use(docker_host, *hosts):
        monkeypatch.setenv("DOCKER_HOST", docker_host)
        there = Hosts(hosts) if hosts else None
        monkeypatch.setattr(exclusive_lock, "read_hosts", lambda name: there, raising=False)

    return use


def test_a_cluster_on_hosts_has_one_lock_whatever_this_shells_engine_is(on_hosts):
    on_hosts("unix:///run/one.sock", WEST, EAST)
    with ClusterLock(NAME):
        for hosts in ((WEST, EAST), (EAST, WEST), (EAST,)):
            on_hosts("unix:///run/two.sock", *hosts)
            with pytest.raises(ClusterError, match="in use.*process"), ClusterLock(NAME):
                pass
        on_hosts("unix:///run/two.sock", WEST)
        with ClusterLock(NAME, force=True):
            pass
    with ClusterLock(NAME):  # all of them are free again
        pass


def test_hosts_that_are_asked_for_count_before_any_are_on_record(on_hosts):
    """Another shell's `up` of a new cluster writes its record only once it has the lock."""
    on_hosts("unix:///run/one.sock")
    with ClusterLock(NAME, hosts=Hosts((WEST, EAST))):
        on_hosts("unix:///run/two.sock", EAST)
        with pytest.raises(ClusterError, match="in use"), ClusterLock(NAME):
            pass


def test_one_that_is_refused_keeps_no_part_of_the_lock(on_hosts):
    on_hosts("unix:///run/one.sock", EAST)
    with ClusterLock(NAME):
        on_hosts("unix:///run/two.sock", WEST, EAST)
        with pytest.raises(ClusterError, match="in use"), ClusterLock(NAME):
            pass
        on_hosts("unix:///run/two.sock", WEST)
        with ClusterLock(NAME):
            pass


def test_a_cluster_of_that_name_on_other_hosts_has_another_lock(on_hosts):
    on_hosts("unix:///run/one.sock", WEST)
    with ClusterLock(NAME):
        on_hosts("unix:///run/two.sock", EAST)
        with ClusterLock(NAME):
            pass


def long_host(end):
    return Host(end, f"me@{'far-' * 30}away.{os.getpid()}.{end}")


def test_hosts_whose_long_names_differ_only_at_their_ends_have_locks_of_their_own(on_hosts):
    """The kernel takes 107 bytes of an address."""
    west, east, name = long_host("west"), long_host("east"), f"{NAME:a<27}"
    on_hosts("unix:///run/one.sock", west, east)
    with ClusterLock(name):
        on_hosts("unix:///run/two.sock", east)
        with pytest.raises(ClusterError, match="in use.*process"), ClusterLock(name):
            pass
    with ClusterLock(name):
        on_hosts("unix:///run/one.sock", west)
        with ClusterLock(name):
            pass


def test_a_host_that_is_this_shells_engine_too_is_locked_once(on_hosts):
    there = f"ssh://me@there-{os.getpid()}"
    on_hosts(there, Host("there", there))
    with ClusterLock(NAME):
        pass


def test_who_has_the_lock_is_named_without_its_secrets(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT_DIR))
    Path("hold.py").write_text(HOLDS)
    name = f"{NAME}-words"
    argv = [sys.executable, "hold.py", name, "--hf-token", "hf_abcdef", "x" * 300]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        with pytest.raises(ClusterError) as refused, ClusterLock(name):
            pass
    finally:
        holder.communicate(b"")
    assert "hf_abcdef" not in refused.value.message
    assert "<secret>" in refused.value.message and f"process {holder.pid}" in refused.value.message
