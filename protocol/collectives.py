"""The collectives of a rank of `node.train`: a line for each, and sums in its last line of metrics.

`collectives.jsonl` has one line (CollectiveLine) for each of the first 20,000, written after the step in which the
collective ended.
"""

from typing import Annotated, NamedTuple

from protocol.reader import LARGEST, Check, Count, ReadBy, read, within
from protocol.values import MOST_RANKS, Address, Name, Number, Positive, RankKey, read_number

MOST_COLLECTIVES = 20_000
"""The most lines that a rank writes: 200 bytes each, and 130 per peer. Further collectives are only in the sums."""
MOST_MESSAGES = 20_000
"""The most messages of one collective, in pieces of 1 MiB: the host's accounting computes each of them."""

MOST_TENSOR_BYTES = MOST_MESSAGES << 20
"""The most bytes of one tensor: those messages."""
MOST_S = 1e11
"""The latest time, and the longest duration, in seconds: a double still tells 15 us apart."""
Moment = Annotated[float, ReadBy(read_number, "number"), within(-MOST_S, MOST_S)]
EACH_ONCE = Check(
    f"at most {MOST_RANKS} ranks, each once",
    lambda ranks: len(set(ranks)) == len(ranks) <= MOST_RANKS,
)
WindowBytes = Annotated[float, ReadBy(read_number, "number"), within(1, LARGEST)]


class Traffic(NamedTuple):
    """What a rank has sent to another rank."""

    bytes: Count
    """Payload bytes."""
    messages: Count
    """Number of gloo's messages; for ZeroMQ, of frames."""


class CollectiveSum(NamedTuple):
    """The sum of all collectives of one kind, purpose and size, or of all that vary in size; exact for any number."""

    kind: Name
    """all_reduce, all_gather, all_to_all, exchange; `message` for what learner and actors send by ZeroMQ."""
    purpose: Name
    """train (the strategy), eval or control; for messages weights, experience or control."""
    bytes: Count
    """Size of the rank's tensor; the mean size of messages, and of collectives that vary in size."""
    count: Count  # type: ignore[assignment] # the format's key; tuple.count is not used
    """Number of collectives or messages."""
    waited_s: Number
    """Seconds in which the rank did nothing but wait for them."""
    to: dict[RankKey, Traffic]
    """What the rank sent, by receiving rank."""
    done_s: Number = 0.0
    """Seconds from their start until the rank knew that they were done."""
    sizes_vary: bool = False
    """Whether they vary in size."""


class TcpState(NamedTuple):
    """The state of a TCP connection when a collective started: node/accounting/tcp_state.py."""

    window_bytes: WindowBytes
    """The congestion window."""
    ssthresh_bytes: WindowBytes | None
    """The slow-start threshold; null until a segment is lost."""
    idle_s: Number
    """Time since the connection last sent something."""
    rto_s: Positive
    """The retransmission timeout."""
    sent_again: Count
    """Segments retransmitted during the collective, on all connections to the peer."""


class CollectiveLine(NamedTuple):
    """What one rank did in one collective."""

    time: Moment
    """When the rank started it, Unix time."""
    step: Count
    """The training step in which it started; 0 before the first."""
    kind: Name
    """all_reduce, all_gather, all_to_all or exchange."""
    purpose: Name
    """train, eval or control."""
    bytes: Annotated[int, within(0, MOST_TENSOR_BYTES)]
    """Size of the rank's tensor."""
    messages: Annotated[int, within(0, MOST_MESSAGES)]
    """Number of messages that the rank sends to each peer."""
    to: dict[RankKey, Count]
    """Payload bytes sent, by receiving rank."""
    done_s: Moment
    """Seconds from its start until the rank knew that it was done."""
    waited_s: Moment
    """Seconds of `done_s` in which the rank did nothing but wait."""
    hidden: bool
    """Whether it was done before the rank began to wait for it; then it took `done_s` or less."""
    sent_bytes: Count = 0
    """The sum of `to`."""
    hops: Count = 0
    """The least number of messages that have to follow one another."""
    sizes_vary: bool = False
    """Whether others of its kind and purpose differ in size, step by step: sums and reports take these together."""
    sources: Annotated[list[Count], EACH_ONCE] = []  # noqa: RUF012
    """For an exchange: the ranks that this rank receives from."""
    tcp: dict[Address, TcpState] = {}  # noqa: RUF012
    """TCP state by peer's address, for peers to which 2 kB or more went. Ranks of one node share an address: then the
    state is that of the connection that carried most."""


def read_collective(value: object) -> CollectiveLine:
    """Read a line of collectives.jsonl from a parsed JSON value.

    Raises:
        FormatError: it is invalid; the message names the key.
    """
    return read(CollectiveLine, value, ignore_unknown=True)
