"""A lock for swarm changes: of all commands on this machine, for any cluster, one at a time.

Otherwise the `down` of one cluster could dissolve the swarm that the `up` of another one has just joined. Like
`cluster.lifecycle.exclusive_lock`, the lock is a name in the kernel's abstract namespace of Unix sockets: it needs no
file and is free again however its process ends. Commands on other machines do not see it.
"""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.base.errors import ClusterError

ADDRESS = b"\0gradwire-swarms"  # no cluster's lock: theirs begin with "gradwire "
WAIT_S = 120.0  # longer than hosts take to join or leave
LOOK_S = 0.1


@contextmanager
def swarm_lock(timeout_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock within a `with` block, after waiting for other commands. Not reentrant.

    Raises:
        ClusterError: another command has held it for `timeout_s`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        _bind(lock, timeout_s)
        yield


def _bind(lock: socket.socket, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            lock.bind(ADDRESS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise ClusterError(
                    f"another command on this machine has been changing a swarm for {timeout_s:.0f} s",
                    "wait for that up or down, or stop it",
                ) from error
            time.sleep(LOOK_S)
        else:
            return
