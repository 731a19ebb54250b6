"""A Compose process that hangs is given up after a timeout, whether or not it reads its document."""

import time

import pytest

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine import compose_up

LARGE = "x" * 10**6
"""More than a pipe holds."""


@pytest.fixture
def run(monkeypatch):
    """A function that makes a program stand for compose, to be given up after some time."""

    def run(argv, timeout_s):
        monkeypatch.setattr(compose_up, "TIMEOUT_S", timeout_s)
        monkeypatch.setattr(compose_up, "TIMEOUT_PER_NODE_S", 0.0)
        monkeypatch.setattr(compose_up, "END_TIMEOUT_S", 0.5)
        monkeypatch.setattr(compose_up, "up_argv", lambda command, name, starts: argv)
        monkeypatch.setattr(compose_up, "compose_command", list)
        return compose_up.ComposeUp("lab")

    return run


@pytest.mark.parametrize("document", ["", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("argv", [["sleep", "60"], ["sh", "-c", "trap '' TERM; sleep 60 & wait"]])
def test_a_compose_that_does_not_end_is_given_up(run, argv, document):
    """Also if it ignores SIGTERM, or does not read a document that is larger than a pipe."""
    started = time.monotonic()
    with run(argv, 0.3) as compose:
        compose.give(document)
        with pytest.raises(ClusterError, match="compose has not brought 'lab' up within"):
            compose.finish(ClusterSpec("lab"))
    assert time.monotonic() - started < 30


def test_a_compose_that_reads_late_gets_the_whole_document(run, tmp_path):
    read = tmp_path / "read"
    with run(["sh", "-c", f"sleep 0.3; cat > {read}"], 60.0) as compose:
        compose.give(LARGE)
        compose.finish(ClusterSpec("lab"))
    assert read.read_text() == LARGE


def test_a_compose_that_ends_without_reading_says_why(run):
    with run(["sh", "-c", "echo no such file >&2; exit 1"], 60.0) as compose:
        compose.give(LARGE)
        with pytest.raises(ClusterError, match="could not bring 'lab' up: no such file"):
            compose.finish(ClusterSpec("lab"))
