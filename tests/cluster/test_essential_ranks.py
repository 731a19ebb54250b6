"""A run continues without ranks that are not essential: a failed rank is restarted, another one's node is killed."""

import json
import subprocess
from pathlib import Path

import pytest

from cluster.reporting.read_run import read_run

# Rank 0 accepts the others until the file `over` exists; the others end when rank 0 does.
LEARNER_AND_ACTORS = """\
import os, socket, time
rank, life = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
folder = os.environ["GRADWIRE_RUN_DIR"]
if rank == 0:
    listener = socket.create_server(("0.0.0.0", 29600))
    listener.settimeout(0.1)
    kept = []
    while not os.path.exists(f"{folder}/over"):
        try:
            kept.append(listener.accept()[0])
        except TimeoutError:
            continue
        print("heard of", kept[-1].makefile().readline().strip(), flush=True)
    raise SystemExit
while True:
    try:
        learner = socket.create_connection(("node1", 29600))
        break
    except OSError:
        time.sleep(0.1)
learner.sendall(f"rank {rank}, life {life}\\n".encode())
if (rank, life) == (2, "0"):
    os.kill(os.getpid(), 9)
with open(f"{folder}/life", "w") as file:
    file.write(life + " of " + os.environ["TORCHELASTIC_MAX_RESTARTS"])
learner.recv(1)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "actors.py"
    path.write_text(LEARNER_AND_ACTORS)
    return path


def read_until(stream, words):
    said = [""]
    while words not in said[-1]:
        said.append(stream.readline())
        assert said[-1], "".join(said)
    return said[-1].strip()


def test_a_killed_rank_comes_back_a_killed_node_does_not_and_the_run_is_done(shared, program):
    shared.run("up", "--nodes", "3")
    shared.run("shape", "--clear")
    launched = shared.start("launch", "--json", "--essential-ranks", "0", "--", program)
    try:
        again = read_until(launched.stderr, "started again")
        assert again == "rank 2 on node3 was killed by SIGKILL; started again (1 of 3)"
        read_until(launched.stderr, "heard of rank 2, life 1")
        subprocess.run(
            ["docker", "kill", shared.container("node2")], check=True, capture_output=True
        )
        gone = read_until(launched.stderr, "goes on without it")
        assert gone == "rank 1 on node2 was lost (its connection broke); the run goes on without it"
        shared.exec("node1", "sh", "-c", "cd /run/gradwire/runs/*-actors && touch over")
        stdout, stderr = launched.communicate(timeout=60)
    finally:
        launched.kill()
        shared.run("up")
    assert launched.returncode == 0, stderr
    assert "node2: what its ranks left could not be fetched: the connection broke" in stderr
    summary = json.loads(stdout)
    assert (summary["status"], summary["restarts"]) == ("done", {"node3": 1})
    assert summary["exit_codes"] == {"node1": 0, "node2": -1000, "node3": 0}
    assert (list(summary["not_fetched"]), summary["failure"]) == (["node2"], "")
    assert read_run(Path(summary["folder"])).status == "done"
    folder = Path(summary["folder"])
    assert (folder / "files" / "node3" / "life").read_text() == "1 of 3"
    assert again in (folder / "logs" / "node3.log").read_text()


def test_an_essential_rank_that_fails_ends_the_others(unshaped, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import os, time\ntime.sleep(1)\nif os.environ['RANK'] == '1': raise SystemExit(7)\ntime.sleep(600)\n"
    )
    done = unshaped.run("launch", "--json", "--essential-ranks", "0,1", "--", script, check=1)
    assert "rank 1 on node2 ended with exit code 7: the root cause" in done.stderr
    assert json.loads(done.stdout)["exit_codes"] == {"node1": -15, "node2": 7, "node3": -15}
