"""Scripts written elsewhere run unchanged; tests/foreign/README.md lists them and their sources."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from containers import PROJECT_DIR, last_run

FOLDER = Path(os.environ.get("E2E_FOREIGN", "/nowhere"))
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs others' scripts: tests/foreign/README.md"
)


def cluster_of(make_cluster, name):
    """Return a cluster and launch arguments for the image of that name; skip if the image or its script is missing."""
    image = f"gradwire-{name}"
    there = subprocess.run(["docker", "image", "inspect", image], capture_output=True)
    if there.returncode or not (FOLDER / name).is_dir():
        pytest.skip(f"needs the image {image} and {FOLDER / name}: tests/foreign/README.md")
    return make_cluster(name), ("--nodes", "3", "--image", image)


@pytest.fixture
def pictures(tmp_path):
    """The ImageNet script, with six small grey pictures of each of two classes for training and for testing."""
    for part in ("train", "val"):
        for kind in ("boot", "coat"):
            folder = tmp_path / "data" / part / kind
            folder.mkdir(parents=True)
            for number in range(6):
                grey = bytes([40 * number]) * (3 * 64 * 64)
                (folder / f"{number}.ppm").write_bytes(b"P6 64 64 255\n" + grey)
    (tmp_path / "imagenet.py").write_bytes((FOLDER / "elastic" / "imagenet.py").read_bytes())
    return tmp_path / "imagenet.py"


def test_a_package_started_as_a_module(unshaped):
    """A pipeline of three stages; the last stage compares its output with that of the whole model."""
    words = ["-m", "examples.basic.example_train"]
    done = unshaped.run("launch", "--folder", FOLDER / "pippy", "--", *words)
    assert "node3 | " in done.stdout
    assert "Pipeline parallel model ran successfully!" in done.stdout


def test_arguments_a_data_set_and_checkpoints(unshaped, pictures):
    """One rank per node, because ranks on the same node would rename each other's checkpoint."""
    words = ["data", "-a", "squeezenet1_1", "--epochs", "1", "-b", "2", "-p", "1"]
    words += ["--checkpoint-file", "ckpt/last.pt"]
    done = unshaped.run("launch", "--", pictures, *words)
    assert done.stdout.count("saved checkpoint for epoch 0") == 3


def test_what_record_notes_is_shown(unshaped, pictures):
    done = unshaped.run("launch", "--", pictures, "nowhere", "-a", "squeezenet1_1", check=1)
    assert "FileNotFoundError" in done.stderr.split("the root cause")[1].splitlines()[1]


def test_send_and_recv_between_ranks_of_several_nodes(unshaped):
    script = FOLDER / "sendrecv" / "dist_sendrecv.py"
    done = unshaped.run("launch", "--nproc-per-node", "2", "--", script)
    assert all(f"Result from worker {rank}" in done.stdout for rank in range(1, 6))


def test_cleanrls_ppo_trains_apart_on_every_node(make_cluster):
    """The script knows no other ranks, so with the same seed all of them do the same."""
    cluster, words = cluster_of(make_cluster, "cleanrl")
    script = FOLDER / "cleanrl" / "ppo.py"
    done = cluster.run("launch", *words, "--", script, "--no-cuda", "--total-timesteps", "1024")
    said = [re.findall(rf"^node{n} \| (global_step=.*)$", done.stdout, re.M) for n in (1, 2, 3)]
    assert said[0] == said[1] == said[2]
    assert len(said[0]) > 10 and "episodic_return=" in said[0][0]


def test_the_seeds_program_on_ray_learns_from_actors_on_other_nodes(make_cluster, tmp_path):
    cluster, words = cluster_of(make_cluster, "ray")
    program = shutil.copytree(FOLDER / "ray", tmp_path / "ray")
    shutil.copy(PROJECT_DIR / "examples" / "ray_ranks.py", program)
    words += ("--profile", "wan", "--no-verify", "--essential-ranks", "0", "--folder", program)
    ours = [program / "ray_ranks.py", "--cpus", "2", "--seconds", "150", "train.py"]
    done = cluster.run("launch", *words, "--", *ours)
    assert max(map(int, re.findall(r"number of updates: (\d+)", done.stdout))) > 0
    summary = json.loads((last_run(cluster, "ray_ranks") / "summary.json").read_text())
    assert summary["status"] == "done"
    assert summary["bytes"]["total"] > 1e6  # experience of the actors, and weights of 8 MB each
