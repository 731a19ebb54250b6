"""Scripts written elsewhere run unchanged: tests/foreign/README.md says which, and where they are from."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("E2E_FOREIGN", "/nowhere"))
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs others' scripts: tests/foreign/README.md"
)


@pytest.fixture
def pictures(tmp_path):
    """Six small grey pictures of each of two classes, to train and to test on."""
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
    """A pipeline of three stages; the last one holds its output against the whole model's."""
    words = ["-m", "examples.basic.example_train"]
    done = unshaped.run("launch", "--folder", FOLDER / "pippy", "--", *words)
    assert "node3 | " in done.stdout
    assert "Pipeline parallel model ran successfully!" in done.stdout


def test_arguments_a_data_set_and_checkpoints(unshaped, pictures):
    """One rank a node: the script's ranks of one node would rename each other's checkpoint."""
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
