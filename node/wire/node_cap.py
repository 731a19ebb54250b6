"""Uplinks and downlinks: an HTB class above a node's links that limits their total."""

from collections.abc import Iterable

from node.wire import htb
from protocol.link import Link

BURST_S = 1e-3
"""What a class may send at once after a pause, as time at its rate. It makes up for timers that fire late, on a busy
machine by a good part of a millisecond; with more, a link could exceed its rate for longer than that."""


def access_lines(
    device: str, before_mbyte_s: float | None, after_mbyte_s: float | None, unit: int
) -> list[str]:
    """Return the lines that change the limit of the class above all links; None means no limit.

    Args:
        device: a device with the tree of htb.root_lines.
        before_mbyte_s: the present limit.
        after_mbyte_s: the new limit.
        unit: the largest packet that a queue sees, in bytes.
    """
    if after_mbyte_s == before_mbyte_s:
        return []
    if after_mbyte_s is None:
        return [htb.sorting_line(device, "", htb.ALL_LINKS)]
    rate_bit = round(after_mbyte_s * 8e6)
    burst = burst_bytes(after_mbyte_s * 1e6, unit)
    return [htb.class_line(device, "", htb.ALL_LINKS, rate_bit, rate_bit, burst)]


def own_rate_mbyte_s(link: Link, links: Iterable[Link], together_mbyte_s: float | None) -> float:
    """Return the guaranteed rate of a link: its rate, or a proportional share if all together exceed the limit.

    A class may always send at its own rate, even if the class above it has nothing left, so the shares of all must
    not exceed the limit together. A link borrows what others leave, up to its rate.
    """
    total = sum(one.rate_mbyte_s for one in links)
    if together_mbyte_s is None or together_mbyte_s >= total:
        return link.rate_mbyte_s
    return link.rate_mbyte_s * together_mbyte_s / total


def burst_bytes(bytes_per_s: float, unit: int) -> int:
    """Return how many bytes may be sent at once: 1 ms of the rate, and at least one packet of `unit` bytes."""
    return max(round(bytes_per_s * BURST_S), unit)
