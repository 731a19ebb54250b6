"""The SSH connection to a host, made by the real ssh client to a server that only accepts logins."""

import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import paramiko
import pytest

from cluster.base.errors import PrerequisiteError
from cluster.base.spec import Node
from cluster.hosts import tunnel
from cluster.hosts.connect import has_ended
from cluster.hosts.hosts_file import Host
from cluster.hosts.tunnel import Tunnel, ssh_argv

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client")


class Admits(paramiko.ServerInterface):
    """Accepts any user with a key."""

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username):
        return "publickey"


class Server:
    """An SSH server on a port of this machine."""

    def __init__(self, key):
        self._key, self._transports = key, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            transport = paramiko.Transport(accepted)
            transport.add_server_key(self._key)
            transport.start_server(event=threading.Event(), server=Admits())
            self._transports.append(transport)

    def hang_up(self):
        for transport in self._transports:
            transport.close()

    def close(self):
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._socket.close()
        self.hang_up()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "servers"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(argv, check=True)
    return folder


@pytest.fixture
def server(keys):
    server = Server(paramiko.Ed25519Key.from_private_key_file(str(keys / "servers")))
    yield server
    server.close()


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def host(server, keys, tmp_path, free_port):
    """A host for which the user's configuration forwards a port of this machine at each login."""
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {(keys / 'servers.pub').read_text()}")
    lines = ["Host box", "  HostName 127.0.0.1", f"  Port {server.port}", "  User me"]
    lines += [f"  IdentityFile {keys / 'own'}", "  IdentitiesOnly yes"]
    lines += [f"  UserKnownHostsFile {known}", f"  LocalForward {free_port} localhost:80"]
    (tmp_path / "config").write_text("\n".join([*lines, ""]))
    return Host("box", "box", ssh_config=str(tmp_path / "config"))


def node(port):
    return Node("node1", 0, "10.77.0.11", "", "127.0.0.1", port)


def test_the_users_own_forwardings_are_left_out(host):
    said = subprocess.run([*ssh_argv(host), "-G", "box"], capture_output=True, text=True).stdout
    assert "hostname 127.0.0.1" in said and "localforward" not in said


def test_two_commands_reach_a_host_for_which_the_user_forwards_a_port(host, free_port):
    tunnels = [Tunnel(host) for _ in range(2)]
    try:
        for tunnel in tunnels:
            with socket.socket(socket.AF_UNIX) as engine:
                engine.connect(tunnel.engine_url.removeprefix("unix://"))
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", free_port))
    finally:
        for tunnel in tunnels:
            tunnel.close()


def test_a_node_that_moved_to_another_slot_has_a_way_of_its_own(host):
    tunnel = Tunnel(host)
    try:
        for port in (22001, 22101, 22001):
            tunnel.dial(node(port), 5.0).close()
    finally:
        tunnel.close()


def test_a_connection_that_has_ended_is_told_from_one_that_has_not(host, server):
    tunnel = Tunnel(host)
    engine = SimpleNamespace(engines=[SimpleNamespace()])
    try:
        assert not tunnel.has_ended and not has_ended(engine)
        server.hang_up()
        deadline = time.monotonic() + 10
        while not tunnel.has_ended:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        tunnel.close()


def test_a_host_that_is_not_there_is_named(host, server):
    server.close()
    with pytest.raises(PrerequisiteError, match="host box cannot be reached"):
        Tunnel(host)


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_host_with_another_key_than_the_known_one_is_refused(
    host, server, keys, tmp_path, monkeypatch, is_waited_for
):
    """Its words are those of the ssh client; the folder of the sockets goes."""
    known = f"[127.0.0.1]:{server.port} {(keys / 'own.pub').read_text()}"
    (tmp_path / "known_hosts").write_text(known)
    made = []
    make = tunnel.make_socket_folder
    monkeypatch.setattr(tunnel, "make_socket_folder", lambda: made.append(make()) or made[-1])
    with pytest.raises(PrerequisiteError, match="host box cannot be reached: .*has changed") as no:
        Tunnel(host, waits=is_waited_for).wait()
    assert "\n" not in no.value.message and "ssh box" in no.value.hint
    assert len(made) == 1 and not made[0].exists()
