"""gradwire installed from a wheel in an environment of its own, used from an empty folder; a run is repeated there."""

import json
import os
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S


@pytest.fixture(scope="module")
def gradwire(tmp_path_factory):
    """The program `gradwire` of a new environment that has only the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    run(folder, sys.executable, "-m", "venv", "--without-pip", "environment")
    python = folder / "environment" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    pip += ("--quiet", "--disable-pip-version-check")
    run(folder, *pip, "wheel", "--no-deps", "--wheel-dir", "dist", PROJECT_DIR)
    (wheel,) = (folder / "dist").glob("gradwire-*.whl")
    run(folder, *pip, "install", "--no-compile", wheel)
    return python.with_name("gradwire")


def run(folder, *words, exit_code=0):
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    argv = [str(word) for word in words]
    done = subprocess.run(
        argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == exit_code, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done


def losses(folder):
    """Return the losses of a run, by rank and step."""
    lines = [
        json.loads(line)
        for file in sorted((folder / "metrics").glob("node?.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.slow
def test_it_trains_from_an_empty_folder_that_has_the_run_and_the_keys(
    gradwire, make_cluster, tmp_path
):
    cluster = make_cluster("installed")
    named = ("--name", cluster.name)
    assert "mobile" in run(tmp_path, gradwire, "profiles").stdout
    helped = run(tmp_path, gradwire, "launch", "--help").stdout
    assert helped.startswith("usage: gradwire launch ") and "python -m cluster" not in helped
    refused = run(tmp_path, gradwire, "verify", *named, exit_code=1)
    assert f"gradwire up --name {cluster.name}" in refused.stderr
    words = ("--profile", "mobile", "--strategy", "fedavg", "--steps", "40", "--json", *named)
    words += ("--no-verify", "--task-set", "test_pictures=500", "--batch-size", "32")
    (tmp_path / ".env").write_text("no line: 'of compose\n")
    launched = run(tmp_path, gradwire, "launch", "--nodes", "2", *words)
    assert "building the node image" not in launched.stderr  # the checkout's has the same hash
    summary = json.loads(launched.stdout)
    assert summary["test_accuracy"] > 0.5
    assert (tmp_path / ".gradwire" / cluster.name / "links.json").is_file()
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 1
    first = tmp_path / "runs" / summary["run"]
    again = run(tmp_path, gradwire, "launch", "-f", first / "run.yml", "--json", *named)
    second = tmp_path / "runs" / json.loads(again.stdout)["run"]
    assert losses(second) == losses(first) != []
    (tmp_path / "deeper").mkdir()
    status = run(tmp_path / "deeper", gradwire, "status", "--json", *named)
    assert [node["state"] for node in json.loads(status.stdout)["nodes"]] == ["running"] * 2
    # This checkout is another project, and leaves the cluster alone.
    refused = cluster.run("down", check=1)
    assert f"was brought up from {tmp_path}" in refused.stderr
    run(tmp_path, gradwire, "down", *named)
    assert cluster.things() == []
    assert list((tmp_path / ".gradwire").rglob("*")) == []
