"""The Docker engine of a host, and the keys of its containers, which cannot mount a folder of this machine."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from cluster.base.errors import PrerequisiteError
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.container import Container
from cluster.hosts.hosts_file import Host
from cluster.hosts.node_placement import place
from cluster.hosts.tunnel import Tunnel, ssh_argv
from cluster.ssh.connection import Dial

KEYS = "run/keys"
"""The folder of a node's keys; on this machine Compose mounts it."""


class HostEngine(Engine):
    """The Docker engine of a host, reached through a tunnel.

    Raises:
        PrerequisiteError: the host or its engine cannot be reached; names the host.
    """

    def __init__(self, host: Host, tunnel: Tunnel | None = None) -> None:
        self.host = host
        self.host_name = host.name
        self.where = f"host {host.name}"
        self.what = f"the Docker engine of {self.where}"
        self.start_it = f"make this command work: ssh {host.ssh} docker info"
        self.tunnel = tunnel or Tunnel(host)
        try:
            super().__init__(self.tunnel.engine_url)
        except PrerequisiteError as error:
            raise PrerequisiteError(
                f"host {host.name}: no Docker engine answers at {host.docker_socket}: {error.message}",
                f"make this command work: ssh {host.ssh} docker info; or set docker_socket in the hosts file",
            ) from error

    def again(self) -> Self:
        """Return a new connection to the same engine, through the same tunnel."""
        return type(self)(self.host, self.tunnel)

    def parts(self, spec: ClusterSpec) -> list[tuple[Engine, list[str]]]:
        """See Engine.parts."""
        names = [node.name for node in spec.nodes]
        place(names, [self.host])
        return [(self, names)]

    def dial_to(self, spec: ClusterSpec) -> Dial:
        """See Engine.dial_to; connects through the tunnel."""
        return self.tunnel.dial

    def proxy_commands(self, spec: ClusterSpec) -> dict[str, str]:
        """See Engine.proxy_commands; goes through the host."""
        return dict.fromkeys((node.name for node in spec.nodes), proxy_command(self.host))

    def free_disk_bytes(self) -> int | None:
        """Return None: this machine cannot see the host's disk."""
        return None

    def copy_keys(self, spec: ClusterSpec, containers: Sequence[Container]) -> None:
        """Copy keys and first plans into nodes, running or not.

        Raises:
            ClusterError: the engine refused.
        """
        with self.errors(), ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda c: self._copy_keys(c, spec.state_dir / c.node), containers))

    def start(self, containers: Sequence[Container]) -> None:
        """Start the nodes that do not run.

        Raises:
            ClusterError: the engine refused.
        """
        idle = [container.id for container in containers if container.state != "running"]
        with self.errors(), ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(self._api.start, idle))

    def _copy_keys(self, container: Container, folder: Path) -> None:
        self._api.put_archive(container.id, "/", keys_archive(folder))


def proxy_command(host: Host) -> str:
    """Return a ProxyCommand for ssh_config that connects to a port of the host."""
    # A % would begin a token of ssh_config.
    words = shlex.join([*ssh_argv(host), "-W", "TO", "--", host.ssh]).replace("%", "%%")
    return words.replace("-W TO", "-W %h:%p")


def keys_archive(folder: Path) -> bytes:
    """Return a node's key folder as a tar archive to unpack at / of its container, owned by root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        top = tarfile.TarInfo(KEYS)
        top.type, top.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(top)
        for path in sorted(folder.iterdir()):
            member = tarfile.TarInfo(f"{KEYS}/{path.name}")
            content = path.read_bytes()
            member.size, member.mode = len(content), path.stat().st_mode & 0o777
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
