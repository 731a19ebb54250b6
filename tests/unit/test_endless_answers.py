"""Commands that say more than anybody reads end with one clear line, not never."""

import threading
from types import SimpleNamespace

import pytest

from cluster.base.errors import NodeError
from cluster.base.spec import Node
from cluster.contract import probe_session
from cluster.contract.probe_session import ProbeSession
from cluster.run.host_clocks import measure_clocks
from cluster.ssh import fleet, remote_process
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess

PIECE = b"x" * 65536
MANY = 5000  # pieces, as good as without end


class Complaining:
    """A channel of `cat /dev/zero >&2`: standard output stays silent, standard error never ends."""

    def __init__(self, most=MANY):
        self.most, self.at_once, self.counts, self.is_closed = most, 0, [], False
        self.status_event = threading.Event()

    def settimeout(self, timeout_s):
        pass

    def recv(self, count):
        self.counts.append(self.at_once)
        self.at_once = 0
        if self.is_closed:
            return b""
        raise TimeoutError

    def recv_stderr_ready(self):
        return self.most > 0

    def recv_stderr(self, count):
        assert self.most > 0, "it is read without end"
        self.most -= 1
        self.at_once += 1
        return PIECE

    def send(self, data):
        return len(data)

    def shutdown_write(self):
        pass

    def recv_exit_status(self):
        return 0

    def close(self):
        self.is_closed = True


class Returning(Complaining):
    """A channel of a command that says carriage returns alone, so many that nobody should read them all."""

    def recv(self, count):
        assert self.most > 0, "it is read without end"
        self.most -= 1
        return b"\r" * count

    def recv_stderr_ready(self):
        return False


class ReturningFleet:
    """A fleet of one node, on which every command is a Returning."""

    def __init__(self):
        self.nodes = [SimpleNamespace(name="node1", address="10.0.0.1")]
        self.channel = Returning(most=100)

    def start(self, node, argv):
        return RemoteProcess(node, self.channel)


def test_a_probe_that_says_carriage_returns_alone_is_not_understood(monkeypatch):
    monkeypatch.setattr(probe_session, "LONGEST_ANSWER_BYTES", 1 << 20)
    fleet = ReturningFleet()
    with pytest.raises(NodeError, match="it said ''") as refused, ProbeSession(fleet):
        pass
    assert list(refused.value.outcomes) == ["node1"] and fleet.channel.is_closed


def test_a_node_that_says_carriage_returns_alone_has_no_clock():
    fleet = ReturningFleet()
    assert measure_clocks(fleet, {"node1": "host west"}) == {}
    assert fleet.channel.is_closed


@pytest.mark.parametrize("wait", ["lines", "hand_over", "communicate", "wait", "patient wait"])
def test_standard_error_without_end_is_refused(wait):
    channel = Complaining()
    process = RemoteProcess("node1", channel, patience_s=1e6, command="`tar -c`")
    if wait == "patient wait":
        process.patience_s = float("inf")
    action = {
        "lines": lambda: list(process.lines()),
        "hand_over": lambda: process.hand_over(list, 1e6),
        "communicate": lambda: process.communicate(b""),
    }.get(wait, process.wait)
    with pytest.raises(NodeError, match="an answer without end") as refused:
        action()
    assert refused.value.outcomes == {"node1": "`tar -c` says more than 64 MB on standard error"}
    assert channel.is_closed and channel.most > 0


def test_clocks_of_waiting_go_on_while_standard_error_floods(monkeypatch):
    """Between two looks at standard output, only so much of standard error is read."""
    monkeypatch.setattr(remote_process, "MOST_ERROR_BYTES", 1 << 40)
    channel = Complaining()
    with pytest.raises(NodeError, match="as good as nothing"):
        list(RemoteProcess("node1", channel, patience_s=1.0).lines())
    assert max(channel.counts) <= remote_process.MOST_DRAINED


def test_what_comes_in_pieces_while_it_ends_stays_in_order():
    """The report of a rank is the last line."""

    class Ending(Complaining):
        pieces = [b"first ", b"second ", b"last"]

        def recv_stderr_ready(self):
            return bool(self.pieces)

        def recv_stderr(self, count):
            return self.pieces.pop(0) if self.pieces else b""

    channel = Ending()
    channel.status_event.set()
    assert RemoteProcess("node1", channel).wait() == (0, b"first second last")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["python3", "-m", "node.wire"], "`python3 -m node.wire`"),
        (["sh", "-c", "a\nb"], "`sh -c 'a b'`"),
        (["echo", "x" * 200], f"`echo {'x' * 54}…`"),
    ],
)
def test_an_answer_without_end_names_its_command_in_one_line(tmp_path, monkeypatch, argv, named):
    monkeypatch.setattr(fleet, "open_channel", lambda *_: Complaining())
    one = Fleet([Node("node1", 1, "10.0.0.1", "02:00:00:00:00:01", "127.0.0.1", 1)], tmp_path)
    one._clients["node1"] = SimpleNamespace()
    with pytest.raises(NodeError) as refused:
        one.run_on("node1", argv)
    assert refused.value.outcomes["node1"].startswith(f"{named} says more than")
    one._clients.clear()
    one.close()
