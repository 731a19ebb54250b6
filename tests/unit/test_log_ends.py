"""The lines of a log, and its end: of its container, or of the engine, which the Docker SDK does not tell apart."""

import docker.errors
import pytest
import requests.exceptions

import cluster.engine.client
from cluster.base.errors import EXIT_FAILED, ClusterError
from cluster.base.line_splitter import LONGEST_LINE_BYTES
from cluster.engine.client import Engine

GONE = requests.exceptions.ConnectionError("Connection refused")
REMOVED = docker.errors.NotFound("gone")
RUNS, ENDED = (
    {"Name": "/gradwire-lab-node2", "State": {"Running": runs}} for runs in (True, False)
)


class Api:
    """An engine whose logs have these chunks; `looks` is what it then says of the container, in turn."""

    def __init__(self, *looks, chunks=(b"step 1\nste", b"p 2")):
        self._looks, self._chunks = list(looks), chunks

    def logs(self, container_id, *, stream, follow, tail):
        return iter(self._chunks)

    def inspect_container(self, container_id):
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Exception):
            raise look
        return look


@pytest.fixture
def read(monkeypatch):
    """A function that reads a log of an engine and puts its lines into a list."""

    def read(lines, looks, *, follow):
        monkeypatch.setattr(cluster.engine.client, "_connect", lambda url: Api(*looks))
        monkeypatch.setattr(cluster.engine.client, "LOG_END_S", 0.0, raising=False)
        for line in Engine().follow_log("c1", follow=follow, lines="all"):
            lines.append(line)

    return read


@pytest.mark.parametrize("follow", [True, False])
def test_a_log_of_an_engine_that_dies_is_a_failure(read, follow):
    lines = []
    with pytest.raises(ClusterError, match="does not answer any more") as failed:
        read(lines, [GONE], follow=follow)
    assert failed.value.exit_code == EXIT_FAILED and failed.value.hint
    assert lines[0] == "step 1"


def test_a_log_that_is_followed_and_ends_although_its_container_runs_is_a_failure(read):
    with pytest.raises(ClusterError, match="gradwire-lab-node2 runs, and its log broke off") as end:
        read([], [RUNS], follow=True)
    assert "python -m cluster.logs" in end.value.hint


@pytest.mark.parametrize(
    ("looks", "follow"),
    [
        ([ENDED], True),
        ([REMOVED], True),
        ([REMOVED], False),
        ([RUNS], False),
        ([RUNS, ENDED], True),  # an engine may close the log first
    ],
)
def test_a_log_ends_with_its_container(read, looks, follow):
    lines = []
    read(lines, looks, follow=follow)
    assert lines == ["step 1", "step 2"]


def follow(monkeypatch, chunks):
    monkeypatch.setattr(cluster.engine.client, "_connect", lambda url: Api(ENDED, chunks=chunks))
    return Engine().follow_log("c1", follow=True, lines="all")


def test_progress_that_ends_no_line_is_shown(monkeypatch):
    lines = follow(monkeypatch, [b" 10 %\r 2", b"0 %\rdone\r\n", b"\nnext\n"])
    assert list(lines) == [" 10 %", " 20 %", "done", "", "next"]


def test_output_without_line_ends_comes_in_pieces_before_its_end(monkeypatch):
    taken = 0

    def endless():
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"x" * (LONGEST_LINE_BYTES // 2)

    lines = follow(monkeypatch, endless())
    assert len(next(lines)) == LONGEST_LINE_BYTES and taken <= 3
    assert sum(map(len, lines)) == 49 * LONGEST_LINE_BYTES
