"""Trainer.fit on the nodes: in a launched script, and called on a host that has torch.

The host of these tests has no torch. So the script that calls fit runs in a container with this machine's network,
engine and checkout, which looks like a host to the launcher.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from containers import PROJECT_DIR, TIMEOUT_S

from cluster.base.spec import IMAGE

EXAMPLE = PROJECT_DIR / "examples" / "rings.py"
ENGINE = Path("/var/run/docker.sock")
TEST_IMAGE = f"{IMAGE}-test"  # as the Makefile calls it


@pytest.fixture
def host_with_torch(tmp_path):
    """A function that runs a script in a container that has torch, and returns its output."""
    if not ENGINE.is_socket():
        pytest.skip(f"no engine at {ENGINE} that a container could be given")
    build = ["docker", "build", "--quiet", "--tag", TEST_IMAGE, "--build-arg", f"IMAGE={IMAGE}"]
    build += [PROJECT_DIR / "tests" / "node"]
    subprocess.run(build, check=True, capture_output=True)
    shared = [word for path in (ENGINE, PROJECT_DIR, tmp_path) for word in ("-v", f"{path}:{path}")]
    user = ["--user", f"{os.getuid()}:{os.getgid()}", "--group-add", str(ENGINE.stat().st_gid)]
    environ = ["--env", f"PYTHONPATH={PROJECT_DIR}", "--env", "HOME=/tmp"]
    command = ["docker", "run", "--rm", "--init", "--network", "host", *shared, *user, *environ]

    def run(text, *words):
        path = tmp_path / "mine.py"
        path.write_text(text)
        argv = [*command, "--workdir", str(tmp_path), TEST_IMAGE, "python3", str(path), *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_script_with_fit_is_launched_as_any_other(unshaped):
    run = unshaped.json("launch", "--", EXAMPLE)
    folder = PROJECT_DIR / "runs" / run["run"]
    assert {line["config"]["strategy"] for line in events(folder, "start")} == {"ddp"}
    # A ring of three sends 4 times the parameters (4,612 of 4 bytes) in each of 60 steps.
    assert run["bytes"]["payload"] > 60 * 4 * 4 * 4612


@pytest.mark.slow
def test_fits_train_on_the_nodes_one_after_the_other(unshaped, host_with_torch):
    """The second fit resumes from the first's checkpoints, bit-identically; the third starts from its model."""
    said = json.loads(host_with_torch(SCRIPT, unshaped.name))
    whole, rest, further = (Path(folder) for folder in said["folders"])
    assert steps(whole) == [1, 2, 3, 4, 5, 6, 7, 8] * 3
    assert steps(rest) == [6, 7, 8] * 3
    assert said["losses"][1] == said["losses"][0]
    assert steps(further) == [1, 2] * 3
    assert said["losses"][2] < said["losses"][0] < 0.8 * said["untrained"]
    assert (further / "model.pt").exists()


def test_checkpoints_that_are_not_there_are_missed_before_anything_starts(unshaped, tmp_path):
    order = {"fit": 1, "seed": 1, "data": "", "ended": [], "resume": str(tmp_path)}
    (tmp_path / "order.json").write_text(json.dumps(order))
    done = unshaped.run("launch", "--fit", tmp_path, "--", EXAMPLE, check=2)
    assert f"no checkpoints in {tmp_path}" in done.stderr


def test_an_order_without_a_program_is_refused(unshaped, tmp_path):
    done = unshaped.run("launch", "--fit", tmp_path, check=2)
    assert "--fit without a program" in done.stderr
    done = unshaped.run("launch", "--fit", tmp_path, "--", EXAMPLE, check=2)
    assert "no order.json" in done.stderr


def events(folder, event):
    for path in sorted((folder / "metrics").glob("node?.jsonl")):
        lines = map(json.loads, path.read_text().splitlines())
        yield from (line for line in lines if line["event"] == event)


def steps(folder):
    """Return the steps of all ranks, one rank after the other."""
    return [line["step"] for line in events(folder, "step")]


SCRIPT = """
import json, sys
import torch
from torch.utils.data import TensorDataset
from node.exogym import DiLoCoStrategy, OptimSpec, Trainer


class Line(torch.nn.Linear):
    def forward(self, batch):
        x, y = batch
        return ((super().forward(x) - y) ** 2).mean()


if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(400, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    untrained = Line(16, 1)
    asked = {
        "backend": "cluster", "name": sys.argv[1], "launch": ["--no-verify"], "num_nodes": 3, "batch_size": 8,
        "strategy": DiLoCoStrategy(OptimSpec(torch.optim.AdamW, lr=0.03), H=3),
    }
    trainer = Trainer(untrained, data, data)
    whole = trainer.fit(**asked, max_steps=8, checkpoint_interval=5)
    folders = [str(trainer.run_folder)]
    rest = trainer.fit(**asked, max_steps=8, checkpoint_interval=5, resume=trainer.run_folder)
    folders.append(str(trainer.run_folder))
    trainer = Trainer(rest, data, data)
    further = trainer.fit(**asked, max_steps=2)
    folders.append(str(trainer.run_folder))
    with torch.no_grad():
        losses = [float(model(data[:])) for model in (whole, rest, further)]
        print(json.dumps({"folders": folders, "losses": losses, "untrained": float(untrained(data[:]))}))
"""
