"""Hosts: the user's hosts file, the arguments of the ssh client, the record, and what nodes get."""

import io
import subprocess
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import docker.constants
import jsonschema
import pytest
import yaml

from cluster.base.errors import ClusterError, PrerequisiteError, UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import IMAGE, ClusterSpec
from cluster.engine.compose import compose_document
from cluster.engine.compose_up import OldCompose, compose_failure, up_argv
from cluster.hosts import connect, record
from cluster.hosts.host_engine import HostEngine, keys_archive
from cluster.hosts.hosts_file import Host, Hosts, load_hosts
from cluster.hosts.remote_engine import proxy_command
from cluster.hosts.schema import hosts_schema
from cluster.hosts.socket_folder import make_socket_folder
from cluster.hosts.tunnel import ssh_argv

BOX = Host("box", "me@box.example")
BOXES = Hosts((BOX,))
BAD = [
    ("[]", "a mapping of hosts, ssh_config"),
    ("{}", "hosts is"),
    ("hosts: []", "hosts is"),
    ("hosts: [{name: box, ssh: me@box}, {name: bix, ssh: me@bix}]", "internal_ip is missing"),
    ("hosts: [{name: box, ssh: me@box, internal_ip: box}]", "internal_ip is 'box'"),
    ("hosts: [{name: box, ssh: me@box, internal_ip: 10.0.0.256}]", "internal_ip is"),
    ("hosts: [{name: box, ssh: me@box, nodes: 0}]", "nodes is 0"),
    ("hosts: [{name: box, ssh: me@box, nodes: yes}]", "nodes is True"),
    ("hosts: [{name: box, ssh: me@box, nodes: []}]", "nodes is"),
    ("hosts: [{name: box, ssh: me@box, nodes: [one]}]", "nodes is 'one'"),
    ("hosts: [{name: box, ssh: me@box, cpus: 0}]", "cpus is 0"),
    ("hosts: [{name: box, ssh: me@box, cpus: many}]", "cpus is 'many'"),
    ("{hosts: [{name: box, ssh: me@box}], encrypted: much}", "encrypted is 'much'"),
    ("hosts: [box]", r"hosts\[0\] is 'box'"),
    ("hosts: [{name: box}]", "ssh is missing"),
    ("hosts: [{name: Box, ssh: me@box}]", r"hosts\[0\].name is 'Box'"),
    ("hosts: [{name: box, ssh: -oProxyCommand=evil}]", r"hosts\[0\].ssh is"),
    ("hosts: [{name: box, ssh: 'me@box reboot'}]", r"hosts\[0\].ssh is"),
    ("hosts: [{name: box, ssh: me@box, proxy_jump: -F/x}]", r"hosts\[0\].proxy_jump is"),
    ("hosts: [{name: box, ssh: me@box, docker_socket: docker.sock}]", "docker_socket is"),
    ("hosts: [{name: box, ssh: me@box, docker_socket: '/a:/b'}]", "docker_socket is"),
    ("hosts: [{name: box, ssh: me@box, sssh: me}]", "did you mean 'ssh'"),
    ("{hosts: [{name: box, ssh: me@box}], ssh_confg: x}", "did you mean 'ssh_config'"),
    ("{hosts: [{name: box, ssh: me@box}], ssh_config: 3}", "ssh_config is 3"),
]


def load(tmp_path, text):
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    return load_hosts(path)


def test_a_file_names_a_host_and_the_ssh_clients_configuration_beside_it(tmp_path):
    (tmp_path / "config").write_text("")
    words = "proxy_jump: 'me@gate:2222', docker_socket: /run/user/1000/docker.sock"
    found = load(tmp_path, f"hosts: [{{name: box, ssh: box, {words}}}]\nssh_config: config")
    socket, config = "/run/user/1000/docker.sock", str(tmp_path / "config")
    assert found == Hosts((Host("box", "box", "me@gate:2222", "docker", socket, config),))
    assert ssh_argv(found.hosts[0])[-4:] == ["-F", config, "-J", "me@gate:2222"]


def test_the_shipped_example_loads_and_its_schema_takes_it():
    path = PROJECT_DIR / "examples" / "hosts.yml"
    assert load_hosts(path) == BOXES
    jsonschema.validate(yaml.safe_load(path.read_text()), hosts_schema())


def test_the_example_of_several_loads_too():
    path = PROJECT_DIR / "examples" / "several_hosts.yml"
    found = load_hosts(path)
    assert [host.name for host in found.hosts] == ["west", "east", "tower"] and not found.encrypted
    assert [host.nodes for host in found.hosts] == [("node1", "node2"), 2, None]
    jsonschema.validate(yaml.safe_load(path.read_text()), hosts_schema())


@pytest.mark.parametrize("key", ["name", "ssh", "internal_ip"])
def test_two_hosts_that_cannot_be_told_apart_are_refused(tmp_path, key):
    hosts = [{"name": f"h{n}", "ssh": f"me@h{n}", "internal_ip": f"192.168.1.{n}"} for n in (1, 2)]
    hosts[1][key] = hosts[0][key]
    with pytest.raises(UsageError, match=f"two hosts have {key}"):
        load(tmp_path, yaml.safe_dump({"hosts": hosts}))


@pytest.mark.parametrize(("text", "words"), BAD)
def test_what_cannot_be_is_one_line_that_names_the_key(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        load(tmp_path, text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), hosts_schema())


def test_a_configuration_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        load(tmp_path, "hosts: [{name: box, ssh: box}]\nssh_config: nowhere")


def test_openssh_takes_the_way_to_a_node_as_it_is_meant(tmp_path):
    host = Host("box", "me@box", "gate", ssh_config="/a b/100%")
    (tmp_path / "config").write_text(f"Host *\n  ProxyCommand {proxy_command(host)}\n")
    argv = ["ssh", "-G", "-F", tmp_path / "config", "node1"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("proxycommand ")]
    assert line.endswith("-F '/a b/100%%' -J gate -W %h:%p -- me@box"), line


def test_the_record_is_read_as_it_was_written_and_a_broken_one_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(ClusterSpec, "state_dir", property(lambda spec: tmp_path / spec.name))
    assert record.read_hosts("lab") is None
    record.write_record("lab", BOXES, {"node1": "box"})
    assert record.read_hosts("lab") == BOXES == connect.hosts_of("lab", None)
    assert connect.hosts_of("lab", BOXES) == connect.hosts_of("new", BOXES) == BOXES
    with pytest.raises(UsageError, match="'lab' is up on host box"):
        connect.hosts_of("lab", Hosts((Host("box", "me@elsewhere"),)))
    (tmp_path / "here").mkdir()
    with pytest.raises(UsageError, match="'here' is up on this machine"):
        connect.hosts_of("here", BOXES)
    several = Hosts((BOX, Host("bix", "bix", nodes=("node2", "node1"))), encrypted=True)
    record.write_record("two", several, {"node1": "bix", "node2": "bix"})
    found = record.read_record("two")
    assert found == record.Record(several, {"node1": "bix", "node2": "bix"})
    for broken in ('{"nme": 1}', "[]", '{"hosts": []}', '{"hosts": [3], "placement": {}}', "{"):
        (tmp_path / "lab" / record.FILE).write_text(broken)
        with pytest.raises(ClusterError, match="cannot be read"):
            record.read_hosts("lab")


def test_a_record_of_one_host_as_it_was_written_before_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(ClusterSpec, "state_dir", property(lambda spec: tmp_path / spec.name))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / record.FILE).write_text('{"name": "box", "ssh": "me@box.example"}')
    assert record.read_hosts("old") == BOXES


def test_keys_are_roots_and_keep_their_modes(tmp_path):
    (tmp_path / "id_ed25519").write_text("secret")
    (tmp_path / "id_ed25519").chmod(0o600)
    with tarfile.open(fileobj=io.BytesIO(keys_archive(tmp_path))) as archive:
        found = {one.name: (one.uid, one.mode) for one in archive.getmembers()}
    assert found == {"run/keys": (0, 0o700), "run/keys/id_ed25519": (0, 0o600)}


def test_containers_of_a_host_mount_nothing_of_this_machine_and_start_after_their_keys():
    services = compose_document(ClusterSpec(), mounts_keys=False)["services"]
    assert all(service["volumes"] == ["shared:/shared"] for service in services.values())
    argv = up_argv(["docker-compose"], "lab", starts=False)
    assert "--no-start" in argv and "--detach" not in argv


def test_a_compose_too_old_for_an_engine_says_so():
    error = compose_failure("  KeyError: 'ContainerConfig'\n", ClusterSpec("lab"))
    assert isinstance(error, OldCompose) and "docker-compose-v2" in error.hint


def test_what_a_killed_command_has_left_of_sockets_is_removed_and_nothing_else(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = make_socket_folder()
    assert own.stat().st_mode & 0o777 == 0o700
    pid, started, _ = own.name.removeprefix("gradwire-").split("-")
    gone = [f"gradwire-{2**22 + 1}-{started}-x", f"gradwire-{pid}-1-x"]  # no such pid; a reused pid
    stay = ["gradwire-netem-x", "gradwire-12", own.name]
    for name in (*gone, *stay[:2]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "control").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"gradwire-{pid}-2-x").symlink_to(tmp_path / "elsewhere")
    second = make_socket_folder()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*stay, second.name, "elsewhere", f"gradwire-{pid}-2-x"}


@pytest.fixture
def far_engine(monkeypatch):
    """The engine of a host, and the list of what was built and sent for it."""
    far = HostEngine.__new__(HostEngine)
    far.host, far.host_name = BOX, "box"
    sent = []
    here = SimpleNamespace(architecture=lambda: "x86_64")
    monkeypatch.setattr(connect, "Engine", lambda: here)
    monkeypatch.setattr(connect, "ensure_image", lambda *_: sent.append("built"))
    monkeypatch.setattr(connect, "ship_image", lambda *_: sent.append("sent") or True)
    return far, sent


def test_a_host_of_another_architecture_is_refused_before_anything_is_built(far_engine):
    far, sent = far_engine
    far.architecture = lambda: "aarch64"
    with pytest.raises(UsageError, match="host box is aarch64, and this machine x86_64"):
        connect.provide_image(far, IMAGE, print)
    assert sent == []
    far.architecture = lambda: "x86_64"
    assert connect.provide_image(far, IMAGE, print) and sent == ["built", "sent"]


class OldEngine(BaseHTTPRequestHandler):
    """A Docker engine of the year 2015."""

    def do_GET(self):
        body = b'{"ApiVersion": "1.21", "Version": "1.9.1"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_an_engine_that_is_too_old_is_told_with_the_version_that_is_needed():
    with HTTPServer(("127.0.0.1", 0), OldEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tunnel = SimpleNamespace(engine_url=f"tcp://127.0.0.1:{server.server_port}")
        with pytest.raises(PrerequisiteError, match="host box: .* is too old") as failed:
            HostEngine(BOX, tunnel)
        server.shutdown()
    assert f"API {docker.constants.MINIMUM_DOCKER_API_VERSION} or newer" in failed.value.hint
    assert "docker_socket" not in failed.value.hint and "\n" not in failed.value.message
