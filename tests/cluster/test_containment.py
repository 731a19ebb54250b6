"""Limits on what a program on a node can take of the host: processes, disk for its output, privileges."""

import json
from pathlib import Path

import pytest
from containers import PREFIX, Gradwire, output, tear_down

PIDS_LIMIT = 4096
KEPT_BYTES = 2 * 20 * 10**6  # two files of Docker's log

BOMB = f"""\
import os, signal, sys, threading
if os.environ["RANK"] != "0":
    sys.exit()
threading.stack_size(64 * 1024)
stop = threading.Event()
made = 0
try:
    while made < {PIDS_LIMIT} + 100:
        if made % 64:  # threads count as processes do, and cost the machine that runs this test less
            threading.Thread(target=stop.wait, daemon=True).start()
        elif os.fork() == 0:
            signal.pause()
        made += 1
except (OSError, RuntimeError) as error:
    print("refused after", made, flush=True)
os.killpg(0, signal.SIGKILL)
"""

NOISE = """\
import os
line = "x" * 999
for _ in range(60_000 if os.environ["RANK"] == "0" else 0):
    print(line)
print("the last line")
"""

# Attempts to spoil the links or the wire's timing, and what ranks do all the time; mostly in child processes.
TRIES = """\
import os, subprocess
def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True)
def nice(value):
    try:
        os.setpriority(os.PRIO_PROCESS, 0, value)
    except PermissionError:
        return "refused"
status = open("/proc/self/status").read()
print("mask", int(status.split("CapEff:")[1].split()[0], 16) & (1 << 12 | 1 << 23))
print("tc", run("tc", "qdisc", "del", "dev", os.environ["GLOO_SOCKET_IFNAME"], "root").stderr.strip())
print("iptables", run("iptables", "-t", "raw", "-F").returncode != 0)
print("again", run("setpriv", "--inh-caps", "+net_admin", "true").returncode != 0)
print("nice", nice(-20), os.getpriority(os.PRIO_PROCESS, 0))
print("chrt", run("chrt", "-f", "1", "true").returncode != 0)
print("looks", run("tc", "qdisc", "show").returncode, run("ss", "-tinp").returncode, run("ip", "route").returncode)
print("ping", run("ping", "-c", "1", "node1").returncode)
print("oom", open("/proc/self/oom_score_adj").read().strip())
"""


@pytest.fixture(scope="module")
def lab(request):
    """A separate cluster of two nodes, because these tests may damage it."""
    cluster = Gradwire(f"{PREFIX}contained")
    cluster.run("up", "--nodes", "2", "--profile", "local")
    yield cluster
    tear_down(cluster, request)


def test_a_program_that_forks_without_end_has_its_node_and_no_more(lab, tmp_path):
    (tmp_path / "bomb.py").write_text(BOMB)
    done = lab.run("launch", "--no-verify", "--", tmp_path / "bomb.py", check=1)
    refused = [line for line in done.stdout.splitlines() if "refused after" in line]
    assert len(refused) == 1, done.stdout
    assert PIDS_LIMIT - 200 < int(refused[0].split()[-1]) < PIDS_LIMIT
    assert lab.ssh("node1", "true").returncode == 0  # the node still works


def test_of_what_a_rank_prints_docker_keeps_the_last_part(lab, tmp_path):
    (tmp_path / "noise.py").write_text(NOISE)
    summary = lab.json("launch", "--no-verify", "--", tmp_path / "noise.py")
    log = output(["tail", "-n", "1", f"{summary['folder']}/logs/node1.log"])
    assert log == "the last line\n"  # the run's own log is complete
    kept = output(["docker", "logs", lab.container("node1")])
    assert 10**6 < len(kept) <= KEPT_BYTES
    # The limit must not depend on this engine's defaults.
    asked = [
        "docker",
        "inspect",
        "--format",
        "{{json .HostConfig.LogConfig}}",
        lab.container("node1"),
    ]
    assert json.loads(output(asked)) == {
        "Type": "json-file",
        "Config": {"max-size": "20m", "max-file": "2"},
    }


def test_nobody_becomes_more_than_he_is(lab):
    assert "NoNewPrivs:\t1" in lab.exec("node1", "cat", "/proc/1/status")
    assert "NoNewPrivs:\t1" in lab.ssh("node1", "cat", "/proc/self/status").stdout
    lab.exec("node1", "install", "-m", "4755", "/usr/bin/id", "/tmp/setuid-id")
    assert "euid=0" not in lab.exec("node1", "setpriv", "--reuid", "65534", "/tmp/setuid-id")
    assert lab.ssh("node1", "ssh", "node2", "hostname").stdout == "node2\n"


def test_a_rank_cannot_change_links_nor_go_before_the_wire_and_a_login_can(lab, tmp_path):
    (tmp_path / "tries.py").write_text(TRIES)
    done = lab.run("launch", "--no-verify", "--", tmp_path / "tries.py")
    said = {line.removeprefix("node1 | ") for line in done.stdout.splitlines() if "node1 |" in line}
    assert said == {
        "mask 0",
        "tc RTNETLINK answers: Operation not permitted",
        "iptables True",
        "again True",
        "nice refused 19",
        "chrt True",
        "looks 0 0 0",
        "ping 0",
        "oom 1000",
    }
    assert lab.ssh("node1", "nice", "-n", "-5", "tc", "qdisc", "show").returncode == 0
    assert lab.ssh("node1", "cat", "/proc/self/oom_score_adj").stdout.strip() == "0"
    lab.run("shape", "--link", "node1:node2", "--delay", "20")  # and so can the node's own command


def test_a_token_among_the_arguments_reaches_the_program_and_no_file(lab, tmp_path):
    (tmp_path / "args.py").write_text(
        "import sys\nprint(sys.argv[1:] == ['--hf-token', 'ge' 'heim'])"
    )
    words = (tmp_path / "args.py", "--hf-token", "geheim")
    folder = Path(lab.json("launch", "--no-verify", "--", *words)["folder"])
    assert (folder / "logs" / "node1.log").read_text() == "True\n"
    files = [path for top in (folder, lab.state_dir) for path in top.rglob("*") if path.is_file()]
    assert [path for path in files if b"geheim" in path.read_bytes()] == []
    again = lab.run("launch", "-f", folder, check=2)
    assert "does not keep the value of --hf-token" in again.stderr
