"""Scripts that are run by hand can be imported; no other test would notice that something they import was renamed."""

from pathlib import Path

import pytest
from forked import run_forked

TESTS = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path for folder in (TESTS, TESTS / "netem") for path in folder.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_finds_all_that_it_imports(script):
    folders = [str(TESTS.parent), str(script.parent), str(TESTS / "shared")]
    imports = (
        f"import sys; sys.path[:0] = {folders}; import {script.stem} as it; print(it.__file__)"
    )
    done = run_forked("timeit", ["-n", "1", "-r", "1", imports], 60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(script)
