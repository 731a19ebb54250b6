"""However a run ends, the first failure is named and nothing keeps running."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from containers import eventually

# One rank fails in the given way; the others would sleep for ten minutes.
ONE_FAILS = """\
import os, sys, time
print("marker", flush=True)
time.sleep(1)
if os.environ["RANK"] == "1":
    {how}
time.sleep(600)
"""

# Rank 1 leaves the group, and says why only once rank 0 has ended for that.
LEAVES_FIRST = """\
import os, socket
from contextlib import suppress
import torch
import torch.distributed as dist

rank, at = os.environ["RANK"], (os.environ["MASTER_ADDR"], 29600)
if rank == "0":
    server = socket.create_server(("", 29600))
dist.init_process_group("gloo")
dist.barrier()
if rank == "0":
    link, _ = server.accept()
if rank == "1":
    link = socket.create_connection(at)
    dist.destroy_process_group()
    with suppress(OSError):
        link.recv(1)
    raise ValueError("out of cheese")
dist.all_reduce(torch.ones(1))
"""

# Rank 0 is done, and the others still need the store that its process holds: under torchrun the agent holds it.
LEAVES_EARLY = """\
import os
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if os.environ["RANK"] == "0":
    os._exit(0)  # on a busy machine Python takes seconds to end, and then the launcher ends it
dist.distributed_c10d._get_default_store().get("nobody sets this")
"""

# Rank 0 fails once the others ignore SIGTERM.
DEAF = """\
import os, signal, socket, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "0":
    server = socket.create_server(("", 29600))
    links = [server.accept(), server.accept()]
    sys.exit(4)
while True:
    try:
        link = socket.create_connection((os.environ["MASTER_ADDR"], 29600))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
time.sleep(600)
"""


@pytest.fixture
def script(tmp_path):
    def write(how):
        path = tmp_path / "job.py"
        path.write_text(ONE_FAILS.format(how=how))
        return path

    return write


def is_quiet(cluster):
    return not any(
        cluster.exec(f"node{n}", "pgrep", "-f", "job.py", check=False) for n in (1, 2, 3)
    )


@pytest.mark.parametrize(
    ("how", "words", "code"),
    [
        ("sys.exit(7)", "ended with exit code 7", 7),
        ("raise ValueError('out of cheese')", "ValueError: out of cheese", 1),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL", -9),
    ],
)
def test_the_first_rank_that_fails_is_the_root_cause(unshaped, script, how, words, code):
    done = unshaped.run("launch", "--json", "--", script(how), check=1)
    assert "rank 1 on node2" in done.stderr
    assert "root cause" in done.stderr
    assert words in done.stderr
    assert "logs/node2.log" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["status"] == "failed"
    assert summary["exit_codes"] == {"node1": -15, "node2": code, "node3": -15}
    assert is_quiet(unshaped)


def test_a_rank_that_fails_is_the_root_cause_although_another_reports_first_that_it_left(
    unshaped, tmp_path
):
    path = tmp_path / "job.py"
    path.write_text(LEAVES_FIRST)
    done = unshaped.run("launch", "--json", "--", path, check=1)
    summary = json.loads(done.stdout)
    assert "rank 1 on node2 ended with exit code 1: the root cause (of 3 ranks" in done.stderr, (
        done.stderr
    )
    assert "ValueError: out of cheese" in done.stderr
    assert summary["exit_codes"]["node2"] == 1


def test_a_rank_that_is_done_too_early_for_the_others_is_named(unshaped, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(LEAVES_EARLY)
    done = unshaped.run("launch", "--json", "--", path, check=1)
    words = "done by then: node1, and with rank 0 ended the store by which ranks find each other"
    assert words in done.stderr
    assert words in json.loads(done.stdout)["root_cause"]["words"]
    assert is_quiet(unshaped)


@pytest.mark.slow
def test_a_rank_that_ignores_sigterm_is_killed(unshaped, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(DEAF)
    summary = unshaped.json("launch", "--", path, check=1)
    assert summary["exit_codes"] == {"node1": 4, "node2": -9, "node3": -9}
    assert is_quiet(unshaped)


def test_children_of_a_rank_end_with_it(unshaped, tmp_path):
    path = tmp_path / "job.py"
    path.write_text(
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', 'job.py'])\n"
    )
    unshaped.run("launch", "--", path)
    assert is_quiet(unshaped)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_launch_ends_every_rank(unshaped, script, number):
    launched = unshaped.start("launch", "--", script("time.sleep(600)"))
    wait_for_ranks(unshaped)
    launched.send_signal(number)
    stdout, stderr = launched.communicate(timeout=30)
    assert launched.returncode == 130, stderr
    assert "Traceback" not in stderr
    said = re.search(r"what there is of the run: (\S+)", stderr)
    assert said
    assert (Path(said[1]) / "run.yml").exists()
    assert is_quiet(unshaped)


def test_an_attached_launch_ends_with_whoever_started_it(unshaped, script):
    """A starter that is killed cannot say so, but its end of the pipe is closed."""
    words = ["--attached", "--", script("time.sleep(600)")]
    launched = unshaped.start("launch", *words, stdin=subprocess.PIPE)
    wait_for_ranks(unshaped)
    assert launched.poll() is None
    _, stderr = launched.communicate(timeout=30)  # closes its standard input
    assert launched.returncode == 130, stderr
    assert is_quiet(unshaped)


def test_a_killed_launch_leaves_no_rank_behind(unshaped, script):
    def left():
        return unshaped.exec("node2", "ls", "/root/work", "/run/gradwire/runs").split()

    before = left()  # results of a run that could not be fetched from node2 may stay there
    launched = unshaped.start("launch", "--", script("time.sleep(600)"))
    wait_for_ranks(unshaped)
    os.killpg(launched.pid, signal.SIGKILL)
    launched.communicate()
    eventually(lambda: is_quiet(unshaped), every_s=0.5)
    assert unshaped.exec("node2", "ls", "/root/work").split() != []  # nothing has cleaned up
    unshaped.run("launch", "--", script("sys.exit(5)"), check=1)  # the nodes are free again
    assert left() == before and before[:2] == ["/root/work:", "/run/gradwire/runs:"]


def test_a_node_that_is_lost_is_named(shared, script):
    shared.run("up", "--nodes", "3")
    shared.run("shape", "--clear")
    launched = shared.start("launch", "--", script("time.sleep(600)"))
    wait_for_ranks(shared)
    subprocess.run(["docker", "kill", shared.container("node3")], check=True, capture_output=True)
    stdout, stderr = launched.communicate(timeout=60)
    assert launched.returncode == 1, stderr
    assert "rank 2 on node3 was lost (its container ended (exit code 137, SIGKILL))" in stderr
    assert "Traceback" not in stderr
    shared.run("up")
    assert is_quiet(shared)


def test_a_second_launch_on_the_same_cluster_is_refused(unshaped, script):
    launched = unshaped.start("launch", "--", script("time.sleep(600)"))
    try:
        wait_for_ranks(unshaped)
        other = ("--nodes", "4", "--profile", "poor", "--", script("sys.exit(0)"))
        done = unshaped.run("launch", *other, check=1)
        assert "in use" in done.stderr
        assert f"process {launched.pid}" in done.stderr
        assert launched.poll() is None
        status = unshaped.json("status")  # the refused launch has changed nothing
        assert (len(status["nodes"]), status["links"]) == (3, [])
    finally:
        launched.send_signal(signal.SIGINT)
        launched.communicate(timeout=30)


def test_an_interrupted_up_leaves_nothing_half_made(make_cluster):
    cluster = make_cluster("halfway")
    upping = cluster.start("up", "--nodes", "6", "--profile", "mobile")
    eventually(cluster.things)
    time.sleep(0.3)
    upping.send_signal(signal.SIGINT)
    _, stderr = upping.communicate(timeout=60)
    assert upping.returncode == 130, stderr
    assert cluster.things() == []


def wait_for_ranks(cluster):
    eventually(
        lambda: all(
            cluster.exec(f"node{n}", "pgrep", "-f", "job.py", check=False) for n in (1, 2, 3)
        )
    )
