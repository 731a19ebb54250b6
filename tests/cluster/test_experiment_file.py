"""A launch from experiment.yml, and a repetition of its run from run.yml: the same losses and scheduled events."""

import json
from pathlib import Path

EXPERIMENT = """\
kind: experiment
nodes: 2
profile: ./near.yml
options: {strategy: fedavg, set: {H: 2}, batch-size: 8, steps: 4, task-set: {test_pictures: 200}}
schedule:
  - {at: 0s, link: node1:node2, both: true, delay_ms: 30}
verify: false
"""


def lines(folder, name):
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


def losses(folder):
    return [one["loss"] for one in lines(folder, "metrics/node1.jsonl") if one["event"] == "step"]


def test_a_file_is_launched_and_its_run_again_with_the_schedule(make_cluster, tmp_path):
    (tmp_path / "near.yml").write_text("rate_mbyte_s: 8\ndelay_ms: 3\n")
    (tmp_path / "experiment.yml").write_text(EXPERIMENT)
    cluster = make_cluster("file")
    first = cluster.json("launch", "-f", tmp_path / "experiment.yml", "--seed", "5")
    folder = Path(first["folder"])
    (tmp_path / "near.yml").unlink()
    (tmp_path / "experiment.yml").unlink()  # run.yml contains both
    again = cluster.json("launch", "-f", folder / "run.yml")
    assert again["folder"] != first["folder"]
    assert len(losses(folder)) == 4
    assert losses(again["folder"]) == losses(folder)
    done, once_more = (lines(one, "events.jsonl")[0]["what"] for one in (folder, again["folder"]))
    assert done == once_more
