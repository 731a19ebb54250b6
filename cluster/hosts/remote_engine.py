"""What the engines of other machines have in common: one SSH connection, by which nodes are reached, too."""

from __future__ import annotations

import shlex
from typing import Self

from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.hosts.hosts_file import Host
from cluster.hosts.node_placement import place
from cluster.hosts.tunnel import Tunnel, ssh_argv
from cluster.ssh.connection import Dial


class RemoteEngine(Engine):
    """The engine of one host.

    Attributes:
        host: the host.
        tunnel: the connection to it.
    """

    make_room = "make room"
    """The hint for a disk that is full."""

    def __init__(self, host: Host, tunnel: Tunnel | None = None) -> None:
        # Without Engine's own __init__, which would connect to the Docker engine of this machine.
        self.host = host
        self.host_name = host.name
        self.where = f"host {host.name}"
        self.tunnel = tunnel or Tunnel(host)

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

    def transfer_argv(self, local: Engine, image: str) -> tuple[list[str], list[str]]:
        """Return two commands of this machine: one writes an image of its engine, the other takes it to this host.

        The first one's standard output is the second one's standard input.
        """
        raise NotImplementedError

    def accept_image(self, local: Engine, image: str) -> None:
        """Take an image that was transferred wholly into use. Raises ClusterError."""

    def discard_image(self) -> None:
        """Remove what was transferred in part. Raises ClusterError."""

    def forget_image(self, image_id: str) -> None:
        """Remove an earlier version of the image, unless nodes use it."""
        raise NotImplementedError

    def free_disk_bytes(self) -> int | None:
        """Return None: this machine cannot see the host's disk."""
        return None


def proxy_command(host: Host) -> str:
    """Return a ProxyCommand for ssh_config that connects to a port of the host."""
    # A % would begin a token of ssh_config.
    words = shlex.join([*ssh_argv(host), "-W", "TO", "--", host.ssh]).replace("%", "%%")
    return words.replace("-W TO", "-W %h:%p")
