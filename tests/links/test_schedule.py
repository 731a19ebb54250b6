"""Links change during a run, when the schedule says so, and are as before at its end."""

import json

import pytest

# Rank 0 says once in a while how far away node2 is, in ms.
PING = """\
import os, subprocess, time
time.sleep(0.5)  # the other ranks still start
for _ in range(35):
    if os.environ["RANK"] == "0":
        said = subprocess.run("ping -q -c 1 -W 1 node2".split(), capture_output=True, text=True).stdout
        print("far", said.rsplit("=", 1)[1].split("/")[0] if "min/avg" in said else -1, flush=True)
    time.sleep(0.2)
"""

# A step takes a tenth of a second: there is time to hear of the fourth while the training goes on.
SLOW_TASK = """\
import time
import torch
from torch.utils.data import TensorDataset


class Line(torch.nn.Linear):
    def forward(self, batch):
        time.sleep(0.1)
        return ((super().forward(batch[0]) - batch[1]) ** 2).mean()


def make_task():
    data = TensorDataset(torch.randn(300, 8), torch.randn(300, 1))
    return Line(8, 1), data, data
"""


def test_links_change_when_the_schedule_says_and_come_back(shared, tmp_path):
    storm, script, profile = tmp_path / "storm.yml", tmp_path / "far.py", tmp_path / "near.yml"
    profile.write_text("rate_mbyte_s: 10\ndelay_ms: 5\n")
    script.write_text(PING)
    storm.write_text(
        "- {at: 2s, link: node1:node2, delay_ms: 60, for: 2s}\n"
        "- {at: 5s, partition: [[node1], [node2, node3]], for: 1s}\n"
    )
    before = shared.json("shape", "--profile", profile)["links"]
    done = shared.run("launch", "--json", "--no-verify", "--schedule", storm, "--", script)
    far = [float(line.split()[-1]) for line in done.stderr.splitlines() if "| far" in line]
    near = [value for value in far if 9 < value < 12]
    assert [value for value in far if 63 < value < 68], far
    assert -1 in far, "nothing was cut"
    assert near[0] == far[0] and len(near) > 10
    assert shared.json("status")["links"] == before
    events = read_events(shared, json.loads(done.stdout))
    assert [event["after_s"] for event in events[:4]] == pytest.approx([2, 4, 5, 6], abs=0.7)
    assert events[0]["what"].startswith("at: 2s, link: node1:node2")
    assert events[1]["what"].startswith("over: ")


def test_a_step_is_a_moment_too(shared, tmp_path):
    storm = tmp_path / "storm.yml"
    storm.write_text("- {at: step 4, link: node1:node3, delay_ms: 99}\n")
    (tmp_path / "mine.py").write_text(SLOW_TASK)
    before = shared.json("shape", "--profile", "wan")["links"]
    words = ("--task", f"{tmp_path}/mine.py:make_task", "--steps", "20", "--batch-size", "8")
    words = (*words, "--schedule", storm)
    summary = shared.json("launch", "--no-verify", *words)
    begun, ended = read_events(shared, summary)
    assert 4 <= begun["step"] < 20
    assert ended["what"] == "the end: as before"
    assert shared.json("status")["links"] == before


def test_a_schedule_that_cannot_be_starts_nothing(shared, tmp_path):
    storm = tmp_path / "storm.yml"
    shared.run("shape", "--profile", "wan")
    storm.write_text("- {at: 1s, link: node1:node9, delay_ms: 1}\n")
    done = shared.run("launch", "--no-verify", "--schedule", storm, "--steps", "2", check=2)
    assert "unknown link 'node1:node9'" in done.stderr
    assert "startup" not in done.stdout


def read_events(cluster, summary):
    path = cluster.state_dir.parents[1] / "runs" / summary["run"] / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
