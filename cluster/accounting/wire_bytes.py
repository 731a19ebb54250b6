"""Expected bytes on the links, from what ranks sent, reconciled with the kernel's counters. Pure.

Of each message gloo makes, measured on rings and full meshes (docs/LOG.md): its bytes and 48 of its own, in TCP frames;
one small packet ahead of it, and one back that says that there is room for it. TCP acknowledges every second frame.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.collectives import CollectiveSum
from protocol.link import Pair

MSS_BYTES = 1448  # payload of a full frame at MTU 1500: IPv4, TCP with timestamps
FRAME_OVERHEAD_BYTES = 66  # 14 Ethernet + 20 IPv4 + 20 TCP + 12 timestamps
SEGMENTS_AN_ACK = 2  # RFC 9293: at least every second full segment is acknowledged
GLOO_BYTES = 48  # in front of each message, and all of a small one
ZMTP_BYTES = 9  # in front of each frame of ZeroMQ's, as long as those of experience and weights are
ZMTP = "message"
"""The kind of what is sent by ZeroMQ; all others are collectives of gloo."""
TOLERANCE = 0.05
LEAST_BYTES = 20_000  # below which a connection that closes counts for too much


@dataclass(frozen=True)
class Sent:
    """What one rank has sent to another in all: payload bytes in so many messages, by gloo or by ZeroMQ."""

    src: str
    dst: str
    payload: int
    messages: int
    by_zmtp: bool = False

    @property
    def frames(self) -> int:
        """Frames with data, of messages that are alike."""
        return self.messages * -(-(self.payload // max(1, self.messages) + self._head) // MSS_BYTES)

    @property
    def forward_bytes(self) -> int:
        """What the messages are on the wire, with gloo's word ahead of each."""
        gloo = 0 if self.by_zmtp else self.messages * (GLOO_BYTES + FRAME_OVERHEAD_BYTES)
        own = self.payload + self.messages * self._head
        return own + self.frames * FRAME_OVERHEAD_BYTES + gloo

    @property
    def answer_bytes(self) -> int:
        """What goes back: gloo's word for each message; of ZeroMQ's nothing."""
        return 0 if self.by_zmtp else self.messages * (GLOO_BYTES + FRAME_OVERHEAD_BYTES)

    @property
    def _head(self) -> int:
        return ZMTP_BYTES if self.by_zmtp else GLOO_BYTES

    @property
    def ack_bytes(self) -> int:
        """And TCP's acknowledgements, as many as there should be."""
        return self.frames // SEGMENTS_AN_ACK * FRAME_OVERHEAD_BYTES


def sent_by(nodes: Sequence[str], node: str, sums: Iterable[CollectiveSum]) -> Iterator[Sent]:
    """What a rank on `node` has sent, by the sums of its last line; rank r runs on nodes[r]."""
    for one in sums:
        for peer, of in one.to.items():
            yield Sent(node, nodes[peer], of.bytes, of.messages, one.kind == ZMTP)


def payload_by_link(
    sent: Sequence[Sent], paths: Mapping[Pair, Sequence[Pair]]
) -> dict[str, int] | None:
    """Payload bytes of each link; None where somebody sent to where no path leads."""
    return _by_link(sent, paths, lambda one: one.payload, lambda one: 0)


def expected_by_link(
    sent: Sequence[Sent], paths: Mapping[Pair, Sequence[Pair]]
) -> dict[str, int] | None:
    """Bytes that each link should have carried, headers and acknowledgements included."""
    return _by_link(
        sent, paths, lambda one: one.forward_bytes, lambda one: one.answer_bytes + one.ack_bytes
    )


def reconcile_links(
    carried: Mapping[str, int],
    sent: Sequence[Sent],
    paths: Mapping[Pair, Sequence[Pair]],
    lossy: Collection[str] = (),
) -> dict[str, Any]:
    """What links have carried next to what they should have: in all, and each.

    On `lossy` links much is sent twice: they are not called off, and where there are any, neither is the total.

    Returns:
        {"carried", "payload", "expected", "ratio", "links": {link: the same}, "off": [links]}: `ratio` is carried over
        expected; `off` are the links, and 'total', that are more than 5 % off. How many acknowledgements TCP sends
        is up to the receiver, so what a link carries of them may be none, or twice as much.
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


def _row(carried: int, payload: int, expected: int) -> dict[str, Any]:
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
    """The sum of something over all that passes each link, there and back."""
    total: dict[str, int] = {}
    for one in sent:
        for src, dst, count in ((one.src, one.dst, there(one)), (one.dst, one.src, back(one))):
            if (src, dst) not in paths:
                return None
            for link in paths[src, dst]:
                name = "->".join(link)
                total[name] = total.get(name, 0) + count
    return total
