"""A launch from experiment.yml, and its run repeated from run.yml: the same losses, links and scheduled events."""

import json
from pathlib import Path

import pytest

EXPERIMENT = """\
kind: experiment
nodes: 3
profile: ./near.yml
link_seed: 7
rank_order: [node1, node3, node2]
options: {strategy: fedavg, set: {H: 2}, batch-size: 8, steps: 4, task-set: {test_pictures: 200}}
schedule:
  - {at: 0s, link: node1:node2, both: true, delay_ms: 30}
verify: false
"""


def lines(folder, name):
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


def losses(folder):
    return [one["loss"] for one in lines(folder, "metrics/node1.jsonl") if one["event"] == "step"]


def links(folder):
    return json.loads((Path(folder) / "links.json").read_text())


@pytest.mark.slow
def test_the_same_losses_over_the_same_links_on_a_cluster_that_has_others_by_then(
    make_cluster, tmp_path
):
    """The first launch brings the cluster up."""
    cluster = make_cluster("again")
    (tmp_path / "near.yml").write_text("rate_mbyte_s: [6, 9]\ndelay_ms: [2, 6]\n")
    (tmp_path / "experiment.yml").write_text(EXPERIMENT)
    first = cluster.json("launch", "-f", tmp_path / "experiment.yml", "--seed", "5")
    folder = Path(first["folder"])
    (tmp_path / "near.yml").unlink()
    (tmp_path / "experiment.yml").unlink()  # run.yml contains both
    cluster.run("shape", "--profile", "wan")
    again = cluster.json("launch", "-f", folder / "run.yml")
    assert again["folder"] != first["folder"]
    assert losses(again["folder"]) == losses(folder)
    assert len(losses(folder)) == 4
    assert links(again["folder"]) == links(folder)
    done, once_more = (lines(one, "events.jsonl")[0]["what"] for one in (folder, again["folder"]))
    assert done == once_more
    assert (Path(again["folder"]) / "hostfile").read_text() == (folder / "hostfile").read_text()
    for link, carried in first["bytes"]["loop"]["links"].items():
        assert again["bytes"]["loop"]["links"][link]["expected"] == carried["expected"]


def test_a_script_that_is_gone_is_refused_before_anything_is_touched(shared, tmp_path):
    (tmp_path / "job").mkdir()
    script = tmp_path / "job" / "say.py"
    script.write_text("print('said')\n")
    folder = Path(shared.json("launch", "--no-verify", "--", script)["folder"])
    again = shared.json("launch", "-f", folder)
    assert "said" in (Path(again["folder"]) / "logs" / "node1.log").read_text()
    script.unlink()
    script.parent.rmdir()
    refused = shared.run("launch", "-f", folder, check=2)
    assert "is not there any more" in refused.stderr
