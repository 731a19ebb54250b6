"""A learner and its actors on real nodes: an actor that is killed is restarted, and everything is accounted for."""

import json
import re
from pathlib import Path

import pytest
from containers import TIMEOUT_S

SHORT = {
    "learn_after": 500,
    "most_steps": 16,
    "pull_every": 50,
    "eval_instances": 10,
    "eval_most_steps": 16,
}
MAPF = ("--task", "mapf", "--batch-size", "16")
OPTIONS = [word for key, value in SHORT.items() for word in ("--task-set", f"{key}={value}")]


@pytest.mark.slow
def test_a_learner_learns_over_wan_and_an_actor_that_is_killed_comes_back(shared):
    shared.run("up", "--nodes", "3", "--profile", "wan")
    launched = shared.start("launch", "--json", "--no-verify", *MAPF, *OPTIONS, "--steps", "200")
    said = []
    for line in launched.stderr:
        said.append(line)
        if (step := re.search(r"step (\d+)/", line)) and int(step[1]) >= 20:
            break
    shared.exec("node3", "pkill", "-9", "-f", "node.train")
    stdout, stderr = launched.communicate(timeout=TIMEOUT_S)
    said = "".join(said) + stderr
    assert launched.returncode == 0, said
    assert "rank 2 on node3 was killed by SIGKILL; started again (1 of 3)" in said
    summary = json.loads(stdout)
    assert summary["run"].endswith("-wan-mapf")
    assert (summary["status"], summary["steps"]) == ("done", 200)
    assert summary["exit_codes"] == {"node1": 0, "node2": 0, "node3": 0}
    assert summary["restarts"] == {"node3": 1}
    assert {"test_success", "cbs_success", "cbs_steps"} <= summary["tested"].keys()
    experience = summary["experience"]
    assert experience["actors"]["node3"]["lives"] == 2
    assert experience["actors"]["node2"]["lives"] == 1
    for actor in experience["actors"].values():
        assert actor["pieces"] > 0
        assert actor["weights_age_s"] > 0 and actor["predicted_weights_age_s"] > 0
    assert experience["bytes"]["weights"] > 0 and experience["bytes"]["experience"] > 0
    folder = Path(summary["folder"])
    assert (folder / "model.pt").is_file()
    lines = (folder / "metrics" / "node3.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("start") == 2 and events[-1] == "end"


@pytest.mark.slow
def test_what_links_carry_is_what_messages_need(shared):
    """No rank is killed, so every rank reports what it has sent."""
    words = (*MAPF, *OPTIONS, "--steps", "30", "--task-set", "pull_every=10")
    done = shared.run("launch", "--nodes", "3", "--profile", "wan", "--no-verify", *words)
    assert "WEIGHTS' AGE s" in done.stdout and "PREDICTED s" in done.stdout
    assert "test success" in done.stdout
    folder = Path(done.stdout.splitlines()[-1].split()[-1])
    summary = json.loads((folder / "summary.json").read_text())
    loop = summary["bytes"]["loop"]
    assert 0.95 < loop["ratio"] < 1.05, loop
    assert loop["off"] == []


def test_a_learner_without_actors_is_refused_before_anything_starts(shared):
    refused = shared.run("launch", "--nodes", "1", *MAPF, check=2)
    assert "no actors: rank 0 learns and the other ranks act" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 2


@pytest.mark.nightly
def test_an_actor_that_is_cut_off_loses_nothing_and_comes_back(shared, tmp_path):
    """The cut is longer than a connection may be silent, so the connection is closed and opened again."""
    schedule = tmp_path / "cut.yml"
    schedule.write_text("- {at: step 50, partition: [[node1, node2], [node3]], for: 20s}\n")
    words = (*MAPF, *OPTIONS, "--steps", "2500", "--schedule", schedule)
    summary = shared.json("launch", "--nodes", "3", "--profile", "wan", "--no-verify", *words)
    assert summary["status"] == "done" and summary["restarts"] == {}
    actors = summary["experience"]["actors"]
    assert actors["node2"]["connections"] == 1
    assert actors["node3"]["connections"] >= 2 and actors["node3"]["lives"] == 1
    # The pieces that it made and the learner never got were in flight at the end: a window of 16, and those that the
    # other seven of eight environments finished in the step that filled it.
    assert actors["node3"]["not_handed_over"] <= 16 + 7
    lines = (Path(summary["folder"]) / "metrics" / "node1.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if line["event"] == "step"]
    slowest_s = max(b["time"] - a["time"] for a, b in zip(steps, steps[1:], strict=False))
    assert slowest_s < 10  # the learner does not wait for an actor
