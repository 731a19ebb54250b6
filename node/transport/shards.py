"""Weights as a stream: a head that describes them, then shards, each of which can be forwarded once it has arrived."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from node.transport import ENCODINGS
from node.transport.messages import (
    MOST_BODY_BYTES,
    PIECE_BYTES,
    SHARD,
    WEIGHTS,
    Message,
    read_count,
)

MOST_SHARDS = MOST_BODY_BYTES // PIECE_BYTES


def split(header: Mapping[str, object], body: bytes) -> list[Message]:
    """Return weights as messages: the head, then shards of 64 KiB."""
    starts = range(0, len(body), PIECE_BYTES)
    head = Message(WEIGHTS, {**header, "shards": len(starts)})
    pieces = (body[start : start + PIECE_BYTES] for start in starts)
    return [head, *(Message(SHARD, {"shard": i}, piece) for i, piece in enumerate(pieces))]


@dataclass
class Stream:
    """A version of the weights of which some shards have arrived.

    Attributes:
        head: the learner's description.
        version: version of the weights.
        base: the version to which they are changes; None: they are whole.
        count: number of shards in all.
        shards: the shards that have arrived.
        received_at_s: when the last of these arrived, Unix time.
    """

    head: Message
    version: int
    base: int | None
    count: int
    shards: list[Message] = field(default_factory=list)
    received_at_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether all shards have arrived."""
        return len(self.shards) == self.count

    def applies_to(self, have: int) -> bool:
        """Return whether it is newer than version `have`, and either whole or made of changes to that version."""
        return self.version > have and (self.base is None or self.base == have)

    def add(self, message: Message) -> None:
        """Add the next shard.

        Raises:
            ValueError: it is not the next one.
        """
        if self.is_complete or read_count(message.header, "shard") != len(self.shards):
            raise ValueError("a shard that is not the next")
        self.shards.append(message)
        self.received_at_s = time.time()

    def messages(self, *, waited: bool) -> list[Message]:
        """Return all messages so far, for a rank that waited for this version (`waited`) or asked for it later."""
        has_waited = waited and self.head.header["waited"]
        return [Message(WEIGHTS, {**self.head.header, "waited": has_waited}), *self.shards]

    def body(self) -> bytes:
        """Return the bytes of all shards."""
        return b"".join(shard.body for shard in self.shards)


def begin(head: Message) -> Stream:
    """Return the stream that a head announces.

    Raises:
        ValueError: the head is invalid.
    """
    header = head.header
    version, have, count = (read_count(header, name) for name in ("version", "have", "shards"))
    if not 0 < count <= MOST_SHARDS:
        raise ValueError("weights of no shards, or too many")
    published_at_s = header.get("published_at_s")
    if not isinstance(published_at_s, float) or not math.isfinite(published_at_s):
        raise ValueError("weights of no time")
    if header.get("encoding") not in ENCODINGS or not isinstance(header.get("advice"), dict):
        raise ValueError("weights of no encoding, or without advice")
    if not isinstance(header.get("waited"), bool):
        raise ValueError("weights of which nobody knows who waited")
    return Stream(head, version, have if header["encoding"] == "delta" else None, count)
