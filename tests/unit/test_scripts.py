"""Scripts that are run by hand can be imported; no other test would notice that something they import was renamed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path for folder in (TESTS, TESTS / "netem") for path in folder.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_finds_all_that_it_imports(script):
    folders = [TESTS.parent, script.parent, TESTS / "shared"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    argv = [sys.executable, "-c", f"import {script.stem}"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
