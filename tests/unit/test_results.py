"""Results are fetched from each node independently, and what does not arrive stays on the node."""

import errno
import threading
from types import SimpleNamespace

import pytest
from tars import archive, member

from cluster.base.console import Console
from cluster.base.errors import ClusterError, NodeError, UsageError
from cluster.run import results
from cluster.run.results import Fetch, fetch_results, parse_max_results
from cluster.ssh.remote_process import RemoteProcess
from protocol.rank import EXIT_NO_FOLDER, LOST

GOOD = archive(member("./", kind="folder"), member("./x", b"good"))


class Channel:
    """A paramiko channel: a command's output and exit code; None in `pieces` is endless silence."""

    def __init__(self, pieces=(), exit_code=0, stderr=b""):
        self._pieces, self._stderr = list(pieces), stderr
        self.exit_code, self.closed = exit_code, False
        self.status_event = threading.Event()
        if exit_code is not None:
            self.status_event.set()

    def settimeout(self, timeout_s):
        pass

    def recv(self, count):
        if not self._pieces:
            return b""
        if self._pieces[0] is None:
            raise TimeoutError
        piece = self._pieces.pop(0)
        self._pieces[:0] = [piece[count:]] if piece[count:] else []
        return piece[:count]

    def recv_stderr_ready(self):
        return bool(self._stderr)

    def recv_stderr(self, count):
        said, self._stderr = self._stderr[:count], self._stderr[count:]
        return said

    def send(self, data):
        return len(data)

    def shutdown_write(self):
        pass

    def recv_exit_status(self):
        return self.exit_code

    def close(self):
        self.closed = True


@pytest.fixture
def fetch(tmp_path):
    """A function that fetches from nodes whose commands answer by these channels."""

    def call(limit_bytes=10**6, **channels):
        fleet = SimpleNamespace(start=lambda node, argv: RemoteProcess(node, channels[node]))
        what = Fetch("/run/there", tmp_path, limit_bytes)
        found = fetch_results(fleet, list(channels), what, Console(quiet=True))
        assert all(channel.closed for channel in channels.values())
        return found

    return call


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        (Channel([b"garbage" * 200]), "no tar archive"),
        (Channel([GOOD[:700]]), "ends in the middle"),
        (Channel([], exit_code=0), "tar ended with exit code 0"),
        (Channel([], exit_code=127, stderr=b"sh: tar: not found"), "127 sh: tar: not found"),
        (Channel([GOOD], exit_code=137), "tar ended with exit code 137"),
        (Channel([GOOD], exit_code=-1), "the connection broke"),
        (Channel([archive(member("./x", b"x" * 2 * 10**6))]), "more than the limit of 1 MB"),
        (Channel([archive(member("./\x1b[2Jx", b"x" * 2 * 10**6))]), "./?[2Jx"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_on_one_node_costs_no_other(fetch, tmp_path, channel, words):
    found = fetch(node1=Channel([GOOD]), node2=channel, node3=Channel([GOOD]))
    assert words in found["node2"].failure
    assert "\n" not in found["node2"].failure
    assert (found["node1"].failure, found["node3"].failure) == ("", "")
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("x")} == {"node1/x", "node3/x"}


def test_a_node_on_which_no_rank_began_has_nothing(fetch):
    found = fetch(node1=Channel([], exit_code=EXIT_NO_FOLDER))
    assert found["node1"].failure == ""


def test_what_tar_says_is_told_and_a_file_that_it_could_not_read_stays_there(fetch, tmp_path):
    grown = Channel([GOOD], exit_code=1, stderr=b"tar: ./x: file changed as we read it\n")
    partly = Channel([GOOD], exit_code=2, stderr=b"\x1b[2Jtar: ./y: Input/output error\n")
    found = fetch(node1=grown, node2=partly)
    assert found["node1"].failure == ""
    assert list(found["node1"].notes) == ["tar: ./x: file changed as we read it"]
    assert found["node2"].failure == "some files are missing"
    assert list(found["node2"].notes) == ["?[2Jtar: ./y: Input/output error"]
    assert (tmp_path / "node2" / "x").read_text() == "good"  # the files that could be read


def test_what_no_disk_has_room_for_is_tried_again_when_the_others_are_done(
    fetch, tmp_path, monkeypatch
):
    unpack, tried = results.unpack, []

    def full(pieces, folder, *others):
        tried.append(folder.name)
        if folder.name == "node1" or tried.count(folder.name) == 1 and folder.name == "node2":
            (folder / "half").write_text("")
            raise OSError(errno.ENOSPC, "No space left on device")
        return unpack(pieces, folder, *others)

    monkeypatch.setattr(results, "unpack", full)
    found = fetch(node1=Channel([GOOD]), node2=Channel([GOOD]), node3=Channel([GOOD]))
    assert sorted(tried) == ["node1", "node1", "node2", "node2", "node3"]
    assert "no room on this machine's disk" in found["node1"].failure
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == {
        "node2/x",
        "node3/x",
    }


@pytest.mark.parametrize(
    "channel",
    [
        Channel([None]),
        Channel([GOOD[:600], None]),
        Channel([GOOD], exit_code=None),  # all data has come, but the command does not end
    ],
)
def test_a_node_that_falls_silent_is_given_up(fetch, monkeypatch, channel):
    monkeypatch.setattr(results, "SILENCE_S", 0.2)
    found = fetch(node1=channel, node2=Channel([GOOD]))
    assert "neither said nor taken anything" in found["node1"].failure
    assert found["node2"].failure == ""


def test_a_node_that_drips_is_given_up(monkeypatch):
    """At a byte now and then, a transfer could go on until it reaches the size limit."""
    now = [0.0]
    monkeypatch.setattr("cluster.ssh.remote_process.time.monotonic", lambda: now[0])
    channel = Channel([b"x"] * 1000)
    recv = channel.recv

    def drip_of(recv, count):
        now[0] += 1.0
        return recv(count)

    channel.recv = lambda count: drip_of(recv, count)
    with pytest.raises(NodeError, match="as good as nothing|neither said"):
        RemoteProcess("node1", channel).hand_over(list, 15.0)
    assert 14.0 < now[0] < 20.0
    with pytest.raises(NodeError, match="as good as nothing"):
        RemoteProcess("node1", channel, patience_s=3.0).communicate(b"")
    assert 44.0 < now[0] < 60.0
    with pytest.raises(NodeError, match="as good as nothing"):
        list(RemoteProcess("node1", channel, patience_s=3.0).lines())
    assert 74.0 < now[0] < 100.0
    patient = RemoteProcess("node1", Channel([b"x"] * 100))
    patient._channel.recv = lambda count, recv=patient._channel.recv: drip_of(recv, count)
    assert len(list(patient.chunks())) == 100
    patient.patience_s = 3.0  # patience while it ends, after a long life
    assert patient.wait()[0] == 0


def test_an_answer_without_end_does_not_take_our_memory(monkeypatch):
    monkeypatch.setattr("cluster.ssh.remote_process.MOST_ANSWER_BYTES", 10**6)
    channel = Channel([b"x" * 65536] * 1000)
    with pytest.raises(NodeError, match="without end"):
        RemoteProcess("node1", channel, patience_s=3.0).communicate(b"")
    assert channel.closed


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NodeError("no connection", {"node1": "SSH is closed"}), "SSH is closed"),
        # Taken for no failure: the run was done, and what its ranks had left was lost.
        (NodeError("the connection broke", {"node1": ""}), "NodeError"),
        (ClusterError(""), "ClusterError"),
    ],
)
def test_a_node_without_a_connection_is_lost(tmp_path, error, words):
    def start(node, argv):
        raise error

    what = Fetch("/run/there", tmp_path, 10**6)
    found = fetch_results(SimpleNamespace(start=start), ["node1"], what, Console(quiet=True))
    assert found["node1"].failure == words
    assert list(tmp_path.iterdir()) == []


def test_much_that_is_said_on_standard_error_holds_nothing_up():
    channel = Channel([GOOD], stderr=b"x" * 10**7 + b"end")
    exit_code, words = RemoteProcess("node1", channel).hand_over(list, 1.0)
    assert (exit_code, len(words), words[-3:]) == (0, 4096, b"end")
    lost = RemoteProcess("node1", Channel([GOOD], exit_code=-1)).hand_over(list, 1.0)
    assert lost[0] == LOST


@pytest.mark.parametrize(
    ("text", "size"), [("500m", 500 * 2**20), ("1.5G", 3 * 2**29), ("10", 10), (7, 7)]
)
def test_a_size_is_read(text, size):
    assert parse_max_results(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "10gb", "x", "9" * 400, "²", "none", "1e9"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="--max-results"):
        parse_max_results(text)


@pytest.mark.parametrize("wait", ["chunks", "hand_over", "communicate"])
def test_a_node_that_drips_on_standard_error_alone_is_given_up(wait):
    polls = 0

    class Dripping(Channel):
        def recv(self, count):
            nonlocal polls
            polls += 1
            assert polls < 10_000
            self.has_dripped = False
            raise TimeoutError

        def recv_stderr_ready(self):
            self.has_dripped, ready = True, not self.has_dripped
            return ready

        def recv_stderr(self, count):
            return b"."

    process = RemoteProcess("node1", Dripping([]), patience_s=60.0)
    action = {
        "chunks": lambda: list(process.chunks()),
        "hand_over": lambda: process.hand_over(list, 60.0),
        "communicate": lambda: process.communicate(b""),
    }[wait]
    with pytest.raises(NodeError, match="as good as nothing"):
        action()
    assert polls <= 10 * 60 + 1


class SlowChannel(Channel):
    """A node that sends so many bytes each second, by the clock of `results`."""

    def __init__(self, clock, bytes_s, size):
        sent = archive(member("./x", b"x" * size))
        super().__init__([sent[at : at + bytes_s] for at in range(0, len(sent), bytes_s)])
        self._clock, self._bytes_s = clock, bytes_s

    def recv(self, count):
        piece = super().recv(count)
        self._clock.now_s += len(piece) / self._bytes_s
        return piece


@pytest.fixture
def clock(monkeypatch):
    """The clock of `results`, which stands still unless it is moved; it judges a node each 20 s."""
    clock = SimpleNamespace(now_s=0.0)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(results, "time", clock)
    monkeypatch.setattr(results, "PACE_WINDOW_S", 20.0)
    return clock


def test_a_node_that_sends_next_to_nothing_is_given_up_long_before_the_size_limit(
    fetch, tmp_path, clock
):
    """At 64 KiB per 15 s, a transfer of 10 GB would go on for weeks."""
    found = fetch(10**8, node1=SlowChannel(clock, 5_000, 3 * 10**6))
    assert "less than 20 kB/s came for 20 s" in found["node1"].failure
    assert 20.0 <= clock.now_s < 25.0
    assert not list(tmp_path.rglob("x"))


def test_a_slow_line_is_waited_for_as_long_as_it_is_alive(fetch, tmp_path, clock):
    found = fetch(10**8, node1=SlowChannel(clock, 110_000, 10**7))
    assert found["node1"].failure == "" and clock.now_s > 80.0
    assert (tmp_path / "node1" / "x").stat().st_size == 10**7


def test_nodes_that_share_a_slow_line_are_as_fast_together_as_one_would_be(clock):
    arrivals = results._Arrivals(Console(quiet=True))

    def pieces():
        for _ in range(100):
            clock.now_s += 1.0
            yield b"x" * 12_000

    both = [results._keep_pace(node, pieces(), arrivals) for node in ("node1", "node2")]
    assert len(list(zip(*both, strict=True))) == 100
    with pytest.raises(NodeError, match="too slow"):
        list(results._keep_pace("node3", pieces(), arrivals))


def test_a_fetch_that_was_stopped_for_a_while_goes_on(clock):
    """By Ctrl-Z, which stops us but not the clock."""

    def pieces():
        for _ in range(10):
            yield b"x" * 10**6
        clock.now_s += 3600.0
        yield b"x"

    arrivals = results._Arrivals(Console(quiet=True))
    assert len(list(results._keep_pace("node1", pieces(), arrivals))) == 11
