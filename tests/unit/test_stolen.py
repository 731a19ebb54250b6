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

FIXTURE = """\
import pytest, stolen
@pytest.fixture
def guest(request):
    stolen.say_repeated(request.config, "all of it", 40.0)
def test_links(guest):
    pass
"""


def run_pytest(folder):
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder]
    environ = os.environ | {"PYTHONPATH": f"{SHARED}:{PROJECT_DIR}"}
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True)


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
    done = run_pytest(tmp_path)
    assert words in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "tries").read_text() == "x" * tries
    assert done.stderr.count("is made again: other machines took 40 %") == tries - 1


def test_what_a_fixture_says_of_it_is_seen_too(tmp_path):
    (tmp_path / "test_it.py").write_text(FIXTURE)
    assert "all of it is made again" in run_pytest(tmp_path).stderr
