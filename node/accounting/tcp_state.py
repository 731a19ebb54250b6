"""What TCP does for a collective: how much it may send when one begins, and what it has retransmitted when it ends.

From TCP_INFO (tcp(7), linux/tcp.h) of this process's own sockets: some microseconds a socket. The peer of a socket is
identified by its address, which ranks of one node share.
"""

import socket
import struct
from dataclasses import dataclass
from typing import TypedDict

from node.accounting.link_counters import tcp_sockets

# struct tcp_info: 8 bytes, 24 u32, 4 u64, 6 u32, 4 u64, 2 u32, 2 u64.
TCP_INFO = struct.Struct("=8B24I4Q6I4Q2I2Q")
RTO_US, MSS_BYTES, LAST_SENT_MS, SSTHRESH, CWND = 8, 10, 17, 25, 26
SENT_AGAIN, SENT_BYTES = 31, 48
NO_SSTHRESH = 0x7FFFFFFF  # TCP_INFINITE_SSTHRESH: nothing was ever lost
LEAST_BYTES = 2048  # gloo's own messages, which ask for room, are smaller


@dataclass(frozen=True)
class TcpState:
    """TCP's state of one socket.

    Attributes:
        address: the peer's.
        window_bytes: bytes that may be in flight (cwnd).
        ssthresh_bytes: the window from which on it grows slowly; None: nothing was lost yet.
        idle_s: how long nothing has been sent.
        rto_s: the retransmission timeout.
        sent_bytes: so far.
        sent_again: segments retransmitted so far.
    """

    address: str
    window_bytes: int
    ssthresh_bytes: int | None
    idle_s: float
    rto_s: float
    sent_bytes: int
    sent_again: int


class TcpSockets:
    """The connected TCP sockets of this process: remembered, and searched for again when one of them is gone."""

    def __init__(self) -> None:
        self._fds: list[int] | None = None

    def read(self) -> dict[int, TcpState]:
        """Return the state of each connected socket, by file descriptor."""
        fds = tcp_sockets() if self._fds is None else self._fds
        found = {fd: state for fd in fds if (state := _read(fd))}
        is_complete = self._fds is None or len(found) == len(self._fds)
        self._fds = list(found) if is_complete else None
        return found

    def forget(self) -> None:
        """Search for them again at the next read: something was sent over others."""
        self._fds = None


class TcpChange(TypedDict):
    """What TCP did for a collective on the way to one peer; `tcp` of a line in docs/formats.md."""

    window_bytes: int
    ssthresh_bytes: int | None
    idle_s: float
    rto_s: float
    sent_again: int
    """Segments retransmitted meanwhile, on all sockets to that peer."""


def changes(before: dict[int, TcpState], after: dict[int, TcpState]) -> dict[str, TcpChange]:
    """Return the state at the beginning, and what was retransmitted since, by the peer's address: docs/formats.md.

    Of several sockets to one address, the window is that of the socket that sent most; sockets that sent less than
    LEAST_BYTES are left out.
    """
    sent = {fd: one.sent_bytes - before[fd].sent_bytes for fd, one in after.items() if fd in before}
    used = sorted((fd for fd, count in sent.items() if count >= LEAST_BYTES), key=sent.__getitem__)
    told: dict[str, TcpChange] = {}
    for fd in used:  # the socket that sent most comes last
        one = before[fd]
        again = after[fd].sent_again - one.sent_again
        if one.address in told:
            again += told[one.address]["sent_again"]
        told[one.address] = {
            "window_bytes": one.window_bytes,
            "ssthresh_bytes": one.ssthresh_bytes,
            "idle_s": one.idle_s,
            "rto_s": one.rto_s,
            "sent_again": again,
        }
    return told


def _read(fd: int) -> TcpState | None:
    """Read a socket's state; None if it is not connected, or gone."""
    try:
        one = socket.socket(fileno=fd)  # of the family that it has: an IPv6 address is longer
    except OSError:
        return None
    try:
        return _parse(
            one.getpeername()[0], one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        )
    except (OSError, AttributeError):  # closed meanwhile; not Linux
        return None
    finally:
        one.detach()  # it is not ours to close


def _parse(address: str, info: bytes) -> TcpState | None:
    if len(info) < TCP_INFO.size:
        return None  # a kernel before 4.19
    values = TCP_INFO.unpack_from(info)
    mss = values[MSS_BYTES]
    ssthresh = values[SSTHRESH]
    return TcpState(
        address=address.removeprefix("::ffff:"),
        window_bytes=values[CWND] * mss,
        ssthresh_bytes=None if ssthresh >= NO_SSTHRESH else ssthresh * mss,
        idle_s=values[LAST_SENT_MS] / 1e3,
        rto_s=values[RTO_US] / 1e6,
        sent_bytes=values[SENT_BYTES],
        sent_again=values[SENT_AGAIN],
    )
