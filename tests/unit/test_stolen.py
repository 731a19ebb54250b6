"""Who runs the tests of links on a stolen machine: again, but not for ever, and not where nobody stole."""

import os
import subprocess
import sys

import pytest

from cluster.spec import PROJECT_DIR

SHARED = PROJECT_DIR / "tests" / "shared"
CONFTEST = """\
import stolen
from stolen import pytest_runtest_protocol
stolen.stolen_pct = lambda since: {pct}
stolen.wait_until_quiet = lambda: None
"""
TEST = """\
import pathlib
def test_links():
    with open("tries", "a") as file:
        file.write("x")
    assert len(pathlib.Path("tries").read_text()) == {passes_at}
"""


@pytest.mark.parametrize(
    ("pct", "passes_at", "tries", "words"),
    [
        (40.0, 2, 2, "1 passed"),
        (40.0, 9, 3, "1 failed"),
        (1.0, 2, 1, "1 failed"),
    ],
)
def test_a_test_is_made_again_where_its_processors_were_taken(
    tmp_path, pct, passes_at, tries, words
):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(pct=pct))
    (tmp_path / "test_it.py").write_text(TEST.format(passes_at=passes_at))
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    environ = os.environ | {"PYTHONPATH": f"{SHARED}:{PROJECT_DIR}"}
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert words in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "tries").read_text() == "x" * tries
    assert done.stderr.count("is made again: other machines took 40 %") == tries - 1
