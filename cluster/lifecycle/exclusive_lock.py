"""An exclusive lock on a cluster, which dies with its process and leaves nothing behind.

The lock is a name in the kernel's abstract namespace of Unix sockets, so it holds for all users and checkouts of this
machine, needs no file, and is free again however its process ends. The holder can be identified: the kernel reports
the peer of a connection.
"""

import os
import shlex
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.base.errors import ClusterError

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
        force: go on if another command holds the lock.
    """

    def __init__(self, cluster: str, *, force: bool = False) -> None:
        self._cluster, self._force = cluster, force
        self._socket: socket.socket | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            ClusterError: another command is at work on this cluster; names it.
        """
        if self._depth == 0:
            self._socket = self._take()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._socket is not None:
            self._socket.close()
            self._socket = None

    def _take(self) -> socket.socket | None:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind(_address(self._cluster))
            lock.listen(MOST_QUESTIONS)  # so that the kernel can tell others who we are
        except OSError as error:
            lock.close()
            if self._force:
                return None
            raise ClusterError(
                f"cluster {self._cluster!r} is in use: {_holder(self._cluster)} is at work on it",
                "wait for that command, or stop it",
            ) from error
        return lock


def _address(cluster: str) -> bytes:
    """Return the lock's address; clusters of another engine have other locks."""
    engine = os.environ.get("DOCKER_HOST") or DEFAULT_ENGINE
    if engine.startswith(UNIX):  # one engine, however its socket is spelt
        engine = UNIX + os.path.realpath(engine.removeprefix(UNIX))
    return f"\0gradwire {cluster} {engine}".encode()[: MOST_NAME_BYTES + 1]


def _holder(cluster: str) -> str:
    """Return the command that holds the lock, as far as it can be determined."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(_address(cluster))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return "another command"
    pid = struct.unpack("iII", credentials)[0]
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        words = []
    text = shlex.join(word.decode(errors="replace") for word in words)[:MOST_WORDS]
    return f"`{text}` (process {pid})" if text else f"process {pid}"
