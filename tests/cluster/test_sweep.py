"""A sweep on real nodes: interrupted and started again, it has the runs of an uninterrupted one, each once."""

import json
import signal

import pytest
from containers import TIMEOUT_S, eventually

# Runs as long as its variant says, so the ranking is known in advance.
SCRIPT = """\
import argparse, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=float)
parser.add_argument("--seed", type=int)
time.sleep(parser.parse_args().pause)
open(os.path.join(os.environ["GRADWIRE_RUN_DIR"], "done.txt"), "w").write("done")
"""
SWEEP = """\
nodes: 3
profile: [wan, mobile]
seed: [1, 2, 3]
program: [{script}]
variants:
  quick: {{pause: 0.2}}
  slow: {{pause: 4}}
verify: false
"""


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "job.py").write_text(SCRIPT)
    path = tmp_path / "pauses.yml"
    path.write_text(SWEEP.format(script=folder / "job.py"))
    return path


def records(out):
    """Read the records of all cells that have run; one that is still being written has another name."""
    return {path.name: path.read_bytes() for path in (out / "cells").glob("*.json")}


@pytest.mark.slow
def test_one_that_is_interrupted_goes_on_to_the_same_table(shared, file, tmp_path):
    out = tmp_path / "out"
    running = shared.start("sweep", file, "--out", out)
    eventually(lambda: len(records(out)) >= 4, timeout_s=TIMEOUT_S)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 130 and "Traceback" not in said, said
    before = records(out)
    assert 4 <= len(before) < 12
    assert json.loads((out / "sweep.json").read_text())["known"] == len(before)

    found = shared.json("sweep", file, "--out", out)
    after = records(out)
    assert len(after) == 12 and before.items() <= after.items()
    runs = {(run["profile"], run["variant"], run["seed"]): run for run in found["runs"]}
    assert len(runs) == 12 and {run["status"] for run in runs.values()} == {"done"}
    assert len({run["folder"] for run in runs.values()}) == 12
    lines = {(row["problem"]["profile"], row["variant"]): row for row in found["ranking"]}
    assert set(lines) == {run[:2] for run in runs}
    for profile in ("wan", "mobile"):
        # On a busy machine, the host may be the limit of all half-second runs, which are then not ranked.
        quick = lines[profile, "quick"]
        assert quick["verdict"] == ("best" if quick["runs"] else "the host was the limit"), lines
    assert "quick" in (out / "sweep.html").read_text()

    planned = shared.json("sweep", file, "--out", out, "--dry-run")
    assert {cell["state"] for cell in planned["cells"]} == {"known"}
    done = shared.run("sweep", file, "--out", out)
    assert "12 runs, 12 of them known" in done.stderr
    assert records(out) == after


@pytest.mark.nightly
def test_a_training_is_ranked_by_a_target_that_is_chosen_afterwards(make_cluster, tmp_path):
    cluster = make_cluster("sweep")
    words = ["--nodes", "2", "--profile", "wan", "--strategy", "fedavg", "--set", "H=2"]
    words += ["--steps", "4", "--eval-every", "2"]
    words += ["--no-verify", "--out", tmp_path]
    first = cluster.json("sweep", *words, "--target", "test_accuracy=0.99")
    [line], [run] = first["ranking"], first["runs"]
    assert (line["verdict"], line["reached"], line["runs"]) == ("target not reached", 0, 1)
    # Two exchanges of 1.2 M parameters of 4 bytes between two ranks, each of which sends them once.
    assert 2 * 2 * 4.8 < run["figures"]["carried_mbyte"] < 1.1 * 2 * 2 * 4.8
    again = cluster.json("sweep", *words, "--target", "test_accuracy=0.01", "--predict", "poor")
    assert again["runs"][0]["folder"] == run["folder"]
    assert again["runs"][0]["figures"]["reached_step"] == 2
    here, there = again["ranking"]
    assert here["verdict"] == there["verdict"] == "best"
    assert there["problem"]["profile"] == "poor (predicted, from wan)"
    assert there["median_s"] > here["median_s"]
