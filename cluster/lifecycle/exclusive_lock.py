"""An exclusive lock on a cluster, which dies with its process and leaves nothing behind.

The lock is a name in the kernel's abstract namespace of Unix sockets, so it holds for all users and checkouts of this
machine, needs no file, and is free again however its process ends. The holder can be identified: the kernel reports
the peer of a connection. A cluster on hosts has a name for each of them, too: the shells that use it may have set
different DOCKER_HOST.
"""

import hashlib
import os
import shlex
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.base.errors import ClusterError
from cluster.base.secrets import without_secrets
from cluster.hosts.hosts_file import Hosts
from cluster.hosts.record import read_hosts

MOST_NAME_BYTES = 107  # of a Unix socket's address, without the leading zero
# The holder accepts no connection: each query stays in the backlog. Beyond this many, the holder is no longer named.
MOST_QUESTIONS = 1000
UNIX = "unix://"
DEFAULT_ENGINE = f"{UNIX}/var/run/docker.sock"
MOST_WORDS = 200  # characters of a command line that are shown


class ClusterLock:
    """A reentrant lock on one cluster, held within a `with` block.

    Args:
        cluster: its name.
        hosts: the hosts that its user names; None: those on record, if any.
        force: go on if another command holds the lock.
    """

    def __init__(self, cluster: str, *, hosts: Hosts | None = None, force: bool = False) -> None:
        self._cluster, self._hosts, self._force = cluster, hosts, force
        self._sockets = ExitStack()
        self._depth = 0

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            ClusterError: another command is at work on this cluster; names it. Or the record of its hosts is damaged.
        """
        if self._depth == 0:
            self._sockets = self._take()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._sockets.close()

    def _take(self) -> ExitStack:
        """Return the sockets that are the lock: all that it has, or with `force`, those that are free."""
        with ExitStack() as taken:
            for address in _addresses(self._cluster, self._hosts or read_hosts(self._cluster)):
                lock = self._bind(address)
                if lock is not None:
                    taken.enter_context(lock)
            return taken.pop_all()

    def _bind(self, address: bytes) -> socket.socket | None:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind(address)
            lock.listen(MOST_QUESTIONS)  # so that the kernel can tell others who we are
        except OSError as error:
            lock.close()
            if self._force:
                return None
            raise ClusterError(
                f"cluster {self._cluster!r} is in use: {_holder(address)} is at work on it",
                "wait for that command, or stop it",
            ) from error
        return lock


def _addresses(cluster: str, hosts: Hosts | None) -> list[bytes]:
    """Return the lock's addresses, each once; clusters of another engine or of other hosts have other locks.

    With hosts, too, this shell's engine counts: a cluster of that name may just be coming up on this machine.
    """
    places = {host.ssh for host in hosts.hosts} if hosts else set()
    return [_address(cluster, place) for place in sorted({_engine(), *places})]


def _address(cluster: str, place: str) -> bytes:
    """Return the address of a cluster's lock at one place; a digest of all of it ends one that would be too long."""
    address = f"\0gradwire {cluster} {place}".encode()
    if len(address) <= MOST_NAME_BYTES + 1:
        return address
    digest = hashlib.sha256(address).hexdigest().encode()
    return address[: MOST_NAME_BYTES + 1 - len(digest)] + digest


def _engine() -> str:
    engine = os.environ.get("DOCKER_HOST") or DEFAULT_ENGINE
    if engine.startswith(UNIX):  # one engine, however its socket is spelt
        engine = UNIX + os.path.realpath(engine.removeprefix(UNIX))
    return engine


def _holder(address: bytes) -> str:
    """Return the command that holds the lock, as far as it can be determined."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return "another command"
    pid = struct.unpack("iII", credentials)[0]
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        words = []
    told = without_secrets([word.decode(errors="replace") for word in words])
    text = shlex.join(told)[:MOST_WORDS]
    return f"`{text}` (process {pid})" if text else f"process {pid}"
