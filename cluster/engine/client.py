"""Queries the Docker engine about our clusters, found by label, and makes the changes that Compose does not make.

Compose creates the containers (`cluster.engine.compose_up`); this module lists, limits and removes them.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.base.errors import ClusterError
from cluster.base.line_splitter import split_lines
from cluster.base.processes import run_bounded
from cluster.base.spec import ClusterSpec, project_name
from cluster.engine.compose import LABEL_NODE, LABEL_SLOT, has_slow_start
from cluster.engine.container import (
    Container,
    container_name,
    is_number,
    names_in_project,
    rank_key,
    read_container,
    volumes_of_cluster,
)
from cluster.engine.event_stream import event_stream
from cluster.engine.inspected import HostConfig, Image, Inspected
from cluster.engine.resources import (
    UNLIMITED_BYTES,
    Limit,
    cpu_share_us,
    device_request,
    read_limit,
)
from cluster.engine.sdk_errors import Missing, engine_errors
from cluster.ssh.connection import Dial, dial_directly
from protocol.labels import LABEL_CLUSTER

if TYPE_CHECKING:
    from docker import APIClient
    from docker.types import CancellableStream

LABEL_SOURCE = "gradwire.source"
# The capabilities that the wires need, without a network.
TRY_WIRES = (
    *("run", "--rm", "--network", "none", "--cap-drop", "ALL"),
    *("--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW"),
)
COMPOSE_PROJECT = "com.docker.compose.project"
NO_SHARE = (100_000, -1)  # the engine's own period, and no quota
LOG_END_S = 1.0  # an engine may close a log before it says that the container has ended


class Engine:
    """A Docker engine.

    Args:
        url: its address; None: the engine of this machine (or of DOCKER_HOST).

    Raises:
        PrerequisiteError: there is no engine, it does not run, or this user may not use it.
    """

    kind = "Docker"
    """What it is."""
    host_name = ""
    """The host's name; empty: this machine."""
    where = ""
    """The host as messages name it; empty: this machine."""
    what = "the Docker engine"
    """The engine as errors name it."""
    start_it = "sudo systemctl start docker"
    """The hint for an engine that does not answer."""

    def __init__(self, url: str | None = None) -> None:
        self.connect(url)

    def connect(self, url: str | None) -> None:
        """Connect to the engine at an address; raises like the class."""
        self.url = url
        with engine_errors(self.what, self.start_it, at_first=True):
            self._api = _connect(url)

    def errors(self) -> AbstractContextManager[None]:
        """Turn the SDK's exceptions into ours within a block."""
        return engine_errors(self.what, self.start_it)

    def again(self) -> Engine:
        """Open another connection to the same engine, because following a log keeps one busy."""
        return Engine(self.url)

    note = ""
    """A sentence for the user about the nodes' placement; '' if there is nothing to say."""

    @property
    def engines(self) -> Sequence[Engine]:
        """The single-host engines behind this one: itself."""
        return (self,)

    def parts(self, spec: ClusterSpec) -> list[tuple[Engine, list[str]]]:
        """Return each single-host engine with the names of the cluster's nodes that it has or will have.

        Raises:
            UsageError: some nodes cannot be placed.
        """
        return [(self, [node.name for node in spec.nodes])]

    def dial_to(self, spec: ClusterSpec) -> Dial:
        """Return the function that connects to the sshd of a cluster's nodes."""
        return dial_directly

    def proxy_commands(self, spec: ClusterSpec) -> dict[str, str]:
        """Return the `ProxyCommand` that an ssh client needs for each node; empty for nodes of this machine."""
        return {}

    def containers(self, cluster: str | None = None) -> list[Container]:
        """Return every node's container, running or not, of one cluster or of all, in rank order.

        Labels alone prove nothing: an image made from a node (`docker commit`) passes them on to its containers.
        """
        label = f"{LABEL_CLUSTER}={cluster}" if cluster else LABEL_CLUSTER
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [label, LABEL_NODE]})
        nodes = (read_container(item, self.host_name) for item in found)
        return sorted((node for node in nodes if node is not None), key=rank_key)

    def strangers(self, cluster: str) -> list[str]:
        """Return the containers of the cluster's Compose project that are not its nodes: someone else's project."""
        label = f"{COMPOSE_PROJECT}={project_name(cluster)}"
        ours = {container.id for container in self.containers(cluster)}
        with self.errors():
            found = self._api.containers(all=True, filters={"label": [label]})
        return sorted(container_name(item) for item in found if item["Id"] not in ours)

    def cluster(self, name: str) -> ClusterSpec | None:
        """Return the spec of an existing cluster, read from its containers' labels; None if there is none."""
        containers = self.containers(name)
        return containers[0].spec if containers else None

    def clusters(self) -> list[ClusterSpec]:
        """Return the specs of all existing clusters, by slot."""
        return sorted({c.spec for c in self.containers()}, key=lambda spec: spec.slot)

    def slot_of_network(self, name: str) -> int | None:
        """Return the slot of a cluster's network, which may outlive nodes removed by hand; None if it has none."""
        with self.errors():
            found = self._api.networks(filters={"label": [f"{LABEL_CLUSTER}={name}", LABEL_SLOT]})
        ours = names_in_project(found, name)
        slots = [network["Labels"][LABEL_SLOT] for network in found if network["Name"] in ours]
        return next((int(slot) for slot in slots if is_number(slot)), None)

    def slots(self, *, beside: str) -> set[int]:
        """Return the slots of all clusters but `beside`, by their containers or a network still without any."""
        with self.errors():
            networks = self._api.networks(filters={"label": [LABEL_CLUSTER, LABEL_SLOT]})
        labels = [network["Labels"] for network in networks]
        held = [
            (of[LABEL_CLUSTER], int(of[LABEL_SLOT])) for of in labels if is_number(of[LABEL_SLOT])
        ]
        held += [(container.cluster, container.slot) for container in self.containers()]
        return {slot for cluster, slot in held if cluster != beside}

    def image_id(self, tag: str) -> str | None:
        """Return the id of a tag's image; None if there is none."""
        image = self.inspect_image(tag)
        return image["Id"] if image else None

    def image_ids(self, tag: str) -> dict[str, str | None]:
        """Return the id of a tag's image by host name, because engines may give the same image different ids."""
        return {self.host_name: self.image_id(tag)}

    def image_content(self, tag: str) -> object:
        """Return an image's layers and labels, which unlike its id are equal on all engines; None if it is missing."""
        image = self.inspect_image(tag)
        return image and (image["RootFS"].get("Layers"), image["Config"].get("Labels"))

    def image_source(self, tag: str) -> str | None:
        """Return the label that holds an image's source hash and build arguments; None if there is none."""
        image = self.inspect_image(tag)
        labels = (image["Config"].get("Labels") or {}) if image else {}
        return labels.get(LABEL_SOURCE)

    def inspect(self, container_id: str) -> Inspected | None:
        """Return everything that the engine knows about a container; None if it has been removed."""
        try:
            with self.errors():
                found: Inspected = self._api.inspect_container(container_id)
        except Missing:
            return None
        return found

    def limits(self, containers: Sequence[Container]) -> dict[str, Limit]:
        """Return the limits that the engine enforces on each node; no limits for a node that has just been removed."""
        return {node: read_limit(held) for node, held in self.host_configs(containers).items()}

    def slow_starts(self, containers: Sequence[Container]) -> dict[str, bool]:
        """Return whether each node was created with slow start after idle."""
        return {node: has_slow_start(it) for node, it in self.host_configs(containers).items()}

    def set_limits(self, containers: Sequence[Container], limits: Mapping[str, Limit]) -> None:
        """Apply new limits to the nodes in `limits`, at once and while they run.

        Raises:
            ClusterError: the engine refused, or a node is gone; the other nodes have their new limits.
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
        """Check that a container can have these GPUs, by starting one: the engine offers no other way to find out.

        Raises:
            ClusterError: it cannot; carries the engine's message.
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
                "install the NVIDIA container toolkit on this machine, or choose among the GPUs that nvidia-smi lists",
            ) from error
        finally:
            self._remove_container(probe)

    def room(self) -> tuple[int, int]:
        """Return the number of the machine's processors and the bytes of its memory."""
        with self.errors():
            info = self._api.info()
        return int(info["NCPU"]), int(info["MemTotal"])

    def architecture(self) -> str:
        """Return the CPU architecture of its images, as in the names of wheels: x86_64, aarch64."""
        with self.errors():
            return str(self._api.info()["Architecture"])

    def remove(self, name: str) -> list[str]:
        """Remove all containers, volumes and networks of a cluster; return what was removed."""
        containers = self.containers(name)
        self.remove_containers(containers)
        volumes, networks = self.remove_volumes(name), self.networks(name)
        with self.errors():
            for network in networks:
                self._remove_network(network)
        found = {"container": [c.name for c in containers], "volume": volumes, "network": networks}
        return [f"{kind} {thing}" for kind, things in found.items() for thing in things]

    def left_behind(self, name: str) -> list[str]:
        """Return a sentence for each part of a cluster that could not be removed because its host does not answer."""
        return []

    def remove_containers(self, containers: Sequence[Container]) -> None:
        """Remove containers, running or not, with their anonymous volumes."""
        with self.errors(), ThreadPoolExecutor(max_workers=16) as pool:
            list(pool.map(lambda container: self._remove_container(container.id), containers))

    def unpause(self, containers: Sequence[Container]) -> None:
        """Unpause nodes that were paused."""
        with self.errors():
            for container in containers:
                self._api.unpause(container.id)

    def networks(self, name: str) -> list[str]:
        """Return the names of a cluster's networks."""
        with self.errors():
            found = self._api.networks(filters={"label": f"{LABEL_CLUSTER}={name}"})
        return names_in_project(found, name)

    def labelled_volumes(self, name: str) -> list[str]:
        """Return the names of a cluster's volumes that Compose made: one without labels may be the engine's own."""
        with self.errors():
            found = self._api.volumes(filters={"label": f"{LABEL_CLUSTER}={name}"})["Volumes"] or ()
        return names_in_project(found, name)

    def remove_volumes(self, name: str) -> list[str]:
        """Remove the named volumes of a cluster, once its containers are gone; return their names."""
        with self.errors():
            found = self._api.volumes()["Volumes"] or ()
            ours = volumes_of_cluster(found, name)
            for volume in ours:
                self._remove_volume(volume)
        return ours

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """Return the last lines of a container's log; '' if it has been removed."""
        log = b""
        with suppress(Missing), self.errors():
            log = self._api.logs(container_id, tail=lines)
        return log.decode(errors="replace")

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """Yield the lines of a container's log as `split_lines` makes them; with `follow`, until it ends.

        Raises:
            ClusterError: the engine died meanwhile, or the log broke off.
        """
        with self.errors():
            yield from split_lines(
                self._api.logs(container_id, stream=True, follow=follow, tail=lines)
            )
            self._check_log_end(container_id, follow=follow)

    @contextmanager
    def starts(self, cluster: str) -> Iterator[Iterator[str]]:
        """Yield an iterator of the cluster's nodes, each as its container starts, until the `with` block is left.

        Only its first `next` asks the engine, and waits as long as that takes; it raises ClusterError.
        """
        wanted = {"type": "container", "event": "start", "label": f"{LABEL_CLUSTER}={cluster}"}

        def open_stream() -> CancellableStream:
            with self.errors():
                return self._api.events(filters=wanted, decode=True)

        with event_stream(open_stream) as events:
            yield (event["Actor"]["Attributes"][LABEL_NODE] for event in events)

    def version(self) -> str:
        """Return the engine's version."""
        with self.errors():
            return str(self._api.version()["Version"])

    def try_wires(self, image: str) -> subprocess.CompletedProcess[str]:
        """Try both wires where nodes run, with their capabilities and without a network: nothing else is affected.

        Returns:
            The run of `node.wire try`.
        """
        return run_bounded(
            [*docker_command(self), *TRY_WIRES, image, "python3", "-m", "node.wire", "try"]
        )

    def free_disk_bytes(self) -> int | None:
        """Return the free space where the engine keeps its images; None if this machine cannot see that folder."""
        with self.errors():
            root = Path(self._api.info()["DockerRootDir"])
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    def host_configs(self, containers: Sequence[Container]) -> dict[str, HostConfig]:
        """Return each node's host configuration; empty for a node that has just been removed."""
        with ThreadPoolExecutor(max_workers=16) as pool:
            found = list(pool.map(self._host_config, containers))
        return {c.node: config for c, config in zip(containers, found, strict=True)}

    def _check_log_end(self, container_id: str, *, follow: bool) -> None:
        """Raise if it was not its container that ended a log: the SDK ends logs in silence when a connection breaks."""
        found = self.inspect(container_id)
        if follow and _runs(found):
            time.sleep(LOG_END_S)
            found = self.inspect(container_id)
        if follow and found and _runs(found):
            raise ClusterError(
                f"{found['Name'].lstrip('/')} runs, and its log broke off",
                "python -m cluster.logs --follow",
            )

    def _host_config(self, container: Container) -> HostConfig:
        """Return a container's host configuration; empty if it has just been removed."""
        found = self.inspect(container.id)
        return found["HostConfig"] if found else {}

    def _set_limit(self, container: Container, limit: Limit) -> None:
        memory = limit.memory_bytes or UNLIMITED_BYTES
        memory_is_new = read_limit(self._host_config(container)).memory_bytes != limit.memory_bytes
        swap = {"mem_limit": memory, "memswap_limit": memory} if memory_is_new else {}
        period_us, quota_us = NO_SHARE if limit.cpus is None else cpu_share_us(limit.cpus)
        try:
            with self.errors():
                self._api.update_container(
                    container.id, cpu_period=period_us, cpu_quota=quota_us, **swap
                )
        except Missing as error:
            raise ClusterError(
                f"{container.node} of {container.cluster!r} is gone, and cannot be held to a limit",
                f"python -m cluster.up --name {container.cluster}",
            ) from error

    def inspect_image(self, tag: str) -> Image | None:
        """Return everything that the engine knows about a tag's image; None if there is none."""
        try:
            with self.errors():
                image: Image = self._api.inspect_image(tag)
        except Missing:
            return None
        return image

    def _remove_network(self, network: str) -> None:
        import docker.errors

        with suppress(docker.errors.NotFound):  # someone else removed it, which is what we want
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
            pass  # someone else removed it, which is what we want
        except docker.errors.APIError as error:
            if "already in progress" not in str(error):
                raise


def docker_command(engine: Engine) -> list[str]:
    """Return the first words of a `docker` command line for this engine."""
    return ["docker", *(["--host", engine.url] if engine.url else [])]


def _runs(inspected: Inspected | None) -> bool:
    return bool(inspected and inspected["State"].get("Running"))


def _connect(url: str | None) -> APIClient:
    # Imported here: it takes 0.2 s, and half of the verbs do not need it.
    import docker

    client: APIClient = docker.from_env().api if url is None else docker.APIClient(url)
    client.ping()
    return client
