"""A run in which the host, and not a link, was the limit is marked; one at rest is not.

A host that cannot keep a wire's time is hard to have: beside eight busy loops as important as the wire 6 % of its
packets went late (docs/LOG.md). So the daemon itself is held up here, by signals, as by a host that has no time for it.
"""

import json
import subprocess
from pathlib import Path

import pytest

MARK = "the host, and not the links"

# The daemon stands still for half of every tenth of a second.
HOLD_UP = """\
for _ in $(seq 150); do
  pkill -STOP -x delayer; sleep 0.05; pkill -CONT -x delayer; sleep 0.05
done
"""
# Rank 0 pings node2 for six seconds; the others wait for it, and compute nothing.
PINGS = """\
import os, subprocess, time
if os.environ["RANK"] == "0":
    subprocess.run("ping -q -i 0.01 -c 600 node2".split())
else:
    time.sleep(6)
"""
# All compute for four seconds.
COMPUTE = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass\n"


@pytest.fixture
def pings(tmp_path):
    script = tmp_path / "pings.py"
    script.write_text(PINGS)
    return script


@pytest.fixture
def held_up(mobile):
    """node2's daemon, for as long as the test lasts."""
    holding = mobile.start_exec("node2", "bash", "-c", HOLD_UP)
    yield mobile
    mobile.exec("node2", "pkill", "-f", "seq 150", check=False)
    holding.communicate(timeout=30)
    mobile.exec("node2", "pkill", "-CONT", "-x", "delayer", check=False)


def test_a_run_at_rest_is_not_marked(mobile, pings):
    summary = mobile.json("launch", "--no-verify", "--", pings)
    host = summary["host"]
    # What other machines take of this one's processors is no fault of a run.
    assert [limit for limit in host["limits"] if "other machines" not in limit] == []
    assert set(host["late_pct"]) == set(host["dropped"]) == {"node1", "node2", "node3"}
    assert 0 <= host["steal_pct"] <= host["steal_pct"] + host["idle_pct"] <= 100


def test_a_run_whose_wire_cannot_keep_its_time_is_marked(held_up, pings):
    done = held_up.run("launch", "--no-verify", "--", pings)
    (marked,) = [line for line in done.stdout.splitlines() if MARK in line]
    assert "node2" in marked and "node1" not in marked
    (folder,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("run ")]
    host = json.loads((Path(folder) / "summary.json").read_text())["host"]
    assert host["late_pct"]["node2"] > 20 > 5 > host["late_pct"]["node1"]


def test_a_contract_that_the_host_spoils_says_so(held_up):
    contract = held_up.json("verify", "--quick", check=1)
    (note,) = [note for note in contract["notes"] if MARK in note]
    assert "node2" in note


def test_a_node_that_computes_under_a_limit_of_its_own_is_named(unshaped, tmp_path):
    script = tmp_path / "compute.py"
    script.write_text(COMPUTE)
    limit(unshaped, "node2", 20_000)
    try:
        summary = unshaped.json("launch", "--", script)
    finally:
        limit(unshaped, "node2", -1)
    assert summary["host"]["throttled_s"]["node2"] > 1
    (sentence,) = summary["host"]["limits"]
    assert "node2" in sentence and "limit" in sentence


def limit(cluster, node, quota_us):
    """Of each 100 ms of one core, so many microseconds are the node's; -1 is all it can get."""
    words = ("--cpu-period", "100000", "--cpu-quota", str(quota_us))
    subprocess.run(["docker", "update", *words, f"{cluster.name}-{node}"], check=True)
