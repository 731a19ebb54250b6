"""From counters and metrics to the figures of a summary: bytes and seconds, as pure functions."""

from collections.abc import Mapping
from typing import Any

MSS_BYTES = 1448  # payload of a full frame at MTU 1500: IPv4, TCP with timestamps
FRAME_OVERHEAD_BYTES = 66  # 14 Ethernet + 20 IPv4 + 20 TCP + 12 timestamps
SEGMENTS_AN_ACK = 2  # RFC 9293: at least every second full segment is acknowledged


def wire_bytes(payload_bytes: float) -> float:
    """What TCP makes of a payload on the wire: full frames, and an acknowledgement for every second one."""
    frames = payload_bytes / MSS_BYTES
    return payload_bytes + frames * FRAME_OVERHEAD_BYTES * (1 + 1 / SEGMENTS_AN_ACK)


def byte_summary(
    links: Mapping[str, int], ends: Mapping[str, Mapping[str, Any]], *, one_hop: bool
) -> dict[str, Any]:
    """Bytes of a run: what the links carried, next to what the collectives should send.

    Args:
        links: 'node1->node2' -> bytes by the kernel's counters, headers included.
        ends: the 'end' line of each node's metrics; empty for programs that write none: then nothing is expected.
        one_hop: whether every pair of nodes has a link. Elsewhere the links carry the same bytes several times, and
            how often depends on who speaks to whom: nothing is expected.
    """
    sent = [end["sent_bytes"] for end in ends.values() if "sent_bytes" in end]
    payload = sum(sum(parts.values()) for parts in sent) if sent else None
    expected = round(wire_bytes(payload)) if payload is not None and one_hop else None
    total = sum(links.values())
    return {
        "total": total,
        "links": dict(links),
        "payload": payload,
        "expected": expected,
        "measured_over_expected": round(total / expected, 4) if expected else None,
    }


def time_summary(ends: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by bucket for each node that wrote metrics."""
    return {node: dict(end["seconds"]) for node, end in ends.items() if "seconds" in end}
