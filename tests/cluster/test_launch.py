"""The main use case: a training on three ranks over mobile links, and all of its results."""

import json
import os
from pathlib import Path

import pytest
import yaml
from containers import output

STEPS = 40


@pytest.fixture(scope="module")
def trained(shared):
    """One short training, launched once for all tests of this file, with a report as users get it."""
    shared.run("up", "--nodes", "3", "--profile", "mobile")
    args = ["--profile", "mobile", "--strategy", "fedavg", "--set", "H=20", "--steps", str(STEPS)]
    args += ["--batch-size", "16"]
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    args += ["--json", "--no-verify", "--eval-every", "20"]
    done = shared.run("launch", *args, env=environ)
    return json.loads(done.stdout), done.stderr


def test_the_summary_has_what_a_reader_looks_for(trained):
    summary, _ = trained
    assert summary["status"] == "done"
    assert summary["exit_codes"] == {"node1": 0, "node2": 0, "node3": 0}
    assert summary["steps"] == STEPS
    assert summary["wall_s"] > 0
    assert summary["test_accuracy"] > 0.5  # after two syncs; guessing has 0.1
    assert summary["final_loss"] < 2.3  # the loss of guessing among ten classes


def test_the_links_carried_what_the_algorithm_should_send(trained):
    """Two averages of 4.8 MB by ring all-reduce: every rank sends 2(N-1)/N of it, in two rounds of the ring."""
    summary, _ = trained
    carried = summary["bytes"]
    model_bytes = 4 * 1_199_882
    assert carried["payload"] == pytest.approx(2 * 3 * 4 / 3 * model_bytes, rel=0.01)
    assert carried["measured_over_expected"] == pytest.approx(1, abs=0.05)
    assert carried["total"] == sum(carried["links"].values())
    assert len(carried["links"]) == 6


def test_each_link_carried_what_the_ranks_sent_over_it(trained):
    """Counters are read on the nodes at the start and end of their loops; an all-reduce sends to the previous rank."""
    summary, _ = trained
    loop = summary["bytes"]["loop"]
    assert loop["ratio"] == pytest.approx(1, abs=0.05)
    assert loop["off"] == []
    assert loop["payload"] == summary["bytes"]["payload"]
    for link in ("node1->node3", "node3->node2", "node2->node1"):
        row = loop["links"][link]
        assert row["payload"] == pytest.approx(loop["payload"] / 3, rel=0.01)
        assert row["ratio"] == pytest.approx(1, abs=0.05), link


def test_no_collective_was_faster_than_its_links(trained):
    summary, _ = trained
    assert summary["bounds"] == "asked"  # no links were measured before this run
    rows = {row["purpose"]: row for row in summary["collectives"]}
    assert (rows["train"]["kind"], rows["train"]["count"]) == ("all_reduce", 2)
    assert rows["train"]["bytes"] == 4 * 1_199_882
    for row in rows.values():
        assert row["timed"] == row["count"]
        assert row["ratio"] >= 0.95, row
        assert 0 < row["links_bound_s"] <= row["gloo_bound_s"]
        assert row["seconds"] == pytest.approx(row["gloo_bound_s"] * row["ratio"], rel=0.01)


def test_seconds_are_accounted_for(trained):
    summary, _ = trained
    for node, seconds in summary["seconds"].items():
        parts = [value for key, value in seconds.items() if key != "total"]
        assert min(parts) >= 0, node
        assert sum(parts) == pytest.approx(seconds["total"], rel=0.01), node
        assert seconds["total"] <= summary["wall_s"], node
    # Node 1 tests at the end, so it is the last to finish. The launcher's clock also counts SSH and Python's start.
    assert seconds_of(summary, "node1") > 0.8 * summary["wall_s"]


def seconds_of(summary, node):
    return summary["seconds"][node]["total"]


def test_waiting_for_a_slower_rank_is_told_from_the_links(trained, shared):
    """Node 1 tests after step 20, while the others reach step 40 and wait for it, however long their own steps took."""
    summary, _ = trained
    metrics = shared.state_dir.parents[1] / "runs" / summary["run"] / "metrics"
    started = {node: collective_starts(metrics, node) for node in summary["seconds"]}
    last_start = {step: max(times[step] for times in started.values()) for step in (0, 20, 40)}
    assert last_start[40] == started["node1"][40]  # a test takes longer than 20 steps
    took_s = 2 * next(r["seconds"] for r in summary["collectives"] if r["purpose"] == "train")
    for node, seconds in summary["seconds"].items():
        waiting_s = sum(last_start[step] - time for step, time in started[node].items())
        assert seconds["waiting"] == pytest.approx(waiting_s, rel=0.01, abs=0.05), node
        assert seconds["transfer"] > 0.7 * took_s


def collective_starts(metrics, node):
    """Return by step when a rank started the collective of that step; there is one at most."""
    lines = (metrics / f"{node}.collectives.jsonl").read_text().splitlines()
    return {line["step"]: line["time"] for line in map(json.loads, lines)}


def test_the_run_folder_has_everything(trained, shared):
    summary, _ = trained
    folder = shared.state_dir.parents[1] / "runs" / summary["run"]
    assert (folder / "hostfile").read_text() == "node1 slots=1\nnode2 slots=1\nnode3 slots=1\n"
    config = yaml.safe_load((folder / "run.yml").read_text())
    assert config["training"]["strategy_options"]["H"] == 20
    assert config["shaping"]["profile"]["name"] == "mobile"
    assert config["image_id"].startswith("sha256:") and config["node_hosts"] == {}
    assert json.loads((folder / "links.json").read_text()) == summary["links"]
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert (folder / "model.pt").stat().st_size > 4_000_000
    assert (folder / "report.html").read_text().count("<path ") > 10  # pictures, unlike others here
    for rank, node in enumerate(("node1", "node2", "node3")):
        assert f"rank {rank} of 3" in (folder / "logs" / f"{node}.log").read_text()
        lines = (folder / "metrics" / f"{node}.jsonl").read_text().splitlines()
        steps = [line for line in map(json.loads, lines) if line["event"] == "step"]
        assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
        assert {"loss", "compute_s", "comm_s", "sent_bytes"} <= set(steps[0])
        text = (folder / "metrics" / f"{node}.collectives.jsonl").read_text()
        collectives = [json.loads(line) for line in text.splitlines()]
        assert [line["step"] for line in collectives] == [0, 20, 40]


def test_a_link_is_the_same_wherever_it_appears(trained, shared):
    summary, _ = trained
    keys = {"src", "dst", "rate_mbyte_s", "delay_ms", "jitter_ms", "loss_pct", "buffer_ms", "wire"}
    keys |= {"loss_burst", "duplicate_pct", "corrupt_pct", "reorder_pct", "distribution"}
    for links in (summary["links"], shared.json("status")["links"]):
        assert all(set(link) == keys for link in links)
        assert {link["wire"] for link in links} <= {"netem", "nfqueue"}


def test_docker_logs_and_the_logs_verb_show_what_a_rank_printed(trained, shared):
    assert "rank 1 of 3" in output(["docker", "logs", shared.container("node2")])
    shown = shared.run("logs", "node2", "node3", "--grep", r"rank \d of 3").stdout.splitlines()
    assert any(line.startswith("node2 | rank 1 of 3") for line in shown)
    assert any(line.startswith("node3 | rank 2 of 3") for line in shown)
    assert not any(line.startswith("node1") for line in shown)


def test_logs_can_be_followed_live(unshaped, tmp_path):
    script = tmp_path / "talk.py"
    script.write_text(
        "import time\nprint('first words', flush=True)\ntime.sleep(4)\nprint('last words')\n"
    )
    follower = unshaped.start("logs", "-f", "node2", "--tail", "1")
    try:
        launched = unshaped.start("launch", "--", script)
        seen = ""
        while "first words" not in seen:
            seen = follower.stdout.readline()
        assert launched.poll() is None, "the words came only after the end"
        assert launched.wait(timeout=60) == 0
    finally:
        follower.terminate()
        follower.communicate()
        launched.communicate()


def test_training_by_hand_as_in_the_docker_guide(unshaped):
    """Without the launcher: the same command on every node, over plain SSH."""
    from concurrent.futures import ThreadPoolExecutor

    def train(rank):
        words = f"python -m node.train --master-addr node1 --master-port 29511 --nnodes 3 --node-rank {rank} --steps 3"
        words += " --task-set test_pictures=200"
        return unshaped.ssh(f"node{rank + 1}", *words.split())

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(train, range(3)))
    assert [done.returncode for done in results] == [0, 0, 0], results[0].stderr
    assert "test_accuracy" in results[0].stdout


def test_a_dry_run_prints_the_plan_and_does_nothing(make_cluster):
    cluster = make_cluster("dry")
    flags = ("--profile", "wan", "--nodes", "2", "--steps", "5", "--cpus", "node2=0.5")
    plan = cluster.json("launch", "--dry-run", *flags)
    assert [node["name"] for node in plan["nodes"]] == ["node1", "node2"]
    assert [node["cpus"] for node in plan["nodes"]] == [None, 0.5]
    assert plan["plans"]["node1"]["links"][0]["rate_mbyte_s"] >= 10
    assert plan["environment"]["node2"]["RANK"] == "1"
    assert "--steps" in plan["argv"]
    assert cluster.things() == []


def test_ranks_find_the_environment_that_the_dry_run_shows(shared, tmp_path):
    """Also the environment that a topology file implies and, without --profile, that of the links in force."""
    topology = tmp_path / "line.yml"
    topology.write_text("links:\n- ends: [node1, node2]\n- ends: [node2, node3]\nisolated: true\n")
    script = tmp_path / "show.py"
    script.write_text(
        "import json, os\nopen(os.environ['GRADWIRE_RUN_DIR'] + '/env.json', 'w').write(json.dumps(dict(os.environ)))\n"
    )
    shared.run("up", "--nodes", "3")
    for links in (["--profile", "wan", "--topology", topology], []):
        words = [*links, "--no-verify", "--", script]
        planned = shared.json("launch", "--dry-run", *words)["environment"]
        run = shared.json("launch", *words)
        for node, expected in planned.items():
            found = json.loads((Path(run["folder"]) / "files" / node / "env.json").read_text())
            expected = {k: v.replace("RUN", run["run"]) for k, v in expected.items()}
            assert {k: found[k] for k in expected} == expected
            assert found["TORCH_GLOO_LAZY_INIT"] == "1"


def test_the_python_api_takes_down_what_it_brought_up(make_cluster, tmp_path):
    from cluster import Cluster
    from cluster.run.program import user_program

    cluster = make_cluster("api")
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    with Cluster(cluster.name, nodes=2, profile="wan") as c:
        run = c.launch(user_program([str(script)]), verify=False)
        assert run.summary["exit_codes"] == {"node1": 0, "node2": 0}
    assert cluster.things() == []
