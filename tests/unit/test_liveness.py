"""A node is lost if its sshd is silent, not if it is busy; everything that waits for a lost node ends."""

import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import paramiko
import pytest

from cluster.base.errors import NodeError
from cluster.ssh import connection, liveness, remote_process
from cluster.ssh.liveness import HeardSocket, Liveness
from cluster.ssh.remote_process import RemoteProcess
from protocol.rank import LOST


class Sshd(paramiko.ServerInterface):
    """A node on which `talk` and `complain` send without end, and any other command says nothing."""

    def check_auth_none(self, username):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        sends = {b"talk": channel.sendall, b"complain": channel.sendall_stderr}
        if command in sends:
            threading.Thread(target=self._talk, args=(sends[command],), daemon=True).start()
        return True

    def _talk(self, send):
        with suppress(OSError, EOFError):
            while True:
                send(b"x" * 65536)


class Relay:
    """A relay between host and node, like Docker's port proxy: it accepts data even while the node is paused."""

    def __init__(self, host, node):
        self.is_paused = False
        for source, target in ((host, node), (node, host)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source, target):
        with source, target, suppress(OSError):
            while data := source.recv(65536):
                while self.is_paused:
                    time.sleep(0.01)
                target.sendall(data)


@pytest.fixture
def connect(monkeypatch):
    """A function that logs in to a node; it returns the relay, and a function that starts a command there."""
    monkeypatch.setattr(liveness, "ASK_INTERVAL_S", 0.1)
    monkeypatch.setattr(liveness, "LOOK_INTERVAL_S", 0.1)
    monkeypatch.setattr(liveness, "MOST_SILENT_S", 1.0)
    monkeypatch.setattr(remote_process, "LOOK_INTERVAL_S", 0.1)
    made = []

    def connect(lost):
        host, relay_host = socket.socketpair()
        relay_node, node = socket.socketpair()
        server = paramiko.Transport(node)
        server.add_server_key(paramiko.ECDSAKey.generate())
        relay = Relay(relay_host, relay_node)
        threading.Thread(target=server.start_server, kwargs={"server": Sshd()}, daemon=True).start()
        client = paramiko.SSHClient()
        client._transport = transport = paramiko.Transport(HeardSocket(host))
        transport.start_client(timeout=20)
        transport.auth_none("root")
        watched = Liveness(lost.append)
        watched.watch("node1", client)
        made.extend([watched, client, server])

        def start(command, patience_s=float("inf")):
            channel = transport.open_session()
            channel.exec_command(command)
            return RemoteProcess("node1", channel, patience_s)

        return relay, start

    yield connect
    for one in made:
        one.close()


def test_a_node_that_is_silent_is_lost_and_all_waiting_for_it_ends(connect):
    lost = []
    relay, start = connect(lost)
    process = start("say nothing")
    time.sleep(1.5)
    assert lost == []  # the command is silent, but its sshd is not
    relay.is_paused = True
    started = time.monotonic()
    assert list(process.lines()) == []
    assert process.wait()[0] == LOST
    assert (lost, time.monotonic() - started < 5) == (["node1"], True)


def test_a_node_whose_command_floods_us_is_not_lost_though_nobody_reads(connect):
    lost = []
    _, start = connect(lost)
    start("talk")
    time.sleep(2.5)
    assert lost == []


def test_who_was_stopped_himself_loses_no_node(connect, monkeypatch):
    """As with Ctrl-Z: a long time on the clock, but no additional check."""
    lost = []
    _, start = connect(lost)
    real, ahead = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + ahead[0])
    process = start("say nothing", patience_s=5.0)
    ahead[0] = 3600.0
    reader = threading.Thread(target=lambda: list(process.lines()), daemon=True)
    reader.start()
    time.sleep(0.5)
    assert (lost, reader.is_alive()) == ([], True)


@pytest.mark.parametrize(
    ("error", "words"),
    [(paramiko.SSHException("Channel closed."), "Channel closed"), (EOFError(), "SSH is closed")],
)
def test_a_command_that_sshd_never_begins_ends_by_a_timeout(monkeypatch, error, words):
    """A node's root may install another sshd, which answers keepalives and nothing else."""
    monkeypatch.setattr(connection, "OPEN_TIMEOUT_S", 0.2)

    class Channel(threading.Event):
        close = threading.Event.set

        def exec_command(self, command):
            assert self.wait(20)
            raise error

    transport = SimpleNamespace(is_active=lambda: True, open_session=lambda timeout: Channel())
    client = SimpleNamespace(get_transport=lambda: transport)
    with pytest.raises(NodeError, match=f"node1: {words}"):
        connection.open_channel(client, "node1", ["true"])


def test_a_command_that_hangs_on_a_node_that_answers_ends_by_patience(connect):
    lost = []
    _, start = connect(lost)
    with pytest.raises(NodeError, match="neither said nor taken anything"):
        start("say nothing", patience_s=0.5).communicate(b"")
    with pytest.raises(NodeError, match="neither said nor taken anything"):
        start("say nothing", patience_s=0.5).write(b"x" * 10**8)  # more than all buffers hold
    assert lost == []


@pytest.mark.parametrize("wait", ["communicate", "hand_over", "wait"])
def test_a_command_that_complains_without_end_is_given_up(connect, monkeypatch, wait):
    monkeypatch.setattr(remote_process, "MOST_ERROR_BYTES", 4 << 20)
    _, start = connect([])
    process = start("complain", patience_s=600.0)
    action = {
        "communicate": lambda: process.communicate(b""),
        "hand_over": lambda: process.hand_over(list, 600.0),
        "wait": process.wait,
    }[wait]
    with pytest.raises(NodeError, match="more than 4 MB on standard error"):
        action()


def test_a_node_that_falls_silent_is_lost_after_fifteen_seconds():
    """Counts the seconds waited, instead of using a clock."""
    lost, waited_s = [], []
    transport = SimpleNamespace(is_active=lambda: True)
    client = SimpleNamespace(get_transport=lambda: transport, close=lambda: None)
    living = Liveness(lost.append)
    living._connections.append(liveness._Connection("node1", client, SimpleNamespace(heard=7)))

    def wait(seconds):
        waited_s.append(seconds)
        return bool(lost) or len(waited_s) > 1000

    living._closing = SimpleNamespace(wait=wait)
    living._look()
    assert lost == ["node1"]
    assert 15 <= sum(waited_s) <= 17
