"""What a rank of `node.train` says of its collectives: a line for each, and sums in its last line of metrics.

`collectives.jsonl` has a line for each of the first 20,000 (CollectiveLine), written after the step in which it ended.
"""

from typing import Annotated, NamedTuple

from protocol.reader import Count, read, within
from protocol.values import Address, Name, Number, Positive, RankKey

MOST_COLLECTIVES = 20_000
"""Lines of them that a rank writes: 200 bytes each, and 130 for each peer. Those beyond are in the sums alone."""
MOST_MESSAGES = 20_000
"""Of one collective, in pieces of 1 MiB: each is reckoned with."""


class Traffic(NamedTuple):
    """What a rank has sent to another one."""

    bytes: Count
    """Payload."""
    messages: Count
    """In so many messages of gloo's; of ZeroMQ's, frames."""


class CollectiveSum(NamedTuple):
    """All collectives of one kind, purpose and size; exact, however many there were."""

    kind: Name
    """all_reduce, all_gather, all_to_all, exchange; `message` of what learner and actors send by ZeroMQ."""
    purpose: Name
    """train (the strategy), eval or control; of messages weights, experience or control."""
    bytes: Count
    """Of the rank's tensor; of messages a mean."""
    count: Count  # type: ignore[assignment] # the format's word; nobody asks a tuple for it
    """How many."""
    waited_s: Number
    """Seconds in which the rank did nothing but wait for them."""
    to: dict[RankKey, Traffic]
    """What it sent, by rank."""
    done_s: Number = 0.0
    """Seconds from their beginning until the rank knew that they were done."""


class TcpState(NamedTuple):
    """What a rank's socket said of a connection as a collective began: node/accounting/tcp_state.py."""

    window_bytes: Positive
    """The congestion window."""
    ssthresh_bytes: Positive | None
    """The slow-start threshold; null while there is none."""
    idle_s: Number
    """Since something was sent there."""
    rto_s: Positive
    """The retransmission timeout."""
    sent_again: Count
    """Segments that were sent again meanwhile."""


class CollectiveLine(NamedTuple):
    """What one rank did in one collective."""

    time: Number
    """When it began it, Unix time."""
    step: Count
    """In which; 0 before the first."""
    kind: Name
    """all_reduce, all_gather, all_to_all or exchange."""
    purpose: Name
    """train, eval or control."""
    bytes: Count
    """The size of its tensor."""
    messages: Annotated[int, within(0, MOST_MESSAGES)]
    """In how many pieces it sends to each."""
    to: dict[RankKey, Count]
    """Payload bytes, by rank."""
    done_s: Number
    """From its beginning until the rank knew that it was done."""
    waited_s: Number
    """That part of it in which the rank did nothing else."""
    hidden: bool
    """Whether it was done before the rank waited for it, at a moment that nobody knows."""
    sent_bytes: Count = 0
    """The sum of `to`."""
    hops: Count = 0
    """How many messages wait for one another, at the least."""
    sources: list[Count] = []  # noqa: RUF012
    """Of an exchange: the ranks that it hears from."""
    tcp: dict[Address, TcpState] = {}  # noqa: RUF012
    """What its sockets said, by the peer's address, where 2 kB or more went there. Ranks of one node share an address:
    then it is of the connection that carried most."""


def read_collective(value: object) -> CollectiveLine:
    """A line of collectives.jsonl, from a parsed JSON value.

    Raises:
        FormatError: it is none; the message names the key.
    """
    return read(CollectiveLine, value, ignore_unknown=True)
