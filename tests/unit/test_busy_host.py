"""Link tests on a busy host are repeated, but a bounded number of times, and only if something took the CPUs."""

import os
import re
import subprocess
import sys
import time

import pytest
from busy_host import Watch

from cluster.base.paths import PROJECT_DIR

SHARED = PROJECT_DIR / "tests" / "shared"
CONFTEST = """\
import busy_host
from busy_host import pytest_runtest_protocol
busy_host.Watch.limits = lambda self: {why!r}
busy_host.Watch.stall = lambda self: {stall!r}
busy_host.wait_until_quiet = lambda: None
"""
TEST = """\
import pathlib
def test_links():
    with open("tries", "a") as file:
        file.write("x")
    assert len(pathlib.Path("tries").read_text()) == {passes_at}, {words!r}
"""

FIXTURE = """\
import pytest, busy_host
@pytest.fixture
def guest(request):
    busy_host.say_repeated(request.config, "all of it", "a reason")
def test_links(guest):
    pass
"""


LATE = "timers were 2 ms late"
MARK = "note: the host, and not the links, was the limit: timers were 2 ms late"


def run_pytest(folder):
    """Run pytest in a folder, without plugins that are installed: importing them takes most of its time."""
    argv = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--rootdir", folder]
    environ = os.environ | {"PYTHONPATH": f"{SHARED}:{PROJECT_DIR}"}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("seen", "passes_at", "words", "tries", "outcome"),
    [
        (LATE, 2, "", 2, "1 passed"),
        (LATE, 9, "", 3, "1 failed"),
        (LATE, 9, MARK, 3, "1 skipped"),
        ("", 2, "", 1, "1 failed"),
        # If only the product blames the host, the test is repeated but never skipped.
        ("", 2, MARK, 2, "1 passed"),
        ("", 9, MARK, 3, "1 failed"),
    ],
)
def test_a_test_is_made_again_where_its_processors_were_taken(
    tmp_path, seen, passes_at, words, tries, outcome
):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(why=seen, stall=""))
    (tmp_path / "test_it.py").write_text(TEST.format(passes_at=passes_at, words=words))
    done = run_pytest(tmp_path)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "tries").read_text() == "x" * tries
    assert done.stderr.count(f"is made again: {seen or words[6:]}") == tries - 1
    if "skipped" in outcome:
        assert f"not told in 3 tries ({seen}): {MARK[6:]}" in done.stdout


@pytest.mark.parametrize(
    ("passes_at", "words", "tries", "outcome"),
    [(2, "", 2, "1 passed"), (9, "", 3, "1 failed"), (9, MARK, 3, "1 failed")],
)
def test_a_test_in_which_a_processor_stood_still_is_made_again_and_never_skipped(
    tmp_path, passes_at, words, tries, outcome
):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(why="", stall="a timer was 30 ms late"))
    (tmp_path / "test_it.py").write_text(TEST.format(passes_at=passes_at, words=words))
    done = run_pytest(tmp_path)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "tries").read_text() == "x" * tries


def test_the_products_sentence_in_the_source_of_a_test_excuses_nothing(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(why=LATE, stall=""))
    source = TEST.format(passes_at=9, words="").replace("    with", f"    # {MARK}\n    with")
    (tmp_path / "test_it.py").write_text(source)
    done = run_pytest(tmp_path)
    assert MARK in done.stdout and "1 failed" in done.stdout, done.stdout + done.stderr


def test_a_host_that_gives_nothing_is_seen():
    """A thread that holds the GIL is to other threads what a busy host is to processes."""
    with Watch() as quiet:
        time.sleep(0.3)
    with Watch() as busy:
        sum(range(20_000_000))
    assert "timers were" in busy.limits()
    assert busy.late_ms() > 5 * quiet.late_ms()
    assert re.fullmatch(r"a timer was \d+ ms late", busy.stall())


def test_what_a_fixture_says_of_it_is_seen_too(tmp_path):
    (tmp_path / "test_it.py").write_text(FIXTURE)
    assert "all of it is made again" in run_pytest(tmp_path).stderr
