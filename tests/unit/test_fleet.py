"""Waiting for a node's sshd, against sockets that are slow, misbehave or stay silent."""

import math
import socket
import subprocess
import threading
import time
from contextlib import suppress

import paramiko
import pytest

from cluster.base.errors import ClusterError, NodeError
from cluster.base.spec import Node
from cluster.ssh import connection
from cluster.ssh.fleet import Fleet
from cluster.ssh.keys import LOGIN_KEY


class Door:
    """A listening socket that greets each client after a delay, as sshd on a busy machine does; None: hangs up."""

    def __init__(self, greeting_after_s: float | None) -> None:
        self.knocks = 0
        self._after_s = greeting_after_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.knocks += 1
            threading.Thread(target=self._greet, args=(caller,), daemon=True).start()

    def _greet(self, caller: socket.socket) -> None:
        if self._after_s is None:
            caller.close()
            return
        time.sleep(self._after_s)
        with caller:
            try:
                caller.sendall(b"SSH-2.0-slow\r\n")
                while caller.recv(4096):
                    pass
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def wait_at(monkeypatch):
    """A function that waits at a Door with this greeting delay and returns the Door, which counts the attempts."""
    monkeypatch.setattr(connection, "GREETING_S", 0.05)
    doors = []

    def wait(greeting_after_s: float | None, timeout_s: float, no_greeting_s: float = 30) -> Door:
        door = Door(greeting_after_s)
        doors.append(door)
        node = Node("node1", 1, "10.0.0.1", "02:00:00:00:00:01", "127.0.0.1", door.port)
        deadline, closing = time.monotonic() + timeout_s, connection.Closing()
        connection.wait_for_sshd(node, deadline, closing, no_greeting_s=no_greeting_s).close()
        return door

    yield wait
    for door in doors:
        door.close()


def test_a_slow_sshd_gets_the_time_that_it_needs(wait_at):
    # Five times the timeout of the first attempt: with a constant timeout, none would succeed.
    started = time.monotonic()
    door = wait_at(0.25, timeout_s=5)
    took_s = time.monotonic() - started
    # 0.05, 0.1, 0.2 … s: all but the last try, of twice as long each, were in vain.
    assert door.knocks <= 2 + math.log2(1 + took_s / 0.05)


def test_waiting_ends_at_the_deadline_and_says_what_was_there(wait_at):
    with pytest.raises(connection.TimedOut, match="sshd said nothing for"):
        wait_at(10, timeout_s=0.2)


def test_an_sshd_that_accepts_connections_without_a_greeting_is_not_waited_for_until_the_deadline(
    wait_at, monkeypatch
):
    monkeypatch.setattr(connection, "LONGEST_GREETING_S", 0.2)
    with pytest.raises(connection.TimedOut, match=r"sshd said nothing for 0\.\d+ s"):
        wait_at(60, timeout_s=10, no_greeting_s=0.5)


def test_one_that_is_not_there_yet_is_waited_for_until_the_deadline(wait_at, monkeypatch):
    """Docker's port proxy accepts a connection and closes it; on a busy machine that takes a while."""
    monkeypatch.setattr(connection, "GREETING_S", 5.0)
    started = time.monotonic()
    with pytest.raises(connection.TimedOut, match="no sshd there yet"):
        wait_at(None, timeout_s=0.5, no_greeting_s=0.1)
    assert time.monotonic() - started >= 0.5


def test_one_that_was_given_up_is_not_named_beside_the_one_that_failed(tmp_path):
    nodes = [
        Node(f"node{i}", i, f"10.0.0.{i}", f"02:00:00:00:00:0{i}", "127.0.0.1", 1) for i in (1, 2)
    ]
    waiting = Fleet(nodes, tmp_path)

    def action(node: Node) -> None:
        raise connection.TimedOut("no answer") if node.name == "node1" else connection.GivenUp

    with pytest.raises(NodeError) as caught:
        waiting.each(action, "not every node came up")
    assert caught.value.outcomes == {"node1": "no answer"}


class Sshd(paramiko.ServerInterface):
    """An SSH server that accepts every key."""

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username):
        return "publickey"


def greet(listener):
    """Greet the next client and return its connection."""
    caller, _ = listener.accept()
    with suppress(ConnectionError):  # the client may hang up first
        caller.sendall(b"SSH-2.0-starved\r\n")
    return caller


def drop_logins(listener, drops):
    """Greet the next `drops` clients, then close their connections."""
    for _ in range(drops):
        with greet(listener) as caller, suppress(ConnectionError):
            caller.recv(64)


def serve_logins(listener, key, made):
    """Serve every client, as sshd does; appends the connections to `made`."""
    while True:
        made.append(transport := paramiko.Transport(listener.accept()[0]))
        with suppress(paramiko.SSHException, EOFError, OSError):  # the client may hang up first
            transport.add_server_key(key)
            transport.start_server(server=Sshd())


@pytest.fixture
def node_with_key():
    """A function that starts a node's sshd with this host key.

    After the greeting, it says nothing to the first `stalls` clients and closes the connections of the next `drops`.
    """
    made, threads = [], []

    def serve(key, stalls=0, drops=0):
        listener = socket.create_server(("127.0.0.1", 0))
        made.append(listener)

        def answer():
            with suppress(OSError):  # the test is over
                made.extend(greet(listener) for _ in range(stalls))
                drop_logins(listener, drops)
                serve_logins(listener, key, made)

        threads.append(threading.Thread(target=answer, daemon=True))
        threads[-1].start()
        port = listener.getsockname()[1]
        return Node("node1", 1, "10.0.0.1", "02:00:00:00:00:01", "127.0.0.1", port)

    yield serve
    for sock in [one for one in made if isinstance(one, socket.socket)]:
        with suppress(OSError):  # closed by its client
            sock.shutdown(socket.SHUT_RDWR)  # wakes a thread in accept(), which close() does not
    for thread in threads:
        thread.join(timeout=30)
    for one in made:
        one.close()


@pytest.fixture
def host_key(tmp_path):
    """A node's host key; the folder also holds the login key and another node's key."""
    for name in (LOGIN_KEY, "host", "other"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(argv, check=True)
    return paramiko.Ed25519Key.from_private_key_file(str(tmp_path / "host"))


def pin(node, tmp_path, name="host.pub"):
    line = f"[127.0.0.1]:{node.ssh_port} {(tmp_path / name).read_text()}"
    (tmp_path / "known_hosts").write_text(line)


def test_an_sshd_that_closes_the_connection_during_the_login_is_tried_again(
    node_with_key, host_key, tmp_path
):
    node = node_with_key(host_key, drops=2)
    pin(node, tmp_path)
    client = connection.log_in(node, tmp_path, time.monotonic() + 600, connection.Closing())
    connection.hang_up([client])


def test_one_that_falls_silent_during_the_login_is_tried_again(
    node_with_key, host_key, tmp_path, monkeypatch
):
    monkeypatch.setattr(connection, "LOGIN_S", 0.25)
    node = node_with_key(host_key, stalls=2)
    pin(node, tmp_path)
    client = connection.log_in(node, tmp_path, time.monotonic() + 20, connection.Closing())
    connection.hang_up([client])


def test_one_that_is_silent_up_to_the_deadline_is_not_said_to_have_closed_the_connection(
    node_with_key, host_key, tmp_path
):
    node = node_with_key(host_key, stalls=100)
    pin(node, tmp_path)
    with pytest.raises(connection.TimedOut, match="the login was not done after 1 s"):
        connection.log_in(node, tmp_path, time.monotonic() + 0.5, connection.Closing())


def test_one_that_closes_it_between_two_steps_of_the_login_is_tried_again(
    node_with_key, host_key, tmp_path, monkeypatch
):
    node = node_with_key(host_key, drops=1)
    pin(node, tmp_path)
    connect, failures = paramiko.SSHClient.connect, [paramiko.SSHException("No existing session")]

    def fail_once(*arguments, **options):
        if failures:
            raise failures.pop()
        return connect(*arguments, **options)

    monkeypatch.setattr(paramiko.SSHClient, "connect", fail_once)
    client = connection.log_in(node, tmp_path, time.monotonic() + 600, connection.Closing())
    connection.hang_up([client])
    assert not failures


def test_one_that_always_does_is_named_at_the_deadline(
    node_with_key, host_key, tmp_path, monkeypatch
):
    monkeypatch.setattr(connection, "GREETING_S", 30.0)
    node = node_with_key(host_key, drops=1000)
    pin(node, tmp_path)
    with pytest.raises(connection.TimedOut, match="the login was closed by sshd before its end"):
        connection.log_in(node, tmp_path, time.monotonic(), connection.Closing())


def test_keys_that_are_missing_are_named_at_once(node_with_key, host_key, tmp_path):
    node = node_with_key(host_key)
    with pytest.raises(ClusterError, match="known_hosts") as caught:
        connection.log_in(node, tmp_path, time.monotonic() + 600, connection.Closing())
    assert not isinstance(caught.value, connection.TimedOut)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (LOGIN_KEY, b""),
        (LOGIN_KEY, None),
        (LOGIN_KEY, b"\xff" * 400),
        ("known_hosts", b"[127.0.0.1]:22001 ssh-ed25519 A"),
        ("known_hosts", b"\xff" * 400),
    ],
)
def test_keys_that_are_damaged_are_named_with_what_makes_them_anew(
    node_with_key, host_key, tmp_path, name, content
):
    """Whatever paramiko raises: at a key that is cut in its middle, an IndexError."""
    node = node_with_key(host_key)
    pin(node, tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:200] if content is None else content)
    with pytest.raises(ClusterError, match="is damaged") as caught:
        connection.log_in(node, tmp_path, time.monotonic() + 600, connection.Closing())
    again = f"python -m cluster.up --name {tmp_path.name} makes it anew"
    assert str(path) in caught.value.message and again in caught.value.message
    assert not isinstance(caught.value, connection.TimedOut)


@pytest.mark.parametrize("is_pinned", ["this one", "another one", "none"])
def test_a_node_with_another_host_key_is_refused(node_with_key, host_key, tmp_path, is_pinned):
    node = node_with_key(host_key)
    pinned = {"this one": "host.pub", "another one": "other.pub"}.get(is_pinned)
    (tmp_path / "known_hosts").touch()
    if pinned:
        pin(node, tmp_path, pinned)

    def log_in():
        return connection.log_in(node, tmp_path, time.monotonic() + 600, connection.Closing())

    if is_pinned == "this one":
        connection.hang_up([log_in()])
        return
    with pytest.raises(ClusterError, match="does not match|not found in known_hosts"):
        log_in()


def test_a_login_that_stalls_after_the_greeting_ends_when_nobody_wants_it_any_more(tmp_path):
    """As on Ctrl-C: otherwise Python waits at exit for the thread that logs in, for up to minutes."""
    key = tmp_path / LOGIN_KEY
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "known_hosts").touch()
    door = Door(0.0)
    fleet = Fleet(
        [Node("node1", 1, "10.0.0.1", "02:00:00:00:00:01", "127.0.0.1", door.port)], tmp_path
    )
    caught = []

    def connect() -> None:
        try:
            fleet.connect(60.0)
        except NodeError as error:
            caught.append(error)

    connecting = threading.Thread(target=connect)
    connecting.start()
    time.sleep(0.5)
    fleet.close()
    connecting.join(10)
    door.close()
    assert len(caught) == 1
