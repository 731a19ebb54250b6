"""Reads the kernel's byte counters of this node's links, once nothing is in flight."""

import os
import socket
import stat
import termios
import time
from array import array
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")
CONNECTIONS = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
# Fields of these, see proc(5): tx_queue:rx_queue, and the inode, which is 0 if no process has the connection open.
QUEUES, INODE = 4, 9
POLL_S = 0.002
MOST_WAIT_S = 10.0


def link_bytes() -> dict[str, int]:
    """Return the bytes that each outgoing link has carried, headers included, by peer; empty if none is shaped."""
    from node.wire.apply import sent_bytes
    from node.wire.commands import WireError

    try:
        return sent_bytes()
    except (WireError, OSError):
        return {}  # somebody has removed the wire: the counters are gone


def wait_until_delivered(timeout_s: float) -> None:
    """Wait until the peers' kernels have acknowledged everything that this process has sent by TCP.

    Gloo considers a collective done as soon as the kernel has taken the last bytes; they may still wait at the link.
    """
    _wait_while(lambda: any(map(_unacknowledged_bytes, tcp_sockets())), timeout_s)


def final_link_bytes() -> dict[str, int]:
    """Return the same as `link_bytes` once all closed connections have delivered what they had to send.

    ZeroMQ closes a connection as soon as the kernel has taken the last bytes, which may still wait at the link. Waits
    only on shaped links, so in a node: elsewhere connections of others would count.
    """
    if not link_bytes():
        return {}
    _wait_while(lambda: undelivered_bytes() > 0, MOST_WAIT_S)
    return link_bytes()


def _wait_while(is_in_flight: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while is_in_flight() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def undelivered_bytes() -> int:
    """Return how many bytes closed TCP connections of this network namespace have not delivered yet."""
    lines = [line for path in CONNECTIONS if path.exists() for line in path.read_text().split("\n")]
    rows = [fields for fields in map(str.split, lines) if len(fields) > INODE]
    return sum(int(fields[QUEUES].partition(":")[0], 16) for fields in rows if fields[INODE] == "0")


def tcp_sockets() -> list[int]:
    """Return the file descriptors of this process that are TCP sockets."""
    fds = [int(path.name) for path in OPEN_FILES.iterdir()] if OPEN_FILES.exists() else []
    return [fd for fd in fds if _is_tcp(fd)]


def _is_tcp(fd: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        one = socket.socket(fileno=fd)
    except OSError:
        return False  # closed meanwhile: the one of the listing itself, or one that gloo closed as a peer has gone
    try:
        inet = one.family in (socket.AF_INET, socket.AF_INET6)
        return inet and one.type == socket.SOCK_STREAM
    finally:
        one.detach()  # it is not ours to close


def _unacknowledged_bytes(fd: int) -> int:
    """Return SIOCOUTQ of tcp(7)."""
    count = array("i", [0])
    try:
        ioctl(fd, termios.TIOCOUTQ, count)
    except OSError:
        return 0  # it listens, or is closed
    return count[0]
