"""How long TCP takes for so many bytes when its window is small again after a pause. Pure."""

import math

FIRST_WINDOW_BYTES = 10 * 1448  # RFC 6928, and Linux after a pause (tcp_slow_start_after_idle)
LEAST_RTO_S = 0.2  # Linux: a pause is what is longer than this, and than a round trip


def window_after(paused_s: float, rtt_s: float) -> float:
    """Bytes that may be under way when nothing was for so long; infinity: as many as there must.

    For less than a retransmission timeout the window stays as it was.
    """
    return FIRST_WINDOW_BYTES if paused_s > max(LEAST_RTO_S, rtt_s) else math.inf


def transfer_s(
    size_bytes: float, rtt_s: float, byte_s: float, *, window_bytes: float = math.inf
) -> float:
    """From the first byte that is sent until the last one that is; by slow start the window doubles each round trip.

    Args:
        size_bytes: payload.
        rtt_s: of the way.
        byte_s: payload bytes a second that the way takes.
        window_bytes: that may be under way at first.
    """
    seconds, window, left = 0.0, window_bytes, size_bytes
    while window < left and window < byte_s * rtt_s:
        seconds, left, window = seconds + rtt_s, left - window, 2 * window
    return seconds + left / byte_s
