"""One command at a time changes a cluster; during a run, nothing is changed, measured or removed."""

import os
import signal
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, eventually
from test_failures import wait_for_ranks

from cluster.base.errors import ClusterError
from cluster.lifecycle.exclusive_lock import ClusterLock


@pytest.fixture
def busy(unshaped, tmp_path):
    """A cluster with a run in progress, and its launcher."""
    script = tmp_path / "job.py"
    script.write_text("import time\ntime.sleep(600)\n")
    launched = unshaped.start("launch", "--", script)
    try:
        wait_for_ranks(unshaped)
        yield unshaped, launched
    finally:
        launched.send_signal(signal.SIGINT)
        launched.communicate(timeout=60)


COMMANDS = [
    ("up", "--nodes", "4"),
    ("shape", "--profile", "wan"),
    ("shape", "--link", "node1:node2", "--delay", "5"),
    ("verify",),
    ("down",),
]


def test_a_run_that_goes_on_keeps_its_cluster(busy):
    cluster, launched = busy
    before = cluster.json("status")
    for verb, *words in COMMANDS:
        done = cluster.run(verb, *words, check=1)
        assert "is in use" in done.stderr, (verb, done.stderr)
        assert f"process {launched.pid}" in done.stderr
        assert "cluster.launch" in done.stderr
    assert cluster.json("status") == before
    assert launched.poll() is None


def test_who_forces_it_changes_links_under_a_run(busy):
    cluster, launched = busy
    cluster.run("shape", "--force", "--profile", "datacenter")
    assert cluster.json("status")["profile"] == "datacenter"
    cluster.run("up", "--force", "--nodes", "3")
    cluster.run("shape", "--force", "--clear")
    cluster.run("verify", "--force", "--quick", check=None)  # a busy machine may be too late
    assert launched.poll() is None
    cluster.run("down", "--force")
    assert cluster.things() == []
    _, said = launched.communicate(timeout=60)
    assert launched.returncode == 1 and "was lost" in said, said


@pytest.mark.slow
def test_ranks_that_outlive_their_launcher_keep_their_nodes(unshaped, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    )
    launched = unshaped.start("launch", "--", script)
    wait_for_ranks(unshaped)
    os.killpg(launched.pid, signal.SIGKILL)  # the ranks then end within ten seconds
    launched.communicate()
    assert "busy with run" in unshaped.run("up", "--profile", "wan", check=1).stderr
    eventually(lambda: unshaped.run("up", check=None).returncode == 0, 60, every_s=1)


def test_two_launches_in_one_second_do_not_mix(unshaped, tmp_path):
    script = tmp_path / "short.py"
    script.write_text("print('done')\n")
    begun = [unshaped.start("launch", "--", script) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in begun]
    assert sorted(process.returncode for process in begun) == [0, 1], said
    refused = said[[process.returncode for process in begun].index(1)]
    assert "is in use" in refused[1]


def test_two_ups_of_one_new_name_leave_one_whole_cluster(make_cluster):
    cluster = make_cluster("twice")
    begun = [cluster.start("up", "--nodes", "2") for _ in range(2)]
    said = [process.communicate(timeout=120) for process in begun]
    assert sorted(process.returncode for process in begun) == [0, 1], said
    assert cluster.ssh("node2", "hostname").stdout == "node2\n"


def test_the_lock_goes_with_its_process_and_leaves_nothing():
    name = f"t-lock-{os.getpid()}"
    program = f"from cluster.lifecycle.exclusive_lock import ClusterLock\nwith ClusterLock({name!r}): input()\n"
    holder = subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROJECT_DIR, stdin=subprocess.PIPE, text=True
    )
    try:

        def refused():
            try:
                with ClusterLock(name):
                    return ""
            except ClusterError as error:
                return str(error)

        assert f"process {holder.pid}" in eventually(refused)
        with ClusterLock(name, force=True):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with ClusterLock(name) as lock, lock:  # a nested block already holds the lock
        pass
