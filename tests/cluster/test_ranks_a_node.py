"""Several ranks per node: each has its place, log and error message; links carry only what leaves a node."""

import json
import re
from pathlib import Path

import pytest

# The training below tests that six ranks meet: six imports of torch take half a minute.
PROGRAM = """\
import os, sys, time

rank, node, local, size = (
    os.environ[key] for key in ("RANK", "GROUP_RANK", "LOCAL_RANK", "WORLD_SIZE")
)
print(f"rank {rank} is {local} on {node} of {size}", flush=True)

def fail():
    raise ValueError("out of cheese")

if sys.argv[1:] == [rank]:
    from torch.distributed.elastic.multiprocessing.errors import record
    record(fail)()
if sys.argv[1:]:
    time.sleep(600)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "several.py"
    path.write_text(PROGRAM)
    return path


def test_every_rank_has_its_place_and_its_log(unshaped, program):
    done = unshaped.run("launch", "--nproc-per-node", "2", "--", program)
    for rank in range(6):
        name = f"node{rank // 2 + 1}-{rank % 2}"
        assert f"{name} | rank {rank} is {rank % 2} on {rank // 2} of 6" in done.stdout
    run = Path(re.search(r"^run +(.+)$", done.stdout, re.MULTILINE)[1])
    assert len(list((run / "logs").glob("node?-?.log"))) == 6
    assert (run / "hostfile").read_text().splitlines()[0] == "node1 slots=2"


def test_the_rank_that_failed_is_told_from_its_neighbour_by_its_own_words(unshaped, program):
    done = unshaped.run("launch", "--json", "--nproc-per-node", "2", "--", program, "3", check=1)
    assert "rank 3 on node2 ended with exit code 1: the root cause" in done.stderr
    assert "  ValueError: out of cheese" in done.stderr
    assert "logs/node2-1.log" in done.stderr
    codes = json.loads(done.stdout)["exit_codes"]
    assert codes.pop("node2-1") == 1
    assert set(codes.values()) == {-15}
    assert unshaped.exec("node2", "pgrep", "-f", "several.py", check=False) == ""


@pytest.mark.nightly
def test_links_carry_what_leaves_a_node(shared):
    """A ring of six ranks on three nodes: each node's second rank sends to its first, over no link."""
    words = ["--steps", "4", "--batch-size", "8", "--strategy", "fedavg", "--set", "H=4"]
    words += ["--profile", "wan", "--no-verify", "--nproc-per-node", "2"]
    summary = shared.json("launch", *words)
    carried = summary["bytes"]
    # One average of 4.8 MB round a ring of six, three of whose hops are links.
    assert carried["payload"] == pytest.approx(3 * 2 * 5 / 6 * 4 * 1_199_882, rel=0.01)
    assert carried["loop"]["ratio"] == pytest.approx(1, abs=0.05)
    assert carried["loop"]["off"] == []
    assert len(summary["seconds"]) == 6
    [train] = [row for row in summary["collectives"] if row["purpose"] == "train"]
    assert train["ratio"] >= 0.95
