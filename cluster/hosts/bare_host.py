"""A host without a container engine (`engine: none`): the program node.bare runs nodes there, with an OCI runtime.

The program comes with the node image, which is a folder there. It is started anew for each request, over SSH, and
answers with one JSON document (protocol/bare.py).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Self, TypeVar

from cluster.base.errors import ClusterError, PrerequisiteError, UsageError
from cluster.base.processes import HangingProgram
from cluster.engine.client import LABEL_SOURCE, Engine
from cluster.engine.compose import SLOW_START_AFTER_IDLE
from cluster.engine.container import Container, rank_key, read_container
from cluster.engine.inspected import HostConfig, Inspected
from cluster.engine.resources import Limit, cpu_share_us
from cluster.hosts.bare_image import (
    DISCARD,
    ENTER_IF_THERE,
    NOTHING,
    RECEIVE,
    accept_argv,
    describe,
    new_folder,
    send_argv,
)
from cluster.hosts.hosts_file import Host
from cluster.hosts.remote_engine import RemoteEngine
from cluster.hosts.tunnel import Tunnel
from protocol import bare
from protocol.bare import BareNode, Done, Images, Listed, Make, Named, Nodes
from protocol.reader import FormatError, document, read

NETWORK = "data"  # as Compose calls it
AT_ONCE = 8  # nodes that one request makes, starts or removes, so that each ends in time
FOLLOW = 'exec tail -n "$1" --follow=name --retry --pid="$(cat "$3")" "$2"'
SSH_FAILED = 255  # ssh's own exit code
# For one of a connection's ten sessions, while others read their logs.
SESSION_WAIT_S, RETRY_S = 20.0, 0.25
A = TypeVar("A")


class BareHost(RemoteEngine):
    """The nodes of a host without an engine.

    Raises:
        PrerequisiteError: the host cannot be reached, or the login is not root's.
    """

    kind = "runc"

    def __init__(self, host: Host, tunnel: Tunnel | None = None) -> None:
        super().__init__(host, tunnel)
        self.url = None
        self.what = f"the nodes of {self.where}"
        self.start_it = f"make this command work: ssh {host.ssh} true"
        self._folder = ""
        if self._run(["id", "-u"]) != "0":
            raise PrerequisiteError(
                f"host {host.name}: {host.ssh} is not root there, and without Docker only root can make nodes",
                "ssh: root@… in the hosts file, or a Docker engine there and no `engine: none`",
            )

    def again(self) -> Self:
        """See Engine.again: each request is a program of its own, so there is nothing to open."""
        return self

    def errors(self) -> AbstractContextManager[None]:
        """See Engine.errors: nothing is to be turned into ours."""
        return nullcontext()

    def transfer_argv(self, local: Engine, image: str) -> tuple[list[str], list[str]]:
        """See RemoteEngine.transfer_argv."""
        self._folder = new_folder()
        return send_argv(image), self.tunnel.remote(["sh", "-c", RECEIVE, "sh", self._folder])

    def accept_image(self, local: Engine, image: str) -> None:
        """See RemoteEngine.accept_image."""
        self._run(accept_argv(self._folder, describe(local, image)))

    def discard_image(self) -> None:
        """See RemoteEngine.discard_image."""
        self._run(["sh", "-c", DISCARD, "sh", self._folder])

    def forget_image(self, image_id: str) -> None:
        """See RemoteEngine.forget_image: all images go that are neither the current one nor a node's."""
        self.ask(Done, ["prune"])

    def make(self, nodes: Sequence[BareNode]) -> None:
        """Make nodes, without starting them; those of the same names are replaced. Raises like `ask`."""
        for some in _in_turn(nodes):
            self.ask(Done, ["make"], Make(some))

    def start(self, names: Sequence[str]) -> None:
        """Start nodes that do not run. Raises like `ask`."""
        for some in _in_turn(names):
            self.ask(Done, ["start"], Named(some))

    def limit(self, orders: Sequence[bare.Limit]) -> None:
        """Apply limits to nodes that exist. Raises like `ask`."""
        for order in orders:
            self.ask(Done, ["limit"], order)

    def listed(self) -> list[Listed]:
        """Return all nodes of the host, of any cluster; raises like `ask`."""
        return self.ask(Nodes, ["list"], if_nothing=Nodes([])).nodes

    def containers(self, cluster: str | None = None) -> list[Container]:
        """See Engine.containers."""
        found = [read_container(_as_listed_by_docker(one), self.host_name) for one in self.listed()]
        ours = [one for one in found if one and cluster in (None, one.cluster)]
        return sorted(ours, key=rank_key)

    def strangers(self, cluster: str) -> list[str]:
        """Return nothing: only gradwire makes nodes here."""
        return []

    def slot_of_network(self, name: str) -> int | None:
        """Return None: a network is a part of its nodes."""
        return None

    def slots(self, *, beside: str) -> set[int]:
        """See Engine.slots."""
        return {one.slot for one in self.containers() if one.cluster != beside}

    def image(self, tag: str) -> bare.Image | None:
        """Return the image of this name that came last; None if there is none."""
        found = self.ask(Images, ["images"], if_nothing=Images([])).images
        return next((image for image in reversed(found) if image.tag == tag), None)

    def image_id(self, tag: str) -> str | None:
        """See Engine.image_id."""
        image = self.image(tag)
        return image.id if image else None

    def image_content(self, tag: str) -> object:
        """See Engine.image_content."""
        image = self.image(tag)
        return image and (image.layers, image.labels)

    def image_source(self, tag: str) -> str | None:
        """See Engine.image_source."""
        image = self.image(tag)
        return image.labels.get(LABEL_SOURCE) if image else None

    def inspect(self, container_id: str) -> Inspected | None:
        """See Engine.inspect."""
        found = [one for one in self.listed() if one.name == container_id]
        return _as_inspected_by_docker(found[0]) if found else None

    def host_configs(self, containers: Sequence[Container]) -> dict[str, HostConfig]:
        """See Engine.host_configs."""
        there = {one.name: one for one in self.listed()}
        return {c.node: _host_config(there[c.id]) if c.id in there else {} for c in containers}

    def set_limits(self, containers: Sequence[Container], limits: Mapping[str, Limit]) -> None:
        """See Engine.set_limits."""
        self.limit([_limit(one.id, limits[one.node]) for one in containers if one.node in limits])

    def check_gpus(self, image: str, gpus: str) -> None:
        """Refuse GPUs: nodes without Docker have none.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.where} has no engine, and its nodes no GPUs", "leave --gpus out")

    def room(self) -> tuple[int, int]:
        """See Engine.room."""
        names = ("_NPROCESSORS_ONLN", "_PHYS_PAGES", "PAGESIZE")
        cores, pages, size = (int(self._run(["getconf", name])) for name in names)
        return cores, pages * size

    def architecture(self) -> str:
        """See Engine.architecture."""
        return self._run(["uname", "-m"])

    def remove(self, name: str) -> list[str]:
        """See Engine.remove."""
        containers = self.containers(name)
        self.remove_containers(containers)
        return [*(f"node {one.name}" for one in containers), *self.remove_volumes(name)]

    def remove_containers(self, containers: Sequence[Container]) -> None:
        """See Engine.remove_containers."""
        for some in _in_turn([one.id for one in containers]):
            self.ask(Done, ["remove"], Named(some))

    def unpause(self, containers: Sequence[Container]) -> None:
        """See Engine.unpause."""
        self.ask(Done, ["unpause"], Named([one.id for one in containers]))

    def networks(self, name: str) -> list[str]:
        """Return nothing: a network is a part of its nodes."""
        return []

    def labelled_volumes(self, name: str) -> list[str]:
        """Return nothing: what nodes share here has no labels."""
        return []

    def remove_volumes(self, name: str) -> list[str]:
        """Remove what the nodes of a cluster shared; return its name, if there was anything."""
        answer = self.ask(Done, ["forget", name], if_nothing=Done())
        return [f"shared folder of {cluster}" for cluster in answer.removed]

    def log_tail(self, container_id: str, lines: int = 20) -> str:
        """See Engine.log_tail."""
        return "\n".join(self.follow_log(container_id, follow=False, lines=lines))

    def follow_log(self, container_id: str, *, follow: bool, lines: int | str) -> Iterator[str]:
        """See Engine.follow_log."""
        count = "+1" if lines == "all" else str(lines)
        path = f"{bare.NODES_FOLDER}/{container_id}/log"
        argv = ["tail", "-n", count, path]
        if follow:  # until the process ends that writes the log
            pid_file = f"{bare.RUNTIME_FOLDER}/{container_id}.conmon.pid"
            argv = ["sh", "-c", FOLLOW, "sh", count, path, pid_file]
        deadline = time.monotonic() + SESSION_WAIT_S
        while True:
            said, exit_code = yield from self._lines(argv)
            if exit_code != SSH_FAILED:
                return
            if said or self.tunnel.has_ended:
                raise self._lost()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"host {self.host_name} reads no more logs at a time (MaxSessions of its sshd)",
                    "name fewer nodes: python -m cluster.logs NODE …",
                )
            time.sleep(RETRY_S)

    def _lines(self, argv: Sequence[str]) -> Generator[str, None, tuple[int, int]]:
        """Yield the lines of a log; return their number, and the exit code."""
        said = 0
        with self.tunnel.open(argv) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said += 1
                yield line.rstrip("\n").split(" ", 3)[-1]  # without time, stream and mark
            return said, process.wait()

    @contextmanager
    def starts(self, cluster: str) -> Iterator[Iterator[str]]:
        """See Engine.starts; yields none, because all nodes start before anybody waits for them."""
        yield iter(())

    def version(self) -> str:
        """See Engine.version."""
        return "of the node image"

    def try_wires(self, image: str) -> subprocess.CompletedProcess[str]:
        """See Engine.try_wires."""
        return self.tunnel.run(["sh", "-c", ENTER_IF_THERE, "sh", "try-wires"])

    def ask(
        self,
        answer: type[A],
        words: Sequence[str],
        order: object = None,
        *,
        if_nothing: A | None = None,
    ) -> A:
        """Ask the program on the host.

        Args:
            answer: the type of its answer.
            words: the verb and its arguments.
            order: its standard input.
            if_nothing: what to return if no image ever came to this host; None: that is an error.

        Raises:
            ClusterError: the host does not answer, or cannot do it; in its own words.
        """
        stdin = "" if order is None else json.dumps(document(order))
        try:
            done = self.tunnel.run(["sh", "-c", ENTER_IF_THERE, "sh", *words], stdin)
        except HangingProgram as error:
            raise self.tunnel.hangs(_asked(words, order)) from error
        if done.returncode == NOTHING and if_nothing is not None:
            return if_nothing
        if done.returncode != 0:
            raise self._failure(words[0], done)
        try:
            value = json.loads(done.stdout)
            return read(answer, value, ignore_unknown=True)
        except (ValueError, FormatError) as error:
            raise ClusterError(
                f"host {self.host_name}: node.bare {words[0]}: {error}",
                "python -m cluster.up with the checkout that made the nodes there",
            ) from error

    def _run(self, argv: Sequence[str]) -> str:
        """Run a program on the host and return what it prints; raises ClusterError."""
        done = self.tunnel.run(argv)
        if done.returncode != 0:
            raise self._failure(argv[0], done)
        return done.stdout.strip()

    def _failure(self, verb: str, done: subprocess.CompletedProcess[str]) -> ClusterError:
        if self.tunnel.has_ended or done.returncode == SSH_FAILED:
            return self._lost()
        words = " / ".join(done.stderr.strip().splitlines()[-2:]).removeprefix("node.bare: ")
        return ClusterError(f"host {self.host_name}: {words or f'{verb}: exit {done.returncode}'}")

    def _lost(self) -> ClusterError:
        return ClusterError(f"host {self.host_name} does not answer any more", self.start_it)


def _in_turn(items: Sequence[A]) -> Iterator[list[A]]:
    """Yield the items, AT_ONCE at a time."""
    for first in range(0, len(items), AT_ONCE):
        yield list(items[first : first + AT_ONCE])


def _asked(words: Sequence[str], order: object) -> str:
    """Return a request as errors name it: `remove (gradwire-node1, gradwire-node2)`."""
    match order:
        case Named(names):
            about = names
        case Make(nodes):
            about = [node.name for node in nodes]
        case bare.Limit(name):
            about = [name]
        case _:
            about = []
    return " ".join([*words, *([f"({', '.join(about)})"] if about else [])])


def _limit(name: str, limit: Limit) -> bare.Limit:
    share_us = (0, 0) if limit.cpus is None else cpu_share_us(limit.cpus)
    return bare.Limit(name, *share_us, limit.memory_bytes or 0)


def _as_listed_by_docker(one: Listed) -> dict[str, object]:
    return {
        "Id": one.name,
        "Names": [f"/{one.name}"],
        "Labels": one.labels,
        "State": one.state,
        "Status": "",
        "ImageID": one.image,
        "NetworkSettings": {"Networks": {NETWORK: {}}},
    }


def _as_inspected_by_docker(one: Listed) -> Inspected:
    return {
        "Name": f"/{one.name}",
        "State": {
            "Running": one.state in ("running", "paused"),
            "Paused": one.state == "paused",
            "OOMKilled": one.out_of_memory,
            "ExitCode": one.exit_code,
            "StartedAt": datetime.fromtimestamp(one.started, UTC).isoformat(),
        },
        "HostConfig": _host_config(one),
        "NetworkSettings": {"Networks": {NETWORK: {}}},
    }


def _host_config(one: Listed) -> HostConfig:
    return {
        "CpuPeriod": one.cpu_period_us,
        "CpuQuota": one.cpu_quota_us,
        "Memory": one.memory_bytes,
        "Sysctls": {} if one.slow_start else {SLOW_START_AFTER_IDLE: "0"},
    }
