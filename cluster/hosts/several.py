"""Several engines as one: a cluster's containers wherever they are, and each operation by the engine that it is for."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec, Node, project_name
from cluster.engine.client import Engine
from cluster.engine.compose import SHARED_VOLUME
from cluster.engine.container import Container, rank_key
from cluster.engine.inspected import Inspected
from cluster.engine.resources import Limit
from cluster.engine.sdk_errors import engine_errors
from cluster.hosts.each import each_host
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.placement import nodes_by_host, place
from cluster.hosts.swarm import part_hosts, remove_network
from cluster.hosts.swarm_host import SwarmHost, overlay_name
from cluster.ssh.connection import Dial

T = TypeVar("T")


class SeveralEngines(Engine):
    """The engines of several hosts, with what Engine has.

    Args:
        hosts: all of them, as the user has written them down.
        engines: of those that answer, in the same order.
        nodes: which each has, by its name, as far as is known: for errors.
        lost: those that do not answer.

    Attributes:
        hosts, lost: as above.
    """

    note = (
        "the nodes are on several hosts: packets have 1450 bytes at most (fewer where encrypted), and clocks differ: "
        "docs/hosts.md"
    )

    def __init__(
        self,
        hosts: Hosts,
        engines: Sequence[SwarmHost],
        nodes: Mapping[str, Sequence[str]],
        lost: Sequence[Host] = (),
    ) -> None:
        # Not Engine's own, which would connect to the engine of this machine.
        self.hosts, self.lost = hosts, tuple(lost)
        self.url = None
        self.where = f"hosts {', '.join(engine.host_name for engine in engines)}"
        self.what = f"the Docker engines of {self.where}"
        self.start_it = "ssh HOST docker info must work for each of them"
        self._engines, self._nodes = tuple(engines), nodes
        self._homes: dict[str, SwarmHost] = {}

    def errors(self) -> AbstractContextManager[None]:
        """As Engine's."""
        return engine_errors(self.what, self.start_it)

    def again(self) -> SeveralEngines:
        """As Engine's: a connection of its own to each."""
        engines = [engine.again() for engine in self._engines]
        again = SeveralEngines(self.hosts, engines, self._nodes, self.lost)
        by_name = {engine.host_name: engine for engine in engines}
        again._homes = {one: by_name[home.host_name] for one, home in self._homes.items()}
        return again

    @property
    def engines(self) -> Sequence[SwarmHost]:
        """Those that answer."""
        return self._engines

    def parts(self, spec: ClusterSpec) -> list[tuple[Engine, list[str]]]:
        """As Engine's; hosts that have no node are left out."""
        return [(engine, nodes) for engine, nodes in self._parts(spec) if nodes]

    def dial_to(self, spec: ClusterSpec) -> Dial:
        """As Engine's: each by the tunnel to its host."""
        tunnels = {node: part.tunnel for part, nodes in self._parts(spec) for node in nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return tunnels[node.name].dial(node, timeout_s)

        return dial

    def proxy_commands(self, spec: ClusterSpec) -> dict[str, str]:
        """As Engine's: each by way of its host."""
        found: dict[str, str] = {}
        for part, nodes in self._parts(spec):
            commands = part.proxy_commands(spec)
            found |= {node: commands[node] for node in nodes}
        return found

    def containers(self, cluster: str | None = None) -> list[Container]:
        """As Engine's, of all hosts.

        Raises:
            ClusterError: one does not answer; names it, and its nodes.
        """
        lists = self._each(lambda engine: engine.containers(cluster))
        for engine, found in zip(self._engines, lists, strict=True):
            self._homes |= {container.id: engine for container in found}
        return sorted((container for found in lists for container in found), key=rank_key)

    def strangers(self, cluster: str) -> list[str]:
        """As Engine's, on any host."""
        return sorted(
            name for found in self._each(lambda e: e.strangers(cluster)) for name in found
        )

    def slot_of_network(self, name: str) -> int | None:
        """As Engine's, on any host."""
        slots = self._each(lambda engine: engine.slot_of_network(name))
        return next((slot for slot in slots if slot is not None), None)

    def slots(self, *, beside: str) -> set[int]:
        """As Engine's, on any host."""
        return set().union(*self._each(lambda engine: engine.slots(beside=beside)))

    def image_id(self, tag: str) -> str | None:
        """Of the first host, where all have it."""
        ids = list(self.image_ids(tag).values())
        return ids[0] if all(ids) else None

    def image_ids(self, tag: str) -> dict[str, str | None]:
        """As Engine's."""
        ids = self._each(lambda engine: engine.image_id(tag))
        return {engine.host_name: it for engine, it in zip(self._engines, ids, strict=True)}

    def image_content(self, tag: str) -> object:
        """As Engine's, where it is the same on all hosts."""
        return _same(self._each(lambda engine: engine.image_content(tag)))

    def image_source(self, tag: str) -> str | None:
        """As Engine's, where it is the same on all hosts."""
        return _same(self._each(lambda engine: engine.image_source(tag)))

    def inspect(self, container_id: str) -> Inspected | None:
        """As Engine's."""
        return self._home(container_id).inspect(container_id)

    def set_limits(self, containers: Sequence[Container], limits: Mapping[str, Limit]) -> None:
        """As Engine's."""
        self._at_home(containers, lambda engine, own: engine.set_limits(own, limits))

    def check_gpus(self, image: str, gpus: str) -> None:
        """As Engine's, on all hosts."""
        self._each(lambda engine: engine.check_gpus(image, gpus))

    def room(self) -> tuple[int, int]:
        """As Engine's: so much each host has at least."""
        rooms = self._each(lambda engine: engine.room())
        return min(cores for cores, _ in rooms), min(size for _, size in rooms)

    def architecture(self) -> str:
        """As Engine's.

        Raises:
            ClusterError: hosts differ, and no image is for all of them.
        """
        kinds = self._each(lambda engine: engine.architecture())
        if len(set(kinds)) > 1:
            said = zip(self._engines, kinds, strict=True)
            words = ", ".join(f"{engine.host_name} ({kind})" for engine, kind in said)
            raise ClusterError(f"hosts of several kinds: {words}", "hosts of one kind")
        return kinds[0]

    def remove(self, name: str) -> list[str]:
        """As Engine's; hosts leave the swarm if it is ours and nothing else needs it."""
        containers = self.containers(name)
        self.remove_containers(containers)
        volumes = set().union(*self._each(lambda engine: engine.remove_volumes(name)))
        held = self._each(lambda engine: engine.release_network(name))
        networks = remove_network(self._engines, name, patient=not self.lost)
        parted = part_hosts(self._engines, name, [host.internal_ip for host in self.lost])
        return [
            *(f"container {container.name}" for container in containers),
            *(f"container {holder}" for holders in held for holder in holders),
            *(f"volume {volume}" for volume in sorted(volumes)),
            *(f"network {network}" for network in networks),
            *(f"swarm of host {host}" for host in parted),
        ]

    def left_behind(self, name: str) -> list[str]:
        """As Engine's: what those hosts have that do not answer, and what the others keep for that reason."""
        network = overlay_name(name)
        kept = [e.host_name for e in self._engines if self.lost and network in e.networks(name)]
        return [
            *(self._left_on(host, name) for host in self.lost),
            *(f"network {network} stays on host {host}: the lost ones use it" for host in kept),
        ]

    def remove_containers(self, containers: Sequence[Container]) -> None:
        """As Engine's."""
        self._at_home(containers, lambda engine, own: engine.remove_containers(own))

    def unpause(self, containers: Sequence[Container]) -> None:
        """As Engine's."""
        self._at_home(containers, lambda engine, own: engine.unpause(own))

    def networks(self, name: str) -> list[str]:
        """As Engine's, of all hosts, each once."""
        return sorted(set().union(*self._each(lambda engine: engine.networks(name))))

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """As Engine's."""
        return self._home(container_id).log_tail(container_id, lines)

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """As Engine's."""
        return self._home(container_id).follow_log(container_id, follow=follow, lines=lines)

    @contextmanager
    def starts(self, cluster: str) -> Iterator[Iterator[str]]:
        """As Engine's, of all hosts."""
        news: queue.Queue[str] = queue.Queue()
        with ExitStack() as stack:
            for engine in self._engines:
                nodes = stack.enter_context(engine.starts(cluster))
                threading.Thread(target=_hand_on, args=(nodes, news), daemon=True).start()
            yield iter(news.get, None)

    def version(self) -> str:
        """As Engine's, of each."""
        versions = zip(self._engines, self._each(lambda engine: engine.version()), strict=True)
        return ", ".join(f"{version} on {engine.host_name}" for engine, version in versions)

    def free_disk_bytes(self) -> int | None:
        """This machine cannot see it."""
        return None

    def _parts(self, spec: ClusterSpec) -> list[tuple[SwarmHost, list[str]]]:
        hosts = self.hosts.hosts
        self._nodes = own = nodes_by_host(place([node.name for node in spec.nodes], hosts), hosts)
        return [(engine, own[engine.host_name]) for engine in self._engines]

    def _each(self, action: Callable[[SwarmHost], T]) -> list[T]:
        """Ask all of them at once; raises as `containers`."""
        return each_host(self._engines, lambda engine: self._ask(engine, action))

    def _ask(self, engine: SwarmHost, action: Callable[[SwarmHost], T]) -> T:
        try:
            return action(engine)
        except ClusterError as error:
            nodes = ", ".join(self._nodes.get(engine.host_name, ()))
            if not nodes or nodes in error.message:
                raise
            raise ClusterError(f"{error.message} (it has {nodes})", error.hint) from error

    def _at_home(
        self,
        containers: Sequence[Container],
        action: Callable[[SwarmHost, list[Container]], None],
    ) -> None:
        """Do something to containers, each by its own engine."""

        def act(engine: SwarmHost) -> None:
            own = [one for one in containers if one.host == engine.host_name]
            if own:
                action(engine, own)

        self._each(act)

    def _home(self, container_id: str) -> SwarmHost:
        """The engine that has a container; of one that none has had, whichever: it knows that it is gone."""
        if container_id not in self._homes:
            self.containers()
        return self._homes.get(container_id, self._engines[0])

    def _left_on(self, host: Host, name: str) -> str:
        nodes = ", ".join(self._nodes.get(host.name, ())) or "whatever it has"
        return (
            f"host {host.name} does not answer: {nodes} of {name!r} stay there, and its place in the swarm; once it is "
            f"back: ssh {host.ssh} 'docker rm -fv $(docker ps -aq --filter label=gradwire.cluster={name}); "
            f"docker volume rm {project_name(name)}_{SHARED_VOLUME}; docker swarm leave --force'"
        )


def _same(values: Sequence[T]) -> T | None:
    """The one value that all of them are."""
    return values[0] if all(value == values[0] for value in values) else None


def _hand_on(nodes: Iterator[str], news: queue.Queue[str]) -> None:
    for node in nodes:
        news.put(node)
