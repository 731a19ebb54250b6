"""A rank or node that stops answering is named, and the run ends in bounded time: paused, cut off, starved, forging."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from containers import TIMEOUT_S, eventually, paused

SLEEP = """\
import os, signal, time
{first}
print("ready", flush=True)
time.sleep(600)
"""
LEFT_BEHIND = """\
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "leftover"], start_new_session=True)
daemon = "import os, sys, time\\nos.fork() and sys.exit()\\nos.setsid()\\nwhile True: print('leftover')"
subprocess.run([sys.executable, "-c", daemon, "leftover"])
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "job.py"
        path.write_text(text)
        return path

    return write


def docker(*argv):
    return subprocess.run(["docker", *argv], check=True, capture_output=True, text=True).stdout


def launch(cluster, *args, ranks=3):
    """Start a launch, and wait until its ranks have printed that they are ready."""
    launched = cluster.start("launch", *args)
    said = []
    while sum("| ready" in line or "| step 1" in line for line in said) < ranks:
        said.append(launched.stdout.readline())
        assert said[-1], launched.communicate()[1]
    return launched


def end(launched, timeout_s=TIMEOUT_S):
    """Wait for the launch to end; return its exit code and standard error."""
    _, stderr = launched.communicate(timeout=timeout_s)
    assert "Traceback" not in stderr
    return launched.returncode, stderr


def has_process(cluster, node, word):
    return bool(cluster.exec(node, "pgrep", "-f", word, check=False))


def is_free(cluster, node):
    """Return whether no rank holds the node's lock."""
    argv = ["docker", "exec", cluster.container(node), "flock", "-n", "/run/gradwire/rank.lock"]
    return subprocess.run([*argv, "true"], capture_output=True).returncode == 0


def test_a_paused_node_is_named_the_others_results_come_home_and_its_rank_ends_later(unshaped):
    launched = launch(unshaped, "--steps", "100000", "--set", "H=100000", ranks=1)
    with paused(unshaped.container("node2")):
        code, stderr = end(launched)  # although the node never came back
    eventually(lambda: is_free(unshaped, "node2"), every_s=0.5)
    assert not has_process(unshaped, "node2", "node.train")
    assert code == 1, stderr
    assert "rank 1 on node2 was lost (its container is paused: docker unpause" in stderr
    folder = Path(re.search(r"see: (\S+)/logs/", stderr)[1])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert {path.name for path in (folder / "metrics").glob("node?.jsonl")} >= {
        "node1.jsonl",
        "node3.jsonl",
    }


@pytest.mark.slow
def test_an_interrupt_ends_a_launch_although_a_node_is_paused(unshaped, script):
    launched = launch(unshaped, "--", script(SLEEP.format(first="")))
    with paused(unshaped.container("node2")):
        launched.send_signal(signal.SIGTERM)
        code, stderr = end(launched)
    assert code == 130, stderr


def test_a_node_whose_network_is_cut_is_lost_and_frees_itself(unshaped, script):
    launched = launch(unshaped, "--", script(SLEEP.format(first="")))
    name = unshaped.container("node3")
    (network,) = json.loads(docker("inspect", name))[0]["NetworkSettings"]["Networks"]
    address = json.loads(docker("inspect", name))[0]["NetworkSettings"]["Networks"][network]
    docker("network", "disconnect", network, name)
    try:
        code, stderr = end(launched)
        assert code == 1
        assert "rank 2 on node3 was lost (its container is connected to no network)" in stderr
        eventually(lambda: is_free(unshaped, "node3"), timeout_s=120, every_s=0.5)
    finally:
        ip = address["IPAddress"]
        docker("network", "connect", "--ip", ip, "--alias", "node3", network, name)
        unshaped.run("down")
        unshaped.run("up", "--nodes", "3")


def test_a_rank_that_uses_too_much_memory_is_said_to(make_cluster, script):
    cluster = make_cluster("memory")
    cluster.run("up", "--nodes", "2", "--memory", "node2=200m")
    hog = "import os, time\nif os.environ['RANK'] == '1': x = bytearray(10**9)\ntime.sleep(600)\n"
    done = cluster.run("launch", "--json", "--", script(hog), check=1)
    assert "rank 1 on node2 was killed for lack of memory" in done.stderr
    assert json.loads(done.stdout)["exit_codes"]["node2"] == -9


def test_a_rank_killed_by_a_real_time_signal_is_named(unshaped, script):
    path = script(SLEEP.format(first="if os.environ['RANK'] == '1': os.kill(os.getpid(), 40)"))
    done = unshaped.run("launch", "--", path, check=1)
    assert re.search(r"rank 1 on node2 was killed by SIGRTMIN\+\d: the root cause", done.stderr)


def test_a_second_ctrl_c_ends_a_launch_at_once(unshaped, script):
    deaf = "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))"
    launched = launch(unshaped, "--", script(SLEEP.format(first=deaf)))
    launched.send_signal(signal.SIGINT)
    while not (line := launched.stdout.readline()).endswith("| told\n"):
        assert line, "the ranks were not told to end"
    time.sleep(0.6)  # by then a second press is no longer taken for the same one
    assert launched.poll() is None  # it waits for ranks that ignore SIGTERM
    launched.send_signal(signal.SIGINT)
    code, stderr = end(launched)
    assert (code, "ended at once, without cleaning up" in stderr) == (130, True)
    eventually(lambda: all(is_free(unshaped, f"node{n}") for n in (1, 2, 3)), 40, every_s=0.5)


@pytest.mark.parametrize("words", ["5", "null", '{"exit_code": []}'])
def test_a_rank_that_forges_its_report_hangs_nobody(unshaped, script, words):
    """The rank writes a report in the name of its supervisor, and kills the supervisor."""
    forge = (
        f"if os.environ['RANK'] == '1':\n"
        f"    with open(f'/proc/{{os.getppid()}}/fd/2', 'w') as report: report.write({words!r})\n"
        f"    os.kill(os.getppid(), 9)"
    )
    done = unshaped.run("launch", "--", script(SLEEP.format(first=forge)), check=1)
    assert "rank 1 on node2" in done.stderr
    assert not has_process(unshaped, "node2", "job.py")  # the rank ends with its supervisor


def test_what_outlives_a_killed_supervisor_is_ended_by_the_next_run_which_says_so(
    unshaped, script, tmp_path
):
    code = (
        "import os, subprocess, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    sleep = [sys.executable, '-c', 'import time; time.sleep(600)', 'leftover']\n"
        "    subprocess.Popen(sleep, start_new_session=True)\n"
        "    os.kill(os.getppid(), 9)\n"
    )
    unshaped.run("launch", "--", script(code), check=1)
    assert has_process(unshaped, "node2", "leftover")
    (tmp_path / "next.py").write_text("print('done')")
    done = unshaped.run("launch", "--", tmp_path / "next.py")
    assert "node2 | left behind by an earlier run, and ended: " in done.stdout
    assert not has_process(unshaped, "node2", "leftover")


def test_output_without_newlines_is_shown_in_pieces_and_in_linear_time(unshaped, script):
    """As one line, 40 MB once took three times as long as in many lines (31 and 10.5 s, on a busy machine)."""

    def took_s(text):
        path = script(f"import os\nif os.environ['RANK'] == '0': os.write(1, {text})\n")
        started = time.monotonic()
        done = unshaped.run("launch", "--", path)
        assert done.stdout.count("x") == 4 * 10**7
        return time.monotonic() - started

    with_newlines_s = took_s("(b'x' * 4000 + b'\\n') * 10**4")
    assert took_s("b'x' * (4 * 10**7)") < 2 * with_newlines_s + 5


def test_what_a_rank_leaves_running_ends_with_it(unshaped, script):
    unshaped.run("launch", "--", script(LEFT_BEHIND))
    assert not any(has_process(unshaped, f"node{n}", "leftover") for n in (1, 2, 3))
