"""An earlier run repeated from its run.yml: the same losses over the same links, whatever links are in force."""

import json
from pathlib import Path

TRAINING = ["--no-verify", "--strategy", "fedavg", "--batch-size", "8", "--set", "H=2"]
TRAINING += ["--task-set", "test_pictures=200"]


def losses(folder):
    lines = (Path(folder) / "metrics" / "node1.jsonl").read_text().splitlines()
    return [one["loss"] for one in map(json.loads, lines) if one["event"] == "step"]


def links(folder):
    return json.loads((Path(folder) / "links.json").read_text())


def test_the_same_losses_over_the_same_links_on_a_cluster_that_has_others_by_then(shared, tmp_path):
    (tmp_path / "near.yml").write_text("rate_mbyte_s: [6, 9]\ndelay_ms: [2, 6]\n")
    asked = [
        "--profile",
        tmp_path / "near.yml",
        "--link-seed",
        "7",
        "--rank-order",
        "node1,node3,node2",
    ]
    first = shared.json("launch", "--nodes", "3", *asked, *TRAINING, "--steps", "4")
    folder = Path(first["folder"])
    (tmp_path / "near.yml").unlink()  # run.yml contains the profile
    shared.run("shape", "--profile", "wan")
    again = shared.json("launch", "-f", folder / "run.yml")
    assert again["folder"] != first["folder"]
    assert losses(again["folder"]) == losses(folder)
    assert len(losses(folder)) == 4
    assert links(again["folder"]) == links(folder)
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
