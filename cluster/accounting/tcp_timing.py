"""The time that TCP takes for a number of bytes if its window is smaller than the link could take. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

MSS_BYTES = 1448
FIRST_WINDOW_BYTES = 10 * MSS_BYTES  # RFC 6928, and Linux after a pause (tcp_slow_start_after_idle)
LEAST_RTO_S = 0.2  # Linux: a pause is longer than this, and than a round trip


@dataclass(frozen=True)
class Window:
    """The amount of data that TCP may have in flight.

    Attributes:
        size_bytes: that amount.
        ssthresh_bytes: up to here it doubles each round trip; beyond, it counts as constant, since it grows by little
            during one collective.
    """

    size_bytes: float = math.inf
    ssthresh_bytes: float = math.inf

    def grown(self, acknowledged_bytes: float) -> "Window":
        """Return the window after this many more bytes have been acknowledged."""
        size = min(self.size_bytes + acknowledged_bytes, max(self.size_bytes, self.ssthresh_bytes))
        return Window(size, self.ssthresh_bytes)


UNLIMITED = Window()
Windows = Mapping[tuple[int, int], Window]
"""By (sender, receiver); missing ones are unlimited."""


@dataclass(frozen=True)
class SocketState:
    """A rank's report on its TCP connection to another: at the beginning of a collective, and what it sent again in it.

    Attributes:
        window: when something was sent last.
        idle_s: time since then.
        rto_s: the retransmission timeout.
        sent_again: segments retransmitted during the collective.
    """

    window: Window
    idle_s: float
    rto_s: float
    sent_again: int

    def window_now(self, *, slow_start: bool) -> Window:
        """Return the window at the start: Linux's tcp_cwnd_restart halves it for each timeout of idle time.

        Args:
            slow_start: whether TCP does so on this node (tcp_slow_start_after_idle).
        """
        size = self.window.size_bytes
        if not slow_start or self.idle_s <= self.rto_s or size <= FIRST_WINDOW_BYTES:
            return self.window
        halvings = min(64, math.ceil(self.idle_s / self.rto_s) - 1)
        ssthresh = max(self.window.ssthresh_bytes, 0.75 * size)  # tcp_current_ssthresh
        return Window(max(FIRST_WINDOW_BYTES, size / 2**halvings), ssthresh)


def restarts_after_idle(tcp: str, *, is_on: bool) -> bool:
    """Return whether idle connections restart with slow start.

    Linux leaves BBR's window alone (`cong_control` in tcp_slow_start_after_idle_check, include/net/tcp.h).

    Args:
        tcp: the congestion control: cubic, bbr, reno.
        is_on: tcp_slow_start_after_idle.
    """
    return is_on and tcp != "bbr"


def window_after(paused_s: float, rtt_s: float) -> Window:
    """Return the smallest window that a connection can have after nothing was in flight for `paused_s`.

    After less than a retransmission timeout, the window is as it was, which counts as large enough.
    """
    is_idle = paused_s > max(LEAST_RTO_S, rtt_s)
    return Window(FIRST_WINDOW_BYTES) if is_idle else UNLIMITED


def transfer_s(size_bytes: float, rtt_s: float, byte_s: float, window: Window = UNLIMITED) -> float:
    """Return the seconds from the first byte sent to the last; in slow start the window doubles each round trip.

    Args:
        size_bytes: payload.
        rtt_s: of the route.
        byte_s: payload bytes a second that the route takes.
        window: at the start.
    """
    seconds, left = 0.0, size_bytes
    while (size := window.size_bytes) < min(left, byte_s * rtt_s):
        if size >= window.ssthresh_bytes:
            return seconds + left / size * rtt_s
        seconds, left, window = seconds + rtt_s, left - size, window.grown(size)
    return seconds + left / byte_s
