"""Splitting program output into lines, complete, ordered and in linear time; a rank's log on a full disk."""

import time
from pathlib import Path

import pytest

from cluster.base.line_splitter import LONGEST_LINE_BYTES, split_lines
from cluster.run.rank_output import add_line, copy_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n\r\nc\r\r\n", ["a", "b", "", "c"]),
        (b" 10 %\r 20 %\rdone\n", [" 10 %", " 20 %", "done"]),
        (b"bar:\n\r 10 %\r 20 %", ["bar:", " 10 %", " 20 %"]),
        (b"", []),
        (b"\xff\n", ["\ufffd"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_in_whatever_chunks_they_come(text, lines, size):
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(split_lines(chunks)) == lines


def test_a_line_that_does_not_end_comes_in_pieces_between_characters():
    text = "ä€" * LONGEST_LINE_BYTES
    chunks = [text.encode()[at : at + 1000] for at in range(0, 5 * LONGEST_LINE_BYTES, 1000)]
    pieces = split_lines(chunks)
    first = next(pieces)
    assert LONGEST_LINE_BYTES - 4 < len(first.encode()) <= LONGEST_LINE_BYTES
    assert "".join([first, *pieces]) == text


@pytest.mark.parametrize("size", [1000, LONGEST_LINE_BYTES, 3 * LONGEST_LINE_BYTES])
def test_carriage_returns_alone_give_the_reader_an_empty_line_now_and_then(size):
    """It once got nothing, and so could not stop reading, however many came."""
    text = b"10 %" + b"\r" * 3 * LONGEST_LINE_BYTES
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(split_lines([*chunks, b"20 %"])) == ["10 %", "", "", "20 %"]


def test_output_without_newlines_takes_time_linear_in_its_length():
    """4 times the output once took 14 times as long; compared with output with newlines, as machines differ."""

    def took_s(mbyte, chunk):
        started = time.process_time()
        for _ in split_lines(chunk for _ in range(mbyte * 16)):
            pass
        return time.process_time() - started

    endless, lines = b"x" * 65536, (b"x" * 4095 + b"\n") * 16
    assert took_s(64, endless) < 20 * max(0.01, took_s(64, lines))
    returns = b"\r" * 65536
    assert took_s(4, returns) < 8 * took_s(1, returns)


def test_a_full_disk_does_not_stop_a_rank(capsys):
    shown = []
    copy_lines((str(n) for n in range(1000)), Path("/dev/full"), shown.append)
    assert len(shown) == 1000
    assert capsys.readouterr().err.count("is cut short: No space left on device") == 1


def test_a_log_that_cannot_be_made_and_a_reader_that_is_gone_do_not_stop_a_rank(tmp_path):
    heard = []

    def show(line):
        heard.append(line)
        raise BrokenPipeError

    lines = iter("abc")
    copy_lines(lines, tmp_path / "none" / "node1.log", show)
    assert (next(lines, None), heard) == (None, ["a"])


@pytest.mark.parametrize("before", ["", "x" * 60 + "\n"])
def test_a_log_stops_growing_at_its_limit_and_the_rank_goes_on(
    tmp_path, monkeypatch, capsys, before
):
    """A rank that prints without end once filled the disk; a log goes on when its rank is started again."""
    monkeypatch.setattr("cluster.run.rank_output.MOST_LOG_BYTES", 100)
    log, shown = tmp_path / "node1.log", []
    log.write_text(before)
    copy_lines(("ä" * 9 for _ in range(1000)), log, shown.append)
    [*lines, last] = log.read_text().removeprefix(before).splitlines()
    assert lines == ["ä" * 9] * ((100 - len(before)) // 19)
    assert last.startswith("this log is cut short: a log has at most")
    assert len(shown) == 1000
    assert capsys.readouterr().err.count("node1.log is cut short: a log has at most") == 1
    was = log.read_text()
    copy_lines(["started again"], log, shown.append)
    assert (log.read_text(), shown[-1], capsys.readouterr().err) == (was, "started again", "")


def test_a_full_log_still_takes_the_launchers_own_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster.run.rank_output.MOST_LOG_BYTES", 5)
    log = tmp_path / "node1.log"
    for line in ("rank 1 failed", "started again"):
        add_line(line, log)
    assert log.read_text() == "rank 1 failed\nstarted again\n"


def test_a_log_is_utf_8_whatever_the_locale(tmp_path, monkeypatch):
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "ascii")
    monkeypatch.setattr("locale.getencoding", lambda: "ascii")
    copy_lines(["ä\udcff"], tmp_path / "log", lambda line: None)
    assert (tmp_path / "log").read_bytes() == "ä?\n".encode()
