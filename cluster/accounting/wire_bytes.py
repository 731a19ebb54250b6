"""Expected bytes on the links, from what ranks sent, reconciled with the kernel's counters. Pure.

For each message, gloo sends, as measured on rings and full meshes (docs/LOG.md): its bytes and a header of 48, in TCP
frames; one small packet ahead of it; and one back that announces room for it. TCP acknowledges every second frame.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.collectives import CollectiveSum
from protocol.link import Pair

MSS_BYTES = 1448  # payload of a full frame at MTU 1500: IPv4, TCP with timestamps
FRAME_OVERHEAD_BYTES = 66  # 14 Ethernet + 20 IPv4 + 20 TCP + 12 timestamps
SEGMENTS_AN_ACK = 2  # RFC 9293: at least every second full segment is acknowledged
GLOO_BYTES = 48  # header of each message, and all of a small one
ZMTP_BYTES = 9  # header of each ZeroMQ frame of the length that experience and weights have
ZMTP = "message"
"""The kind of traffic by ZeroMQ; all other kinds are collectives of gloo."""
TOLERANCE = 0.05
LEAST_BYTES = 20_000  # tolerance for what a closing connection adds


@dataclass(frozen=True)
class Sent:
    """The total that one rank has sent to another: payload bytes and number of messages, by gloo or by ZeroMQ."""

    src: str
    dst: str
    payload: int
    messages: int
    by_zmtp: bool = False

    @property
    def frames(self) -> int:
        """The number of frames with data, if messages are alike."""
        return self.messages * -(-(self.payload // max(1, self.messages) + self._head) // MSS_BYTES)

    @property
    def forward_bytes(self) -> int:
        """Bytes of the messages on the wire, with gloo's small packet ahead of each."""
        gloo = 0 if self.by_zmtp else self.messages * (GLOO_BYTES + FRAME_OVERHEAD_BYTES)
        own = self.payload + self.messages * self._head
        return own + self.frames * FRAME_OVERHEAD_BYTES + gloo

    @property
    def answer_bytes(self) -> int:
        """Bytes in the reverse direction: gloo's announcement of room for each message; none with ZeroMQ."""
        return 0 if self.by_zmtp else self.messages * (GLOO_BYTES + FRAME_OVERHEAD_BYTES)

    @property
    def _head(self) -> int:
        return ZMTP_BYTES if self.by_zmtp else GLOO_BYTES

    @property
    def ack_bytes(self) -> int:
        """Bytes of the expected TCP acknowledgements."""
        return self.frames // SEGMENTS_AN_ACK * FRAME_OVERHEAD_BYTES


def sent_by(nodes: Sequence[str], node: str, sums: Iterable[CollectiveSum]) -> Iterator[Sent]:
    """Yield what a rank on `node` has sent, from the sums of its last line; rank r runs on nodes[r]."""
    for one in sums:
        for peer, of in one.to.items():
            yield Sent(node, nodes[peer], of.bytes, of.messages, one.kind == ZMTP)


def payload_by_link(
    sent: Sequence[Sent], paths: Mapping[Pair, Sequence[Pair]]
) -> dict[str, int] | None:
    """Return the payload bytes of each link; None if a rank sent to one that no path leads to."""
    return _by_link(sent, paths, lambda one: one.payload, lambda one: 0)


def expected_by_link(
    sent: Sequence[Sent], paths: Mapping[Pair, Sequence[Pair]]
) -> dict[str, int] | None:
    """Return the bytes that each link should have carried, headers and acknowledgements included."""
    return _by_link(
        sent, paths, lambda one: one.forward_bytes, lambda one: one.answer_bytes + one.ack_bytes
    )


def reconcile_links(
    carried: Mapping[str, int],
    sent: Sequence[Sent],
    paths: Mapping[Pair, Sequence[Pair]],
    lossy: Collection[str] = (),
) -> dict[str, object]:
    """Compare what links have carried with what they should have, in total and for each link.

    On `lossy` links much is sent twice: they are not called off, and if there are any, neither is the total.

    Returns:
        {"carried", "payload", "expected", "ratio", "links": {link: the same}, "off": [links]}: `ratio` is carried over
        expected; `off` are the links, and 'total', that are more than 5 % (and LEAST_BYTES) off. The receiver decides
        how many acknowledgements TCP sends, so a link may carry none of them, or twice as many.
    """
    payload, expected = payload_by_link(sent, paths), expected_by_link(sent, paths)
    if payload is None or expected is None:
        return {}
    acks = _by_link(sent, paths, lambda one: 0, lambda one: one.ack_bytes) or {}
    links = {
        link: _row(count, payload.get(link, 0), expected.get(link, 0))
        for link, count in carried.items()
    }
    total = _row(sum(carried.values()), sum(payload.values()), sum(expected.values()))
    sure = {link: row for link, row in links.items() if link not in lossy}
    off = [link for link, row in sure.items() if _is_off(row, acks.get(link, 0))]
    off += ["total"] if not lossy and _is_off(total, 0) else []
    return {**total, "links": links, "off": off}


def _row(carried: int, payload: int, expected: int) -> dict[str, object]:
    ratio = round(carried / expected, 4) if expected else None
    return {"carried": carried, "payload": payload, "expected": expected, "ratio": ratio}


def _is_off(row: Mapping[str, Any], acks: int) -> bool:
    leeway = TOLERANCE * row["expected"] + acks + LEAST_BYTES
    return bool(abs(row["carried"] - row["expected"]) > leeway)


def _by_link(
    sent: Sequence[Sent],
    paths: Mapping[Pair, Sequence[Pair]],
    there: Callable[[Sent], int],
    back: Callable[[Sent], int],
) -> dict[str, int] | None:
    """Return the sum of some count over all traffic on each link, in both directions."""
    total: dict[str, int] = {}
    for one in sent:
        for src, dst, count in ((one.src, one.dst, there(one)), (one.dst, one.src, back(one))):
            if (src, dst) not in paths:
                return None
            for link in paths[src, dst]:
                name = "->".join(link)
                total[name] = total.get(name, 0) + count
    return total
