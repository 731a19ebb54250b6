"""Launches by each other Python of this machine, in the environments that `make test-pythons` creates."""

import subprocess

import pytest
from containers import PROJECT_DIR, TIMEOUT_S

PYTHONS = sorted(path.parent for path in PROJECT_DIR.glob(".venv-*/ready"))
LEAVE = """\
import os
print("rank", os.environ["RANK"])
os.makedirs(os.environ["GRADWIRE_RUN_DIR"] + "/deep")
open(os.environ["GRADWIRE_RUN_DIR"] + "/deep/left.txt", "w").write(os.environ["RANK"])
"""


@pytest.mark.skipif(not PYTHONS, reason="no other Python's environment is here: make test-pythons")
@pytest.mark.parametrize("venv", PYTHONS, ids=lambda path: path.name.removeprefix(".venv-"))
def test_a_program_runs_and_what_it_leaves_comes_back(unshaped, tmp_path, venv):
    (tmp_path / "leave.py").write_text(LEAVE)
    argv = unshaped.argv("launch", "--", tmp_path / "leave.py")
    done = subprocess.run(
        [venv / "bin" / "python", *argv[1:]],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("run ")]
    left = sorted((PROJECT_DIR / folder / "files").glob("node?/deep/left.txt"))
    assert [path.read_text() for path in left] == ["0", "1", "2"]
