"""Limits of single nodes: in force in the container, changed in place, kept, and removed."""

import json
import os
import re
import signal

import yaml
from containers import PROJECT_DIR, TIMEOUT_S, eventually, output

# Ranks 0 and 1 compute for three seconds; rank 2 prints its own limit whenever that changes.
WORK = """\
import os, pathlib, time
def share():
    v2 = pathlib.Path("/sys/fs/cgroup/cpu.max")
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    said = v2.read_text().split() if v2.exists() else [
        (v1 / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    return None if said[0] in ("max", "-1") else int(said[0]) / int(said[1])
started, told = time.monotonic(), ()
if os.environ["RANK"] == "2":
    while time.monotonic() < started + 6:
        if told != (told := share()):
            print("limit", told, flush=True)
        time.sleep(0.02)
else:
    computed = time.process_time()
    while time.monotonic() < started + 3: pass
    computed, took = time.process_time() - computed, time.monotonic() - started
    print("share", computed / took, flush=True)
"""
MEMORY = (
    "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
)


def test_a_slow_node_computes_slowly_and_a_straggler_for_a_while(shared, tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    storm = tmp_path / "storm.yml"
    storm.write_text("- {at: 3s, cpus: {node3: 0.25}, for: 2s}\n")
    containers, most = ids(shared), min(2.0, os.cpu_count())
    shared.run("up", "--cpus", "node2=0.5", "--cpus", f"node3={most}", "--memory", "node2=1g")
    try:
        status = shared.json("up")  # what is not requested stays
        assert [n["cpus"] for n in status["nodes"]] == [None, 0.5, most]
        assert int(shared.exec("node2", "sh", "-c", MEMORY)) == 2**30
        words = ("--no-verify", "--schedule", storm, "--", tmp_path / "work.py")
        done = shared.run("launch", "--json", *words)
        assert [n["cpus"] for n in shared.json("status")["nodes"]] == [None, 0.5, most]
        assert re.search(r" 0\.5 +1g ", shared.run("status").stdout)
    finally:
        shared.run("up", "--cpus", "none", "--memory", "none")
    share = dict(re.findall(r"(node\d) \| share (\S+)", done.stderr))
    # The host may give it less, but never more than half a processor; its own limit is what holds it back.
    assert float(share["node2"]) < 0.55, share
    held_back_s = json.loads(done.stdout)["host"]["throttled_s"]
    assert held_back_s["node2"] > held_back_s["node1"] == 0, (share, held_back_s)
    shares = [line.split()[-1] for line in done.stderr.splitlines() if "| limit" in line]
    assert shares == [f"{most:.1f}", "0.25", f"{most:.1f}"]
    config = yaml.safe_load((run_folder(done) / "run.yml").read_text())
    assert config["limits"]["node2"] == {"cpus": 0.5, "memory_bytes": 2**30}
    assert not any(n["cpus"] or n["memory_bytes"] for n in shared.json("status")["nodes"])
    assert int(shared.exec("node2", "sh", "-c", MEMORY + " | sed s/max/9999999999999/")) > 2**40
    assert ids(shared) == containers  # changed in place


def test_an_interrupted_run_gives_back_what_it_took(mobile, tmp_path):
    (tmp_path / "sleep.py").write_text("import time; time.sleep(60)")
    storm = tmp_path / "storm.yml"
    storm.write_text(
        "- {at: 0s, cpus: {node3: 0.25}}\n- {at: 0s, link: node1:node2, delay_ms: 60}\n"
    )
    before = mobile.json("status")
    words = ("--no-verify", "--schedule", storm, "--", tmp_path / "sleep.py")
    process = mobile.start("launch", *words)
    try:
        eventually(lambda: quota(mobile, "node3") > 0)
        eventually(lambda: mobile.json("status")["links"] != before["links"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert quota(mobile, "node3") <= 0
    assert mobile.json("status") == before


def test_a_new_node_is_born_with_its_limits_and_keeps_them_when_others_come(make_cluster):
    cluster = make_cluster("unlike")
    cluster.run("up", "--nodes", "1", "--cpus", "0.5", "--memory", "node1=512m")
    status = cluster.json("up", "--nodes", "2", "--cpus", "node2=1")
    assert [n["cpus"] for n in status["nodes"]] == [0.5, 1]
    assert int(cluster.exec("node1", "sh", "-c", MEMORY)) == 2**29
    done = cluster.run("up", "--cpus", "node3=1", check=2)
    assert "unknown node 'node3'" in done.stderr
    done = cluster.run("up", "--cpus", "node2=1000", check=2)
    assert "cpus of node2 is 1000, and this machine has" in done.stderr
    assert [n["cpus"] for n in cluster.json("status")["nodes"]] == [0.5, 1]


def ids(cluster):
    names = [cluster.container(f"node{number}") for number in (1, 2, 3)]
    return output(["docker", "inspect", "-f", "{{.Id}}", *names])


def quota(cluster, node):
    return int(
        output(["docker", "inspect", "-f", "{{.HostConfig.CpuQuota}}", cluster.container(node)])
    )


def run_folder(done):
    return PROJECT_DIR / "runs" / json.loads(done.stdout)["run"]
