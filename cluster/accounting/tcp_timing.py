"""The time that TCP takes for a number of bytes if its window is smaller than the link could take. Pure."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

MSS_BYTES = 1448
FIRST_WINDOW_BYTES = 10 * MSS_BYTES  # RFC 6928, and Linux after a pause (tcp_slow_start_after_idle)
LEAST_RTO_S = 0.2  # Linux: a pause is longer than this, and than a round trip
MOST_TURNS = 100  # of one message, before all that is in flight counts as one piece


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
    """Return the seconds from the first byte sent to the last on a connection with nothing in flight.

    Args:
        size_bytes: payload.
        rtt_s: of the route.
        byte_s: payload bytes a second that the route takes.
        window: at the start.
    """
    return Sender(window, rtt_s, byte_s, free_at=0.0).send(size_bytes, 0.0)


class Sender:
    """One direction of a TCP connection with nothing in flight: when it may send, byte by byte. Times are Unix times.

    What is sent is acknowledged a round trip later. Until then it takes room in the window, which grows by what is
    acknowledged. Bytes that leave one after the other are acknowledged at the same pace, so only the beginning of each
    stretch of them has to be known. A window that fills the route has room for ever.

    Args:
        window: at the start.
        rtt_s: of the route.
        byte_s: payload bytes a second that the route takes.
        free_at: when the link can take the first byte.
    """

    def __init__(self, window: Window, rtt_s: float, byte_s: float, free_at: float) -> None:
        self._window, self._room_bytes = window, window.size_bytes
        self._rtt_s, self._byte_s, self._free_at = rtt_s, byte_s, free_at
        # Bytes, and when the first of them are acknowledged.
        self._in_flight: deque[tuple[float, float]] = deque()
        self._use(window)

    def send(self, size_bytes: float, at: float) -> float:
        """Send so many bytes, which are there at `at`; return when the last one has left."""
        left, turns = size_bytes, 0
        self._free_at = max(at, self._free_at)
        while left > 0:
            turns += 1
            if turns % MOST_TURNS or not self._in_flight:
                self._acknowledge()
            else:
                self._join_in_flight()
            if self._room_bytes <= 0:
                left -= self._skip_turns(left)
                self._free_at = max(self._free_at, self._in_flight[0][0])
                continue
            sent = min(left, self._room_bytes)
            if self._window is not UNLIMITED:
                self._in_flight.append((self._free_at + self._rtt_s, sent))
            self._room_bytes -= sent
            self._free_at += sent / self._byte_s
            left -= sent
        return self._free_at

    def _acknowledge(self) -> None:
        """Make room for what has been acknowledged, and for what the window has grown by."""
        while self._in_flight and self._in_flight[0][0] <= self._free_at:
            _, acknowledged = self._in_flight.popleft()
            grown = self._window.grown(acknowledged)
            self._room_bytes += acknowledged + grown.size_bytes - self._window.size_bytes
            self._use(grown)

    def _join_in_flight(self) -> None:
        """Count what is in flight as one piece, acknowledged with its last byte.

        Pieces would become ever more, one with each message. And a round trip can be too short for the precision of
        times: then each piece is acknowledged at once, and no turn could be skipped.
        """
        last_at, _ = self._in_flight[-1]
        self._in_flight = deque([(last_at, self._window.size_bytes - self._room_bytes)])

    def _use(self, window: Window) -> None:
        self._window = window
        if window.size_bytes >= self._byte_s * self._rtt_s:
            self._window, self._room_bytes = UNLIMITED, math.inf
            self._in_flight.clear()

    def _skip_turns(self, left_bytes: float) -> float:
        """Skip round trips in which a full window that no longer grows is sent once each; return their bytes."""
        size = self._window.size_bytes
        turns = 0 if size < self._window.ssthresh_bytes else math.floor(left_bytes / size) - 1
        if turns < 1:
            return 0.0
        skipped_s = turns * self._rtt_s
        self._free_at += skipped_s
        self._in_flight = deque((at + skipped_s, sent) for at, sent in self._in_flight)
        return turns * size
