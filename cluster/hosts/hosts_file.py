"""Reads a user's hosts file (`--hosts ./hosts.yml`), which names the machines that run a cluster's containers.

hosts:
  - name: box                    # for messages and `status`
    ssh: me@box.example          # destination for the ssh client, for example a name of your ~/.ssh/config
    proxy_jump: me@gate          # jump host, as for `ssh -J`; default: none, or as ~/.ssh/config says
    engine: docker               # or none: gradwire runs the nodes itself, as root; default: docker
    docker_socket: /run/user/1000/docker.sock      # its engine's; default: /var/run/docker.sock
    internal_ip: 192.168.1.10    # its address for the other hosts; required if there are several
    nodes: 4                     # at most this many, or exactly these: [node1, node2]; default: a share of the rest
    cpus: 16                     # weight of its share of the rest; default: 1
ssh_config: ./ssh_config         # instead of your ~/.ssh/config, as for `ssh -F`
encrypted: yes                   # whether to encrypt the traffic between hosts; default: no

Your own ssh client logs in, with your keys and known hosts: try `ssh me@box.example` first.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from cluster.base.errors import UsageError, shown, unknown
from cluster.base.spec import MAX_NODES
from cluster.base.yaml_file import read_yaml

KEYS = {
    "hosts file": ("hosts", "ssh_config", "encrypted"),
    "host": (
        *("name", "ssh", "proxy_jump", "engine", "docker_socket", "internal_ip", "nodes", "cpus"),
    ),
}
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
TARGET = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:,\[\]%-]*")
"""A destination for the ssh client, or several for -J; never something that it would take for an option."""
SOCKET = re.compile(r"/[^:\s]+")
"""An absolute path without colons, which would end the path on the ssh client's command line."""
NODE = re.compile(r"node[1-9][0-9]{0,2}")
DOCKER_SOCKET = "/var/run/docker.sock"
DOCKER, NONE = ENGINES = ("docker", "none")
HINT = "write it like examples/hosts.yml"
EXAMPLE = "{name: box, ssh: me@box.example}"


@dataclass(frozen=True)
class Host:
    """A machine, how to reach it by SSH, and which nodes it gets.

    Attributes:
        name: its name in messages.
        ssh: USER@HOST, HOST, or a name of the ssh client's configuration.
        proxy_jump: jump hosts, as for `ssh -J`; empty: none, or as that configuration says.
        engine: what runs the containers: DOCKER, or NONE: gradwire itself does.
        docker_socket: path of the engine's socket on the host.
        ssh_config: absolute path of the ssh client's configuration; empty: the user's own.
        internal_ip: its address for the other hosts; empty: there are none.
        nodes: how many nodes it has at most, or their names; None: a share of the remaining nodes.
        cpus: the weight of that share.
    """

    name: str
    ssh: str
    proxy_jump: str = ""
    engine: str = DOCKER
    docker_socket: str = DOCKER_SOCKET
    ssh_config: str = ""
    internal_ip: str = ""
    nodes: int | tuple[str, ...] | None = None
    cpus: float = 1.0

    @property
    def has_engine(self) -> bool:
        """Whether it has a Docker engine."""
        return self.engine == DOCKER

    def document(self) -> dict[str, object]:
        """Return the host as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Hosts:
    """The machines of one cluster, and whether the traffic between them is encrypted."""

    hosts: tuple[Host, ...]
    encrypted: bool = False

    @property
    def have_engines(self) -> bool:
        """Whether they have Docker engines: all of them have, or none."""
        return self.hosts[0].has_engine

    @property
    def words(self) -> str:
        """The hosts as text for messages."""
        named = ", ".join(f"{host.name} ({host.ssh})" for host in self.hosts)
        return f"host {named}" if len(self.hosts) == 1 else f"hosts {named}"


def load_hosts(path: Path) -> Hosts:
    """Return the hosts of a user's file.

    Raises:
        UsageError: the file does not exist or is not YAML, or a key or value is invalid; names file and key.
    """
    document = read_yaml(path, HINT)
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a mapping of {', '.join(KEYS['hosts file'])}", HINT)
    _check_keys(document, "hosts file", str(path))
    listed, encrypted = document.get("hosts"), document.get("encrypted", False)
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"{path}: hosts is {shown(listed)}", "a list: - {name: box, ssh: me@box}")
    if not isinstance(encrypted, bool):
        raise UsageError(f"{path}: encrypted is {shown(encrypted)}", "yes, or no")
    ssh_config = _ssh_config(document, path)
    hosts = tuple(
        _parse_host(one, ssh_config, f"{path}: hosts[{place}]") for place, one in enumerate(listed)
    )
    _check_together(hosts, path)
    _check_engines(hosts, path, encrypted=encrypted)
    return Hosts(hosts, encrypted)


def _check_together(hosts: tuple[Host, ...], path: Path) -> None:
    """Refuse hosts that cannot be told apart, and several hosts without `internal_ip`."""
    for key in ("name", "ssh", "internal_ip"):
        said = [value for host in hosts if (value := getattr(host, key))]
        twice = sorted({value for value in said if said.count(value) > 1})
        if twice:
            raise UsageError(
                f"{path}: two hosts have {key} {twice[0]}", f"give each host its own {key}"
            )
    for place, host in enumerate(hosts):
        if len(hosts) > 1 and not host.internal_ip:
            raise UsageError(
                f"{path}: hosts[{place}].internal_ip is missing: there are several hosts",
                "add the address by which the others reach it: internal_ip: 192.168.1.10",
            )


def _check_engines(hosts: tuple[Host, ...], path: Path, *, encrypted: bool) -> None:
    """Refuse hosts of which only some have an engine, and encryption, which is Docker's, without engines."""
    if len({host.engine for host in hosts}) > 1:
        raise UsageError(
            f"{path}: some hosts have engine: none, and others not", "the same for all"
        )
    if encrypted and not hosts[0].has_engine:
        raise UsageError(
            f"{path}: encrypted: only Docker encrypts, and these hosts have engine: none",
            "leave it out, and let hosts reach one another by a VPN of your own: WireGuard",
        )


def _parse_host(document: object, ssh_config: str, source: str) -> Host:
    if not isinstance(document, dict):
        raise UsageError(f"{source} is {shown(document)}", EXAMPLE)
    _check_keys(document, "host", source)
    for key in ("name", "ssh"):
        if key not in document:
            raise UsageError(f"{source}: {key} is missing", EXAMPLE)
    return Host(
        name=_word(document["name"], NAME, f"{source}.name", "box"),
        ssh=_word(document["ssh"], TARGET, f"{source}.ssh", "me@box.example"),
        proxy_jump=_word(document["proxy_jump"], TARGET, f"{source}.proxy_jump", "me@gate")
        if "proxy_jump" in document
        else "",
        engine=_engine(document, source),
        docker_socket=_socket(document.get("docker_socket", DOCKER_SOCKET), source),
        ssh_config=ssh_config,
        internal_ip=_address(document["internal_ip"], source) if "internal_ip" in document else "",
        nodes=_nodes(document["nodes"], source) if "nodes" in document else None,
        cpus=_cpus(document.get("cpus", 1.0), source),
    )


def _check_keys(document: Mapping[object, object], kind: str, source: str) -> None:
    for key in document:
        if key not in KEYS[kind]:
            raise unknown(f"key in {source}:", key, KEYS[kind])


def _word(value: object, pattern: re.Pattern[str], what: str, example: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise UsageError(f"{what} is {shown(value)}", f"as in {example}")
    return value


def _engine(document: Mapping[object, object], source: str) -> str:
    value = document.get("engine", DOCKER)
    if not isinstance(value, str) or value not in ENGINES:
        raise UsageError(f"{source}.engine is {shown(value)}", "docker, or none")
    if value == NONE and "docker_socket" in document:
        raise UsageError(
            f"{source}: engine: none and docker_socket exclude each other", "leave one of them out"
        )
    return value


def _socket(value: object, source: str) -> str:
    if not isinstance(value, str) or not SOCKET.fullmatch(value):
        raise UsageError(f"{source}.docker_socket is {shown(value)}", DOCKER_SOCKET)
    return value


def _address(value: object, source: str) -> str:
    try:
        return str(IPv4Address(value if isinstance(value, str) else ""))
    except AddressValueError:
        raise UsageError(f"{source}.internal_ip is {shown(value)}", "192.168.1.10") from None


def _nodes(value: object, source: str) -> int | tuple[str, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_NODES:
        return value
    if isinstance(value, list) and value:
        return tuple(_word(one, NODE, f"{source}.nodes", "[node1, node3]") for one in value)
    raise UsageError(f"{source}.nodes is {shown(value)}", "how many: 4; or which: [node1, node3]")


def _cpus(value: object, source: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) < float("inf"):
        raise UsageError(f"{source}.cpus is {shown(value)}", "the number of its processors: 8")
    return float(str(value))


def _ssh_config(document: Mapping[object, object], path: Path) -> str:
    said = document.get("ssh_config", "")
    if not isinstance(said, str):
        raise UsageError(
            f"{path}: ssh_config is {shown(said)}", "a configuration file of the ssh client"
        )
    if not said:
        return ""
    file = (path.parent / said).absolute()
    if not file.is_file():
        raise UsageError(f"{path}: ssh_config: no file {file}")
    return str(file)
