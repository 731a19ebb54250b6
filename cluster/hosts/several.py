"""Several engines as one: finds a cluster's containers on all hosts, and passes each operation to the right engine."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Self, TypeVar

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec, Node
from cluster.engine.client import Engine
from cluster.engine.container import Container, rank_key
from cluster.engine.inspected import HostConfig, Inspected
from cluster.engine.resources import Limit
from cluster.engine.sdk_errors import engine_errors
from cluster.hosts.clean_up import bare_clean_up_command
from cluster.hosts.each import each_host
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.node_placement import nodes_by_host, place
from cluster.hosts.remote_engine import RemoteEngine
from cluster.ssh.connection import Dial

T = TypeVar("T")


class SeveralEngines(Engine):
    """The engines of several hosts behind the interface of Engine.

    Args:
        hosts: all hosts, from the user's file.
        engines: the engines of the hosts that answer, in the same order.
        nodes: the nodes of each host, by its name, as far as known; for errors.
        lost: the hosts that do not answer.

    Attributes:
        hosts, lost: see above.
    """

    note = (
        "the nodes are on several hosts: packets have 1450 bytes at most (fewer where encrypted), and clocks differ: "
        "docs/hosts.md"
    )

    def __init__(
        self,
        hosts: Hosts,
        engines: Sequence[RemoteEngine],
        nodes: Mapping[str, Sequence[str]],
        lost: Sequence[Host] = (),
    ) -> None:
        # Without Engine's own __init__, which would connect to the engine of this machine.
        self.hosts, self.lost = hosts, tuple(lost)
        self.kind = engines[0].kind
        self.url = None
        self.where = f"hosts {', '.join(engine.host_name for engine in engines)}"
        self.what = f"the engines of {self.where}"
        self.start_it = "; ".join(dict.fromkeys(engine.start_it for engine in engines))
        self._engines, self._nodes = tuple(engines), nodes
        self._homes: dict[str, RemoteEngine] = {}

    def errors(self) -> AbstractContextManager[None]:
        """See Engine.errors."""
        return engine_errors(self.what, self.start_it)

    def again(self) -> Self:
        """See Engine.again; makes a new connection to each engine."""
        engines = [engine.again() for engine in self._engines]
        again = type(self)(self.hosts, engines, self._nodes, self.lost)
        by_name = {engine.host_name: engine for engine in engines}
        again._homes = {one: by_name[home.host_name] for one, home in self._homes.items()}
        return again

    @property
    def engines(self) -> Sequence[RemoteEngine]:
        """The engines of the hosts that answer."""
        return self._engines

    def parts(self, spec: ClusterSpec) -> list[tuple[Engine, list[str]]]:
        """See Engine.parts; hosts without nodes are left out."""
        return [(engine, nodes) for engine, nodes in self._parts(spec) if nodes]

    def dial_to(self, spec: ClusterSpec) -> Dial:
        """See Engine.dial_to; connects through the tunnel to each node's host."""
        tunnels = {node: part.tunnel for part, nodes in self._parts(spec) for node in nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            return tunnels[node.name].dial(node, timeout_s)

        return dial

    def proxy_commands(self, spec: ClusterSpec) -> dict[str, str]:
        """See Engine.proxy_commands; each node's command goes through its host."""
        found: dict[str, str] = {}
        for part, nodes in self._parts(spec):
            commands = part.proxy_commands(spec)
            found |= {node: commands[node] for node in nodes}
        return found

    def containers(self, cluster: str | None = None) -> list[Container]:
        """See Engine.containers; searches all hosts.

        Raises:
            ClusterError: a host does not answer; names it and its nodes.
        """
        lists = self._each(lambda engine: engine.containers(cluster))
        for engine, found in zip(self._engines, lists, strict=True):
            self._homes |= {container.id: engine for container in found}
        return sorted((container for found in lists for container in found), key=rank_key)

    def strangers(self, cluster: str) -> list[str]:
        """See Engine.strangers; searches all hosts."""
        return sorted(
            name for found in self._each(lambda e: e.strangers(cluster)) for name in found
        )

    def slot_of_network(self, name: str) -> int | None:
        """See Engine.slot_of_network; searches all hosts."""
        slots = self._each(lambda engine: engine.slot_of_network(name))
        return next((slot for slot in slots if slot is not None), None)

    def slots(self, *, beside: str) -> set[int]:
        """See Engine.slots; searches all hosts."""
        return set().union(*self._each(lambda engine: engine.slots(beside=beside)))

    def image_id(self, tag: str) -> str | None:
        """Return the image's id on the first host, or None if a host lacks the image."""
        ids = list(self.image_ids(tag).values())
        return ids[0] if all(ids) else None

    def image_ids(self, tag: str) -> dict[str, str | None]:
        """See Engine.image_ids."""
        ids = self._each(lambda engine: engine.image_id(tag))
        return {engine.host_name: it for engine, it in zip(self._engines, ids, strict=True)}

    def image_content(self, tag: str) -> object:
        """See Engine.image_content; None if hosts differ."""
        return _same(self._each(lambda engine: engine.image_content(tag)))

    def image_source(self, tag: str) -> str | None:
        """See Engine.image_source; None if hosts differ."""
        return _same(self._each(lambda engine: engine.image_source(tag)))

    def inspect(self, container_id: str) -> Inspected | None:
        """See Engine.inspect."""
        return self._home(container_id).inspect(container_id)

    def host_configs(self, containers: Sequence[Container]) -> dict[str, HostConfig]:
        """See Engine.host_configs; asks each host for its own ones, as it knows best how many requests it takes."""
        found: dict[str, HostConfig] = {}
        self._at_home(containers, lambda engine, own: found.update(engine.host_configs(own)))
        return {container.node: found.get(container.node, {}) for container in containers}

    def set_limits(self, containers: Sequence[Container], limits: Mapping[str, Limit]) -> None:
        """See Engine.set_limits."""
        self._at_home(containers, lambda engine, own: engine.set_limits(own, limits))

    def check_gpus(self, image: str, gpus: str) -> None:
        """See Engine.check_gpus; checks all hosts."""
        self._each(lambda engine: engine.check_gpus(image, gpus))

    def room(self) -> tuple[int, int]:
        """See Engine.room; the least of any host, for processors and for memory."""
        rooms = self._each(lambda engine: engine.room())
        return min(cores for cores, _ in rooms), min(size for _, size in rooms)

    def remove(self, name: str) -> list[str]:
        """See Engine.remove."""
        containers = self.containers(name)
        self.remove_containers(containers)
        volumes = set().union(*self._each(lambda engine: engine.remove_volumes(name)))
        return [
            *(f"container {container.name}" for container in containers),
            *(f"volume {volume}" for volume in sorted(volumes)),
            *self.remove_between(name),
        ]

    def remove_between(self, name: str) -> list[str]:
        """Remove what connects the hosts for a cluster, once its containers are gone; return what was removed."""
        return []

    def left_behind(self, name: str) -> list[str]:
        """See Engine.left_behind."""
        return [
            f"host {host.name} does not answer: {self.nodes_on(host)} of {name!r} stay there; "
            f"once it is back: {bare_clean_up_command(host, name)}"
            for host in self.lost
        ]

    def nodes_on(self, host: Host) -> str:
        """Return the nodes that a host has, as far as known, for a message."""
        return ", ".join(self._nodes.get(host.name, ())) or "whatever it has"

    def remove_containers(self, containers: Sequence[Container]) -> None:
        """See Engine.remove_containers."""
        self._at_home(containers, lambda engine, own: engine.remove_containers(own))

    def unpause(self, containers: Sequence[Container]) -> None:
        """See Engine.unpause."""
        self._at_home(containers, lambda engine, own: engine.unpause(own))

    def networks(self, name: str) -> list[str]:
        """See Engine.networks; searches all hosts, and lists a name once."""
        return sorted(set().union(*self._each(lambda engine: engine.networks(name))))

    def labelled_volumes(self, name: str) -> list[str]:
        """See Engine.labelled_volumes; searches all hosts, and lists a name once."""
        return sorted(set().union(*self._each(lambda engine: engine.labelled_volumes(name))))

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """See Engine.log_tail."""
        return self._home(container_id).log_tail(container_id, lines)

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """See Engine.follow_log."""
        return self._home(container_id).follow_log(container_id, follow=follow, lines=lines)

    @contextmanager
    def starts(self, cluster: str) -> Iterator[Iterator[str]]:
        """See Engine.starts; watches all hosts. Leaving the block ends the iterator."""
        news: queue.Queue[str | None] = queue.Queue()
        with ExitStack() as stack:
            stack.callback(news.put, None)
            for engine in self._engines:
                nodes = stack.enter_context(engine.starts(cluster))
                threading.Thread(target=_hand_on, args=(nodes, news), daemon=True).start()
            yield iter(news.get, None)

    def version(self) -> str:
        """See Engine.version; lists each host's."""
        versions = zip(self._engines, self._each(lambda engine: engine.version()), strict=True)
        return ", ".join(f"{version} on {engine.host_name}" for engine, version in versions)

    def free_disk_bytes(self) -> int | None:
        """Return None: this machine cannot see the hosts' disks."""
        return None

    def _parts(self, spec: ClusterSpec) -> list[tuple[RemoteEngine, list[str]]]:
        hosts = self.hosts.hosts
        self._nodes = own = nodes_by_host(place([node.name for node in spec.nodes], hosts), hosts)
        return [(engine, own[engine.host_name]) for engine in self._engines]

    def _each(self, action: Callable[[RemoteEngine], T]) -> list[T]:
        """Run an action on all engines at once; raises like `containers`."""
        return each_host(self._engines, lambda engine: self._ask(engine, action))

    def _ask(self, engine: RemoteEngine, action: Callable[[RemoteEngine], T]) -> T:
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
        action: Callable[[RemoteEngine, list[Container]], None],
    ) -> None:
        """Run an action on each host that has some of the containers, with its own ones."""

        def act(engine: RemoteEngine) -> None:
            own = [one for one in containers if one.host == engine.host_name]
            if own:
                action(engine, own)

        self._each(act)

    def _home(self, container_id: str) -> RemoteEngine:
        """Return the engine that has a container; if none has, any engine, which will say that it is gone."""
        if container_id not in self._homes:
            self.containers()
        return self._homes.get(container_id, self._engines[0])


def _same(values: Sequence[T]) -> T | None:
    """Return the value that all are equal to, or None."""
    return values[0] if all(value == values[0] for value in values) else None


def _hand_on(nodes: Iterator[str], news: queue.Queue[str | None]) -> None:
    with suppress(Exception):  # events are a shortcut: a stream that breaks is no failure
        for node in nodes:
            news.put(node)
