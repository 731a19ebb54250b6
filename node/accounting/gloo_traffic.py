"""Traffic model of gloo's collectives: who sends what to whom, in how many messages, over how many hops.

N ranks, S bytes of tensor:

    all-reduce    a ring, each rank to the one before it: 2(N-1)/N · S in 2(N-1) hops
    all-gather    a ring, each rank to the one after it: (N-1) · S in N-1 hops
    all-to-all    (N-1)/N · S, a share to each other rank, 1 hop
    exchange      what is asked for, 1 hop

Directions, messages and bytes are those of gloo's allreduce.cc, allgather.cc and alltoall.cc, and those measured on
the links of rings and full meshes (docs/LOG.md): exact to 0.1 %, headers counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("all_reduce", "all_gather", "all_to_all", "exchange")
MAX_SEGMENT_BYTES = 1 << 20  # of gloo's all-reduce


@dataclass(frozen=True)
class Flow:
    """What one rank does in one collective.

    Attributes:
        kind: one of KINDS.
        size: S, the bytes of its tensor.
        hops: the minimum number of messages that wait for one another.
        to: payload bytes by destination rank.
        messages: the number of pieces that go to each of them.
        sources: the ranks that it waits for, if these are not all ranks.
    """

    kind: str
    size: int
    hops: int
    to: Mapping[int, int]
    messages: int = 1
    sources: tuple[int, ...] = ()

    @property
    def sent_bytes(self) -> int:
        """Payload bytes sent to all ranks."""
        return sum(self.to.values())


def all_reduce(rank: int, world_size: int, size: int, element_bytes: int) -> Flow:
    """Return the flow of a ring in two rounds, which gloo cuts into at least two segments per rank."""
    others = world_size - 1
    segments = max(-(-size // MAX_SEGMENT_BYTES), 2 * world_size)
    segments += -segments % world_size
    elements = -(-size // (segments * element_bytes)) if size else 1
    filled = -(-size // (max(1, elements) * element_bytes))  # a small tensor leaves some empty
    return Flow(
        "all_reduce",
        size,
        hops=2 * others,
        to={(rank - 1) % world_size: ring_bytes(size, world_size)},
        messages=max(1, round(2 * others * filled / world_size)),
    )


def all_gather(rank: int, world_size: int, size: int) -> Flow:
    """Return the flow of a ring in which every rank's tensor goes round in two halves."""
    others = world_size - 1
    to = {(rank + 1) % world_size: others * size}
    return Flow("all_gather", size, hops=others, to=to, messages=2 * others)


def all_to_all(rank: int, world_size: int, size: int) -> Flow:
    """Return the flow of a share for each rank, all at once."""
    to = {peer: size // world_size for peer in range(world_size) if peer != rank}
    return Flow("all_to_all", size, hops=1, to=to)


def exchange(send: Mapping[int, int], receive: Mapping[int, int]) -> Flow:
    """Return the flow of bytes by peer, there and back, all at once."""
    return Flow("exchange", sum(send.values()), hops=1, to=dict(send), sources=tuple(receive))


def ring_bytes(size: int, world_size: int) -> int:
    """Return the payload bytes that one rank sends in a ring all-reduce of `size` bytes."""
    return round(2 * (world_size - 1) / world_size * size)
