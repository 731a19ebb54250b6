"""The Docker engine of a host, and the keys of its containers, which cannot mount a folder of this machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.base.errors import PrerequisiteError
from cluster.base.processes import run_bounded
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine, docker_command
from cluster.engine.container import Container
from cluster.hosts.hosts_file import Host
from cluster.hosts.remote_engine import RemoteEngine
from cluster.hosts.tunnel import Tunnel
from protocol.places import KEYS_FOLDER

KEYS = KEYS_FOLDER.removeprefix("/")
"""The folder of a node's keys; on this machine Compose mounts it."""


class HostEngine(RemoteEngine):
    """The Docker engine of a host, reached through a tunnel.

    Raises:
        PrerequisiteError: the host or its engine cannot be reached; names the host.
    """

    make_room = "docker system prune"

    def __init__(self, host: Host, tunnel: Tunnel | None = None) -> None:
        super().__init__(host, tunnel)
        self.what = f"the Docker engine of {self.where}"
        self.start_it = f"make this command work: ssh {host.ssh} docker info"
        try:
            self.connect(self.tunnel.engine_url)
        except PrerequisiteError as error:
            raise _unusable(host, error) from error

    def transfer_argv(self, local: Engine, image: str) -> tuple[list[str], list[str]]:
        """See RemoteEngine.transfer_argv."""
        return ["docker", "save", image], [*docker_command(self), "load"]

    def forget_image(self, image_id: str) -> None:
        """See RemoteEngine.forget_image; the engine itself keeps an image while a container uses it."""
        run_bounded([*docker_command(self), "image", "rm", image_id])

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


def _unusable(host: Host, error: PrerequisiteError) -> PrerequisiteError:
    """Return the error of a host whose engine does not answer, or is too old for Docker's SDK."""
    import docker.constants
    import docker.errors

    if isinstance(error.__cause__, docker.errors.InvalidVersion):
        return PrerequisiteError(
            f"host {host.name}: its Docker engine is too old: {error.__cause__}",
            f"install one there with API {docker.constants.MINIMUM_DOCKER_API_VERSION} or newer; "
            f"this tells what it has: ssh {host.ssh} docker version",
        )
    return PrerequisiteError(
        f"host {host.name}: no Docker engine answers at {host.docker_socket}: {error.message}",
        f"make this command work: ssh {host.ssh} docker info; or set docker_socket in the hosts file",
    )


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
