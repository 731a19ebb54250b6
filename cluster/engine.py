"""What the Docker engine knows of our clusters: everything is found again by label, nothing is remembered here.

Containers are made by compose (`cluster.compose_process`); the engine is asked to list and to remove.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.compose import LABEL_CLUSTER, LABEL_IMAGE, LABEL_NODE, LABEL_SIZE, LABEL_SLOT
from cluster.errors import ClusterError, PrerequisiteError
from cluster.node_limits import UNLIMITED_BYTES, Limit, cpu_share_us, read_limit
from cluster.spec import IMAGE, ClusterSpec

if TYPE_CHECKING:
    from docker import APIClient

LABEL_SOURCE = "gradwire.source"
WORKING_DIR = "com.docker.compose.project.working_dir"
NO_SHARE = (100_000, -1)  # the engine's own period, and no quota
INSTALL_DOCKER = "apt-get install docker.io (Debian, Ubuntu), or Docker's own installation guide"


@dataclass(frozen=True)
class Container:
    """One node's container, as the engine lists it."""

    id: str
    cluster: str
    node: str
    size: int
    slot: int
    state: str
    health: str
    image: str
    image_id: str
    working_dir: str


class Engine:
    """The Docker engine of this machine (or of DOCKER_HOST).

    Raises:
        PrerequisiteError: there is no engine, it does not run, or this user may not ask it.
    """

    def __init__(self) -> None:
        with _engine_errors():
            self._api = _connect()

    def containers(self, cluster: str | None = None) -> list[Container]:
        """Every node's container, running or not, of one cluster or of all; in rank order."""
        label = f"{LABEL_CLUSTER}={cluster}" if cluster else LABEL_CLUSTER
        with _engine_errors():
            found = self._api.containers(all=True, filters={"label": [label, LABEL_NODE]})
        return sorted((_container(item) for item in found), key=_rank)

    def cluster(self, name: str) -> ClusterSpec | None:
        """The spec of a cluster that exists, read back from its containers' labels."""
        containers = self.containers(name)
        return _spec(containers[0]) if containers else None

    def clusters(self) -> list[ClusterSpec]:
        """Every cluster that exists."""
        return sorted({_spec(c) for c in self.containers()}, key=lambda spec: spec.slot)

    def slots(self, *, beside: str) -> set[int]:
        """The slots that other clusters hold: by their containers, or by a network that has none yet."""
        with _engine_errors():
            networks = self._api.networks(filters={"label": [LABEL_CLUSTER, LABEL_SLOT]})
        held = [(n["Labels"][LABEL_CLUSTER], int(n["Labels"][LABEL_SLOT])) for n in networks]
        held += [(container.cluster, container.slot) for container in self.containers()]
        return {slot for cluster, slot in held if cluster != beside}

    def image_id(self, tag: str) -> str | None:
        """The image behind a tag, or None."""
        image = self._image(tag)
        return str(image["Id"]) if image else None

    def image_source(self, tag: str) -> str | None:
        """The hash of the sources that an image was built from, where it says so."""
        image = self._image(tag)
        labels = (image["Config"].get("Labels") or {}) if image else {}
        return labels.get(LABEL_SOURCE)

    def limits(self, containers: Sequence[Container]) -> dict[str, Limit]:
        """What each node may use, as the engine holds it to; one that has just been removed has none."""
        with ThreadPoolExecutor(max_workers=16) as pool:
            found = list(pool.map(self._limit, containers))
        return {c.node: limit for c, limit in zip(containers, found, strict=True)}

    def set_limits(self, containers: Sequence[Container], limits: Mapping[str, Limit]) -> None:
        """Hold some nodes to new limits, at once and while they run.

        Raises:
            ClusterError: the engine refused, or a node is gone; the others are held to theirs.
        """
        failures = []
        for container in (c for c in containers if c.node in limits):
            try:
                self._set_limit(container, limits[container.node])
            except ClusterError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def room(self) -> tuple[int, int]:
        """The processors of the machine, and the bytes of its memory."""
        with _engine_errors():
            info = self._api.info()
        return int(info["NCPU"]), int(info["MemTotal"])

    def remove(self, name: str) -> list[str]:
        """Remove all containers, anonymous volumes and networks of a cluster; returns what it removed."""
        containers = self.containers(name)
        with _engine_errors(), ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(lambda c: self._remove_container(c.id), containers))
            networks = self._api.networks(filters={"label": f"{LABEL_CLUSTER}={name}"})
            for network in networks:
                self._remove_network(network["Id"])
        removed = [f"container {name}-{c.node}" for c in containers]
        return removed + [f"network {n['Name']}" for n in networks]

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """The last lines of what a container printed; nothing where it has been removed."""
        import docker.errors

        log = b""
        with suppress(docker.errors.NotFound), _engine_errors():
            log = self._api.logs(container_id, tail=lines)
        return log.decode(errors="replace")

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """What a container printed, line by line; with `follow`, until it ends."""
        rest = b""
        with _engine_errors():
            for chunk in self._api.logs(container_id, stream=True, follow=follow, tail=lines):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
        if rest:
            yield rest.decode(errors="replace")

    @contextmanager
    def starts(self, cluster: str) -> Iterator[Iterator[str]]:
        """The nodes of a cluster, each as its container starts; that goes on until the `with` block is left."""
        import docker.errors

        wanted = {"type": "container", "event": "start", "label": f"{LABEL_CLUSTER}={cluster}"}
        with _engine_errors():
            events = self._api.events(filters=wanted, decode=True)
        try:
            yield (event["Actor"]["Attributes"][LABEL_NODE] for event in events)
        finally:
            # The stream of an engine behind SSH cannot be closed: it ends with us.
            with suppress(docker.errors.DockerException):
                events.close()

    def version(self) -> str:
        """The engine's version."""
        with _engine_errors():
            return str(self._api.version()["Version"])

    def free_disk_bytes(self) -> int | None:
        """Free space where the engine keeps its images; None where this machine cannot see it."""
        with _engine_errors():
            root = Path(self._api.info()["DockerRootDir"])
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    def _limit(self, container: Container) -> Limit:
        import docker.errors

        with suppress(docker.errors.NotFound), _engine_errors():
            return read_limit(self._api.inspect_container(container.id)["HostConfig"])
        return Limit()

    def _set_limit(self, container: Container, limit: Limit) -> None:
        import docker.errors

        memory = limit.memory_bytes or UNLIMITED_BYTES
        memory_is_new = self._limit(container).memory_bytes != limit.memory_bytes
        swap = {"mem_limit": memory, "memswap_limit": memory} if memory_is_new else {}
        period_us, quota_us = NO_SHARE if limit.cpus is None else cpu_share_us(limit.cpus)
        try:
            with _engine_errors():
                self._api.update_container(
                    container.id, cpu_period=period_us, cpu_quota=quota_us, **swap
                )
        except docker.errors.NotFound as error:
            raise ClusterError(
                f"{container.node} of {container.cluster!r} is gone, and cannot be held to a limit",
                f"python -m cluster.up --name {container.cluster}",
            ) from error

    def _image(self, tag: str) -> dict | None:  # type: ignore[type-arg]
        import docker.errors

        try:
            with _engine_errors():
                image: dict = self._api.inspect_image(tag)  # type: ignore[type-arg]
        except docker.errors.ImageNotFound:
            return None
        return image

    def _remove_network(self, network_id: str) -> None:
        import docker.errors

        with suppress(docker.errors.NotFound):  # somebody else removed it: gone is what we want
            self._api.remove_network(network_id)

    def _remove_container(self, container_id: str) -> None:
        import docker.errors

        try:
            self._api.remove_container(container_id, force=True, v=True)
        except docker.errors.NotFound:
            pass  # somebody else removed it: gone is what we want
        except docker.errors.APIError as error:
            if "already in progress" not in str(error):
                raise


def _connect() -> APIClient:
    # Imported here: it takes 0.2 s, and half of the verbs do without.
    import docker

    client: APIClient = docker.from_env().api
    client.ping()
    return client


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Turn the SDK's exceptions into ours; what is not found stays what it is."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.NotFound:
        raise
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise _translate(error) from error


def _translate(error: Exception) -> ClusterError:
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return PrerequisiteError(
            "Docker is here, but this user may not use it",
            "sudo usermod -aG docker $USER, then log in again",
        )
    if "APIError" in type(error).__name__:
        return ClusterError(f"the Docker engine refused: {text}", "python -m cluster.doctor")
    if shutil.which("docker") is None:
        return PrerequisiteError("no Docker here", INSTALL_DOCKER)
    return PrerequisiteError(
        f"the Docker engine does not answer: {text}", "sudo systemctl start docker"
    )


def _container(item: dict) -> Container:  # type: ignore[type-arg]
    labels = item["Labels"]
    status = item["Status"]
    health = status[status.find("(") + 1 : -1].removeprefix("health: ") if "(" in status else ""
    return Container(
        id=item["Id"],
        cluster=labels[LABEL_CLUSTER],
        node=labels[LABEL_NODE],
        size=int(labels[LABEL_SIZE]),
        slot=int(labels[LABEL_SLOT]),
        state=item["State"],
        health=health if item["State"] == "running" else "",
        image=labels.get(LABEL_IMAGE, IMAGE),
        image_id=item["ImageID"],
        working_dir=labels.get(WORKING_DIR, ""),
    )


def _rank(container: Container) -> tuple[str, int]:
    return container.cluster, int(container.node.removeprefix("node"))


def _spec(container: Container) -> ClusterSpec:
    return ClusterSpec(container.cluster, container.size, container.slot, container.image)
