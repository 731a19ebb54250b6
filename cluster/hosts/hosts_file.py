"""Hosts from a user's YAML file (`--hosts ./hosts.yml`): the machine on which a cluster's containers are.

hosts:
  - name: box                    # in messages, and in what `status` prints
    ssh: me@box.example          # as the ssh client takes it: a name of your ~/.ssh/config, too
    proxy_jump: me@gate          # over which machine, as `ssh -J`; left out: directly, or as ~/.ssh/config says
    docker_socket: /run/user/1000/docker.sock      # of its engine; left out: /var/run/docker.sock
ssh_config: ./ssh_config         # instead of your ~/.ssh/config, as `ssh -F`

Your own ssh client logs in, with your keys and the host keys that you know: try `ssh me@box.example` first.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.yaml_file import read_yaml

KEYS = {
    "hosts file": ("hosts", "ssh_config"),
    "host": ("name", "ssh", "proxy_jump", "docker_socket"),
}
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
TARGET = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:,\[\]%-]*")
"""What the ssh client takes as a destination, or several behind -J; never what it would take for an option."""
SOCKET = re.compile(r"/[^:\s]+")
"""A colon ends the path of a forwarded socket on the ssh client's command line."""
DOCKER_SOCKET = "/var/run/docker.sock"
HINT = "examples/hosts.yml is one"


@dataclass(frozen=True)
class Host:
    """A machine with a Docker engine, and how the ssh client gets there.

    Attributes:
        name: in messages.
        ssh: USER@HOST, HOST, or a name of the ssh client's configuration.
        proxy_jump: machines on the way, as `ssh -J` takes them; empty: none, or as that configuration says.
        docker_socket: the engine's, on the host.
        ssh_config: the ssh client's configuration, an absolute path; empty: the user's own.
    """

    name: str
    ssh: str
    proxy_jump: str = ""
    docker_socket: str = DOCKER_SOCKET
    ssh_config: str = ""

    def document(self) -> dict[str, str]:
        """As JSON values."""
        return asdict(self)


def load_host(path: Path) -> Host:
    """The host of a user's file.

    Raises:
        UsageError: no such file, no YAML, or a key or value that cannot be; the message names file and key.
    """
    document = read_yaml(path, HINT)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a mapping of {', '.join(KEYS['hosts file'])}", HINT)
    _check_keys(document, "hosts file", str(path))
    hosts = document.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        raise UsageError(f"{path}: hosts is {shown(hosts)}", "a list: - {name: box, ssh: me@box}")
    if len(hosts) > 1:
        raise UsageError(
            f"{path}: {len(hosts)} hosts, and a cluster is on one of them", "a file for each"
        )
    return _parse_host(hosts[0], _ssh_config(document, path), f"{path}: hosts[0]")


def _parse_host(document: object, ssh_config: str, source: str) -> Host:
    if not isinstance(document, dict):
        raise UsageError(f"{source} is {shown(document)}", "{name: box, ssh: me@box.example}")
    _check_keys(document, "host", source)
    for key in ("name", "ssh"):
        if key not in document:
            raise UsageError(f"{source}: {key} is missing", "{name: box, ssh: me@box.example}")
    return Host(
        name=_word(document["name"], NAME, f"{source}.name", "box"),
        ssh=_word(document["ssh"], TARGET, f"{source}.ssh", "me@box.example"),
        proxy_jump=_word(document["proxy_jump"], TARGET, f"{source}.proxy_jump", "me@gate")
        if "proxy_jump" in document
        else "",
        docker_socket=_socket(document.get("docker_socket", DOCKER_SOCKET), source),
        ssh_config=ssh_config,
    )


def _check_keys(document: Mapping[object, object], kind: str, source: str) -> None:
    for key in document:
        if key not in KEYS[kind]:
            raise unknown(f"key in {source}:", key, KEYS[kind])


def _word(value: object, pattern: re.Pattern[str], what: str, example: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise UsageError(f"{what} is {shown(value)}", f"as in {example}")
    return value


def _socket(value: object, source: str) -> str:
    if not isinstance(value, str) or not SOCKET.fullmatch(value):
        raise UsageError(f"{source}.docker_socket is {shown(value)}", DOCKER_SOCKET)
    return value


def _ssh_config(document: Mapping[object, object], path: Path) -> str:
    said = document.get("ssh_config", "")
    if not isinstance(said, str):
        raise UsageError(f"{path}: ssh_config is {shown(said)}", "a file of the ssh client's")
    if not said:
        return ""
    file = (path.parent / said).absolute()
    if not file.is_file():
        raise UsageError(f"{path}: ssh_config: no file {file}")
    return str(file)
