"""How long TCP takes for so many bytes when its window is small again after a pause. Pure."""

FIRST_WINDOW_BYTES = 10 * 1448  # RFC 6928, and Linux after a pause (tcp_slow_start_after_idle)
LEAST_RTO_S = 0.2  # Linux: a pause is what is longer than this, and than a round trip


def transfer_s(size_bytes: float, rtt_s: float, byte_s: float, *, paused_s: float = 0.0) -> float:
    """From the first byte that is sent until the last one that is; by slow start the window doubles each round trip.

    Args:
        size_bytes: payload.
        rtt_s: of the way.
        byte_s: payload bytes a second that the way takes.
        paused_s: how long nothing of size was sent before; for less than a retransmission timeout: the window is as
            it was.
    """
    seconds, window, left = 0.0, float(FIRST_WINDOW_BYTES), size_bytes
    if paused_s > max(LEAST_RTO_S, rtt_s):
        while window < left and window < byte_s * rtt_s:
            seconds, left, window = seconds + rtt_s, left - window, 2 * window
    return seconds + left / byte_s
