"""A run that stalls reports which rank waits for which, or is ended with that report."""

import re
import signal
import time

import pytest
from containers import last_run
from test_liveness import end, has_process, launch

# Every rank of a ring sends to the next rank and waits for the previous one, at most PATIENCE_S (None: for ever).
RING = """\
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
listener = socket.create_server(("0.0.0.0", 29600))
while True:
    try:
        there = socket.create_connection((f"node{(rank + 1) % size + 1}", 29600))
        break
    except OSError:
        time.sleep(0.1)
here, _ = listener.accept()
here.settimeout(PATIENCE_S)
print("ready", flush=True)
while True:
    there.sendall(b"x" * 1000)
    left = 1000
    while left:
        try:
            got = len(here.recv(left))
        except TimeoutError:
            raise RuntimeError("Timed out waiting 5000ms for recv operation to complete")
        if not got:
            raise RuntimeError("Connection closed by peer")
        left -= got
    time.sleep(0.05)
"""


@pytest.fixture
def ring(tmp_path):
    return write_ring(tmp_path, None)


def write_ring(folder, patience_s):
    path = folder / "job.py"
    path.write_text(RING.replace("PATIENCE_S", str(patience_s)))
    return path


def stop_rank(cluster, node):
    cluster.exec(node, "pkill", "-STOP", "-f", "job.py")


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_the_run_goes_on_once_it_is_let_go(unshaped, ring):
    launched = launch(unshaped, "--", ring)
    stop_rank(unshaped, "node2")
    said = []
    while not said or "holds the others up" not in said[-1]:
        said.append(launched.stderr.readline())
        assert said[-1]
    text = "".join(said)
    assert re.search(r"nothing has moved for [345]\d s", text)
    assert "rank 1 on node2 holds the others up: it is stopped (T)" in text
    # What node1 still sends to it: two messages; three if it was stopped between its own send and its receive.
    assert re.search(
        r"rank 1 on node2: it is stopped .*, has not read [23],000 bytes of node1", text
    )
    assert "rank 0 on node1: it waits (S)" in text
    unshaped.exec("node2", "pkill", "-CONT", "-f", "job.py")
    time.sleep(2)
    assert launched.poll() is None
    launched.send_signal(signal.SIGINT)
    assert end(launched)[0] == 130


def test_stall_timeout_ends_the_run_and_names_the_stopped_rank(unshaped, ring):
    launched = launch(unshaped, "--stall-timeout", "9s", "--", ring)
    stop_rank(unshaped, "node3")
    started = time.monotonic()
    code, stderr = end(launched, 90)
    assert code == 1
    assert time.monotonic() - started < 60
    assert "rank 2 on node3 stalled: it is stopped (T)" in stderr
    assert "ended by --stall-timeout" in stderr
    # A stack of each rank is in its log, and the stalled rank's stack is printed at the end.
    assert re.search(r"  \| +File .*job.py., line \d+ in <module>", stderr)
    for node in ("node1", "node2", "node3"):
        log = (last_run(unshaped, "job") / "logs" / f"{node}.log").read_text()
        assert re.search(
            r"\(most recent call first\):\n +File .*job.py., line \d+ in <module>", log
        )
    assert not has_process(unshaped, "node3", "job.py")


@pytest.mark.slow
def test_ranks_that_work_without_a_word_are_no_stall(unshaped, ring):
    launched = launch(unshaped, "--stall-timeout", "6s", "--", ring)
    time.sleep(14)  # twice the timeout, and time for a report
    assert launched.poll() is None
    launched.send_signal(signal.SIGINT)
    code, stderr = end(launched)
    assert (code, "nothing has moved" in stderr) == (130, False)


@pytest.mark.slow
def test_a_stopped_rank_is_the_root_cause_where_the_others_give_up_waiting(unshaped, tmp_path):
    path = write_ring(tmp_path, 5)
    launched = launch(unshaped, "--", path)
    stop_rank(unshaped, "node2")
    code, stderr = end(launched, 90)
    assert code == 1
    assert "rank 1 on node2 stalled: it is stopped (T)" in stderr


@pytest.mark.slow
def test_a_link_that_is_cut_for_good_ends_the_run_and_is_named(mobile, tmp_path):
    """TCP goes on sending the same bytes, which is no movement."""
    schedule = tmp_path / "cut.yml"
    schedule.write_text("- {at: step 2, link: node1:node2, loss_pct: 100}\n")
    words = ("--no-verify", "--schedule", schedule, "--stall-timeout", "9s")
    done = mobile.run("launch", *words, "--steps", "100000", "--set", "H=1", check=1)
    assert "ended by --stall-timeout: nothing has moved for" in done.stderr
    unheard = re.findall(
        r"(node\d) does not acknowledge what (node\d) sends: the link", done.stderr
    )
    assert unheard and {frozenset(pair) for pair in unheard} == {frozenset({"node1", "node2"})}


COMPUTES = """\
import time
from dataclasses import dataclass

from node.strategies.base import Strategy


@dataclass
class Computes(Strategy):
    '''One rank computes for longer than nothing may move.'''

    def step(self, step: int) -> None:
        self.optimizer.step()
        until = time.monotonic() + (75 if self.comm.rank == 1 else 0)
        while time.monotonic() < until:
            pass
        self.comm.average(self.parameters)
"""


@pytest.mark.nightly
def test_ranks_wait_for_one_that_computes_longer_than_nothing_may_move(unshaped, tmp_path):
    path = tmp_path / "computes.py"
    path.write_text(COMPUTES)
    words = ("--no-verify", "--strategy", f"{path}:Computes", "--steps", "1")
    summary = unshaped.json("launch", *words)
    assert (summary["status"], summary["steps"]) == ("done", 1)
    assert summary["wall_s"] > 75
