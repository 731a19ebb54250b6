"""Asks the Docker engine about our clusters, which are found by label, and changes what Compose does not.

Containers are made by compose (`cluster.engine.compose_up`); the engine is asked to list and to remove.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec, project_name
from cluster.engine.compose import LABEL_CLUSTER, LABEL_NODE, LABEL_SLOT, has_slow_start
from cluster.engine.container import (
    Container,
    container_name,
    is_number,
    names_in_project,
    rank_key,
    read_container,
)
from cluster.engine.inspected import HostConfig, Image, Inspected
from cluster.engine.resources import (
    UNLIMITED_BYTES,
    Limit,
    cpu_share_us,
    device_request,
    read_limit,
)
from cluster.engine.sdk_errors import engine_errors
from cluster.ssh.connection import Dial, dial_directly

if TYPE_CHECKING:
    from docker import APIClient

LABEL_SOURCE = "gradwire.source"
COMPOSE_PROJECT = "com.docker.compose.project"
NO_SHARE = (100_000, -1)  # the engine's own period, and no quota


class Engine:
    """A Docker engine.

    Args:
        url: where it listens; None: the engine of this machine (or of DOCKER_HOST).

    Raises:
        PrerequisiteError: there is no engine, it does not run, or this user may not ask it.
    """

    host_name = ""
    """Of the host; empty: this machine."""
    where = ""
    """The host, for readers; likewise."""
    what = "the Docker engine"
    """In errors."""
    start_it = "sudo systemctl start docker"
    """What to try where it does not answer."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        with engine_errors(self.what, self.start_it, at_first=True):
            self._api = _connect(url)

    def errors(self) -> AbstractContextManager[None]:
        """Turn the SDK's exceptions into ours within a block; what is not found stays what it is."""
        return engine_errors(self.what, self.start_it)

    def again(self) -> Engine:
        """A connection of its own to the same engine: a followed log keeps one busy."""
        return Engine(self.url)

    note = ""
    """What the user should know of where his nodes are."""

    @property
    def engines(self) -> Sequence[Engine]:
        """The engines of single machines that this is: itself."""
        return (self,)

    def parts(self, spec: ClusterSpec) -> list[tuple[Engine, list[str]]]:
        """The engines of single machines with the nodes that each has, or shall have, of a cluster.

        Raises:
            UsageError: there is no place for some.
        """
        return [(self, [node.name for node in spec.nodes])]

    def dial_to(self, spec: ClusterSpec) -> Dial:
        """What connects to the sshd of a cluster's nodes."""
        return dial_directly

    def proxy_commands(self, spec: ClusterSpec) -> dict[str, str]:
        """What an ssh client needs on its way to each node, as its `ProxyCommand`; on this machine nothing."""
        return {}

    def containers(self, cluster: str | None = None) -> list[Container]:
        """Every node's container, running or not, of one cluster or of all; in rank order.

        Labels alone prove nothing: an image that somebody has made of a node (`docker commit`) hands them on.
        """
        label = f"{LABEL_CLUSTER}={cluster}" if cluster else LABEL_CLUSTER
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [label, LABEL_NODE]})
        nodes = (read_container(item, self.host_name) for item in found)
        return sorted((node for node in nodes if node is not None), key=rank_key)

    def strangers(self, cluster: str) -> list[str]:
        """The containers of the cluster's Compose project that are no nodes of it: somebody else's project."""
        label = f"{COMPOSE_PROJECT}={project_name(cluster)}"
        ours = {container.id for container in self.containers(cluster)}
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [label]})
        return sorted(container_name(item) for item in found if item["Id"] not in ours)

    def cluster(self, name: str) -> ClusterSpec | None:
        """The spec of a cluster that exists, read back from its containers' labels."""
        containers = self.containers(name)
        return containers[0].spec if containers else None

    def clusters(self) -> list[ClusterSpec]:
        """Every cluster that exists."""
        return sorted({c.spec for c in self.containers()}, key=lambda spec: spec.slot)

    def slot_of_network(self, name: str) -> int | None:
        """The slot of a cluster's network, where it has one: its nodes may have been removed by hand."""
        with self.errors():
            found = self._api.networks(filters={"label": [f"{LABEL_CLUSTER}={name}", LABEL_SLOT]})
        slots = [
            n["Labels"][LABEL_SLOT] for n in found if n["Name"].startswith(f"{project_name(name)}_")
        ]
        return next((int(slot) for slot in slots if is_number(slot)), None)

    def slots(self, *, beside: str) -> set[int]:
        """The slots that other clusters hold: by their containers, or by a network that has none yet."""
        with self.errors():
            networks = self._api.networks(filters={"label": [LABEL_CLUSTER, LABEL_SLOT]})
        labels = [network["Labels"] for network in networks]
        held = [
            (of[LABEL_CLUSTER], int(of[LABEL_SLOT])) for of in labels if is_number(of[LABEL_SLOT])
        ]
        held += [(container.cluster, container.slot) for container in self.containers()]
        return {slot for cluster, slot in held if cluster != beside}

    def image_id(self, tag: str) -> str | None:
        """The image behind a tag, or None."""
        image = self._image(tag)
        return image["Id"] if image else None

    def image_ids(self, tag: str) -> dict[str, str | None]:
        """The same for each host, by its name: engines do not give one image the same id."""
        return {self.host_name: self.image_id(tag)}

    def image_content(self, tag: str) -> object:
        """The layers and labels of an image, the same on each engine (ids are not); None where it is not there."""
        image = self._image(tag)
        return image and (image["RootFS"].get("Layers"), image["Config"].get("Labels"))

    def image_source(self, tag: str) -> str | None:
        """The hash of the sources that an image was built from, where it says so."""
        image = self._image(tag)
        labels = (image["Config"].get("Labels") or {}) if image else {}
        return labels.get(LABEL_SOURCE)

    def inspect(self, container_id: str) -> Inspected | None:
        """All that the engine knows of a container; None where it has been removed."""
        import docker.errors

        try:
            with self.errors():
                found: Inspected = self._api.inspect_container(container_id)
        except docker.errors.NotFound:
            return None
        return found

    def limits(self, containers: Sequence[Container]) -> dict[str, Limit]:
        """What each node may use, as the engine holds it to; one that has just been removed has none."""
        return {node: read_limit(held) for node, held in self._host_configs(containers).items()}

    def slow_starts(self, containers: Sequence[Container]) -> dict[str, bool]:
        """Whether each node was made with slow start after idle."""
        return {node: has_slow_start(it) for node, it in self._host_configs(containers).items()}

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

    def check_gpus(self, image: str, gpus: str) -> None:
        """See that a container can have these GPUs, by one that ends at once: no engine tells otherwise.

        Raises:
            ClusterError: none can; in the engine's own words.
        """
        with self.errors():
            host = self._api.create_host_config(
                device_requests=[device_request(gpus)], network_mode="none"
            )
            probe = self._api.create_container(image, ["true"], host_config=host)["Id"]
        try:
            with self.errors():
                self._api.start(probe)
        except ClusterError as error:
            raise ClusterError(
                f"no node can have GPUs {gpus!r}: {error.message}",
                "install the NVIDIA container toolkit on this machine; nvidia-smi lists its GPUs",
            ) from error
        finally:
            self._remove_container(probe)

    def room(self) -> tuple[int, int]:
        """The processors of the machine, and the bytes of its memory."""
        with self.errors():
            info = self._api.info()
        return int(info["NCPU"]), int(info["MemTotal"])

    def architecture(self) -> str:
        """What its images are for, as wheels' names have it: x86_64, aarch64."""
        with self.errors():
            return str(self._api.info()["Architecture"])

    def remove(self, name: str) -> list[str]:
        """Remove all containers, volumes and networks of a cluster; returns what it removed."""
        containers = self.containers(name)
        self.remove_containers(containers)
        volumes, networks = self.remove_volumes(name), self.networks(name)
        with self.errors():
            for network in networks:
                self._remove_network(network)
        found = {"container": [c.name for c in containers], "volume": volumes, "network": networks}
        return [f"{kind} {thing}" for kind, things in found.items() for thing in things]

    def left_behind(self, name: str) -> list[str]:
        """A sentence for each thing of a cluster that could not be removed, as its machine does not answer."""
        return []

    def remove_containers(self, containers: Sequence[Container]) -> None:
        """Remove some nodes, whatever they do, with their anonymous volumes."""
        with self.errors(), ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(lambda container: self._remove_container(container.id), containers))

    def unpause(self, containers: Sequence[Container]) -> None:
        """Unpause nodes that were paused."""
        with self.errors():
            for container in containers:
                self._api.unpause(container.id)

    def networks(self, name: str) -> list[str]:
        """The names of the networks of a cluster."""
        with self.errors():
            found = self._api.networks(filters={"label": f"{LABEL_CLUSTER}={name}"})
        return names_in_project(found, name)

    def remove_volumes(self, name: str) -> list[str]:
        """Remove what outlives a cluster's containers, once these are gone; returns the names of it."""
        with self.errors():
            found = self._api.volumes(filters={"label": f"{LABEL_CLUSTER}={name}"})["Volumes"] or ()
            ours = names_in_project(found, name)
            for volume in ours:
                self._remove_volume(volume)
        return ours

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """The last lines of what a container printed; nothing where it has been removed."""
        import docker.errors

        log = b""
        with suppress(docker.errors.NotFound), self.errors():
            log = self._api.logs(container_id, tail=lines)
        return log.decode(errors="replace")

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """What a container printed, line by line; with `follow`, until it ends."""
        rest = b""
        with self.errors():
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
        with self.errors():
            events = self._api.events(filters=wanted, decode=True)
        try:
            yield (event["Actor"]["Attributes"][LABEL_NODE] for event in events)
        finally:
            # The stream of an engine behind SSH cannot be closed: it ends with us.
            with suppress(docker.errors.DockerException):
                events.close()

    def version(self) -> str:
        """The engine's version."""
        with self.errors():
            return str(self._api.version()["Version"])

    def free_disk_bytes(self) -> int | None:
        """Free space where the engine keeps its images; None where this machine cannot see it."""
        with self.errors():
            root = Path(self._api.info()["DockerRootDir"])
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    def _host_configs(self, containers: Sequence[Container]) -> dict[str, HostConfig]:
        with ThreadPoolExecutor(max_workers=16) as pool:
            found = list(pool.map(self._host_config, containers))
        return {c.node: config for c, config in zip(containers, found, strict=True)}

    def _host_config(self, container: Container) -> HostConfig:
        """What a container was made with and is held to; nothing of one that has just been removed."""
        found = self.inspect(container.id)
        return found["HostConfig"] if found else {}

    def _set_limit(self, container: Container, limit: Limit) -> None:
        import docker.errors

        memory = limit.memory_bytes or UNLIMITED_BYTES
        memory_is_new = read_limit(self._host_config(container)).memory_bytes != limit.memory_bytes
        swap = {"mem_limit": memory, "memswap_limit": memory} if memory_is_new else {}
        period_us, quota_us = NO_SHARE if limit.cpus is None else cpu_share_us(limit.cpus)
        try:
            with self.errors():
                self._api.update_container(
                    container.id, cpu_period=period_us, cpu_quota=quota_us, **swap
                )
        except docker.errors.NotFound as error:
            raise ClusterError(
                f"{container.node} of {container.cluster!r} is gone, and cannot be held to a limit",
                f"python -m cluster.up --name {container.cluster}",
            ) from error

    def _image(self, tag: str) -> Image | None:
        import docker.errors

        try:
            with self.errors():
                image: Image = self._api.inspect_image(tag)
        except docker.errors.ImageNotFound:
            return None
        return image

    def _remove_network(self, network: str) -> None:
        import docker.errors

        with suppress(docker.errors.NotFound):  # somebody else removed it: gone is what we want
            self._api.remove_network(network)

    def _remove_volume(self, volume: str) -> None:
        import docker.errors

        with suppress(docker.errors.NotFound):
            self._api.remove_volume(volume)

    def _remove_container(self, container_id: str) -> None:
        import docker.errors

        try:
            self._api.remove_container(container_id, force=True, v=True)
        except docker.errors.NotFound:
            pass  # somebody else removed it: gone is what we want
        except docker.errors.APIError as error:
            if "already in progress" not in str(error):
                raise


def docker_command(engine: Engine) -> list[str]:
    """The first words of a `docker` command line that asks this engine."""
    return ["docker", *(["--host", engine.url] if engine.url else [])]


def _connect(url: str | None) -> APIClient:
    # Imported here: it takes 0.2 s, and half of the verbs do without.
    import docker

    client: APIClient = docker.from_env().api if url is None else docker.APIClient(url)
    client.ping()
    return client
