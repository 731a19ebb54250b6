"""`make lint` checks every file: a default of ruff once excluded node/dist because of its name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUFF = Path(sys.executable).with_name("ruff")


@pytest.mark.skipif(not RUFF.exists(), reason="ruff is not in this environment")
@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_ruff_checks_every_python_file_of_the_checkout():
    tracked = lines("git", "ls-files", "*.py")
    checked = {
        Path(line).resolve().relative_to(ROOT) for line in lines(RUFF, "check", "--show-files")
    }
    assert tracked and {Path(line) for line in tracked} <= checked


def lines(*argv):
    return subprocess.run(
        argv, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
