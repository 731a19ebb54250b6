"""How long TCP takes for so many bytes when its window is smaller than the link could take. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

MSS_BYTES = 1448
FIRST_WINDOW_BYTES = 10 * MSS_BYTES  # RFC 6928, and Linux after a pause (tcp_slow_start_after_idle)
LEAST_RTO_S = 0.2  # Linux: a pause is what is longer than this, and than a round trip


@dataclass(frozen=True)
class Window:
    """How much TCP may have under way.

    Attributes:
        size_bytes: so much.
        ssthresh_bytes: up to there it doubles each round trip; from there on it counts as constant, since it grows by
            little while one collective lasts.
    """

    size_bytes: float = math.inf
    ssthresh_bytes: float = math.inf

    def grown(self, acknowledged_bytes: float) -> "Window":
        """When so much more has been acknowledged."""
        size = min(self.size_bytes + acknowledged_bytes, max(self.size_bytes, self.ssthresh_bytes))
        return Window(size, self.ssthresh_bytes)


UNLIMITED = Window()
Windows = Mapping[tuple[int, int], Window]
"""By sender and receiver: those that are not there are as large as they must be."""


@dataclass(frozen=True)
class SocketState:
    """What a rank said of its TCP connection to another at the beginning of a collective, and of its end.

    Attributes:
        window: as it was when something was sent last.
        idle_s: since then.
        rto_s: after how long something counts as lost.
        sent_again: segments, during the collective.
    """

    window: Window
    idle_s: float
    rto_s: float
    sent_again: int

    def window_now(self, *, slow_start: bool) -> Window:
        """What it begins with: tcp_cwnd_restart of Linux halves it for each timeout that was idle.

        Args:
            slow_start: whether TCP does so on this node (tcp_slow_start_after_idle).
        """
        size = self.window.size_bytes
        if not slow_start or self.idle_s <= self.rto_s or size <= FIRST_WINDOW_BYTES:
            return self.window
        halvings = min(64, math.ceil(self.idle_s / self.rto_s) - 1)
        ssthresh = max(self.window.ssthresh_bytes, 0.75 * size)  # tcp_current_ssthresh
        return Window(max(FIRST_WINDOW_BYTES, size / 2**halvings), ssthresh)


def window_after(paused_s: float, rtt_s: float) -> Window:
    """The least that a connection begins with when nothing was under way for so long.

    For less than a retransmission timeout the window stays as it was, which counts as large enough.
    """
    is_idle = paused_s > max(LEAST_RTO_S, rtt_s)
    return Window(FIRST_WINDOW_BYTES) if is_idle else UNLIMITED


def transfer_s(size_bytes: float, rtt_s: float, byte_s: float, window: Window = UNLIMITED) -> float:
    """From the first byte that is sent until the last one that is; by slow start the window doubles each round trip.

    Args:
        size_bytes: payload.
        rtt_s: of the way.
        byte_s: payload bytes a second that the way takes.
        window: that may be under way at first.
    """
    seconds, left = 0.0, size_bytes
    while (size := window.size_bytes) < min(left, byte_s * rtt_s):
        if size >= window.ssthresh_bytes:
            return seconds + left / size * rtt_s
        seconds, left, window = seconds + rtt_s, left - size, window.grown(size)
    return seconds + left / byte_s
