"""What a node's probe is told and says while links are measured: standard input and output of `node.probe`.

`python -m node.probe ADDRESS NODES` runs on every node at once. It says `ProbeReady` or `Failure` first. Then it
answers one order after the other: one JSON object a line each. The key `do` of an order is its word (`ping`,
`arrivals`, `send`, `flood`, `burst`, `timers`), the other keys are below. The answer to all but `send` and `timers` has
the names of nodes as keys: exactly those that the order names. `Failure` may come instead of any answer. It ends with
its standard input, at once.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, NamedTuple, TypeVar

from protocol.lines import read_each
from protocol.reader import (
    ADDRESS,
    COUNT,
    LINE,
    POSITIVE,
    Check,
    Count,
    FormatError,
    Seconds,
    read,
    within,
)

T = TypeVar("T")

Address = Annotated[str, ADDRESS]
Port = Annotated[int, Check("a port", lambda value: 0 < value < 1 << 16)]
Series = tuple[Address, Count]
"""Pings of one order: the address of who sent them, and the number that this node gave them."""


class PingOrder(NamedTuple):
    """`ping`: ping all of these nodes in turn, evenly spread. The answer has `Pings` of each."""

    peers: dict[str, Address]
    """Whom to ping, by name; a node also pings itself."""
    pings: Annotated[int, POSITIVE]
    """How many each of them gets."""
    interval_ms: Annotated[float, POSITIVE]
    """Between two pings to the same node."""
    wait_ms: Seconds
    """How long to wait for echoes after the last ping."""

    @property
    def names(self) -> Collection[str]:
        """Of whom the answer tells."""
        return self.peers


class ArrivalsOrder(NamedTuple):
    """`arrivals`: tell what pings of others have arrived here. The answer has `Arrivals` of each."""

    series: dict[str, Series]
    """Which pings, by the name of the node that sent them."""

    @property
    def names(self) -> Collection[str]:
        """Of whom the answer tells."""
        return self.series


class SendOrder(NamedTuple):
    """`send`: send to one peer by TCP, as fast as the link takes it. The answer is `Goodput`."""

    peer: Address
    """Who receives and counts."""
    startup_s: Seconds
    """How long the connection has to fill the link; that does not count."""
    window_s: Annotated[float, POSITIVE]
    """What counts, after that."""
    ping_interval_ms: Annotated[float, POSITIVE]
    """Between two pings to the same peer, while it counts."""


class FloodSend(NamedTuple):
    """One flood: datagrams to one peer, as fast as the link takes them."""

    at_s: Seconds
    """When it begins, counted from the order."""
    address: Address
    """Where to."""
    port: Port
    """There; each sender has a port of its own."""
    at_once: Annotated[int, POSITIVE]
    """Datagrams in one call."""
    queued_bytes: Count
    """The most that the sender may have in the link's queue."""
    seconds: Seconds
    """How long it lasts."""


class FloodCount(NamedTuple):
    """What to count of one sender's datagrams."""

    port: Port
    """Where they arrive, and nobody else's."""
    skip_s: Seconds
    """What does not count, from the first datagram on."""
    until_s: Seconds | None
    """The end of what counts, from the first datagram on, where several links share what there is; else null: what
    counts is the median over all of it."""


class FloodOrder(NamedTuple):
    """`flood`: send and count by a timetable. The answer has `Flooded` of each node in `counts` and `sends`."""

    sends: dict[str, FloodSend]
    """What this node sends, by the name of the node that counts it."""
    counts: dict[str, FloodCount]
    """What it counts, by the name of the node that sends it."""
    seconds: Seconds
    """When counting ends, from the order on."""

    @property
    def names(self) -> Collection[str]:
        """Of whom the answer tells."""
        return self.counts.keys() | self.sends.keys()


class BurstSend(NamedTuple):
    """One burst: datagrams to one peer at once, whatever its link's queue has room for."""

    at_s: Seconds
    """When it begins, counted from the order."""
    address: Address
    """Where to."""
    port: Port
    """There; each sender has a port of its own."""
    at_once: Annotated[int, POSITIVE]
    """Datagrams in one call."""
    datagrams: Annotated[int, POSITIVE]
    """How many."""


class BurstOrder(NamedTuple):
    """`burst`: send and count bursts by a timetable. The answer has `Burst` of each node in `counts` and `sends`."""

    sends: dict[str, BurstSend]
    """What this node sends, by the name of the node that counts it."""
    counts: dict[str, Port]
    """Where what this node counts arrives, and nobody else's, by the name of the node that sends it."""
    seconds: Seconds
    """When counting ends, from the order on."""

    @property
    def names(self) -> Collection[str]:
        """Of whom the answer tells."""
        return self.counts.keys() | self.sends.keys()


class TimersOrder(NamedTuple):
    """`timers`: tell how late timers were. The answer is `TimersLate`."""


Order = PingOrder | ArrivalsOrder | SendOrder | FloodOrder | BurstOrder | TimersOrder
NamingOrder = PingOrder | ArrivalsOrder | FloodOrder | BurstOrder
"""Those whose answer has a value for each node that they name."""

ORDERS: Mapping[str, type[Order]] = {
    "ping": PingOrder,
    "arrivals": ArrivalsOrder,
    "send": SendOrder,
    "flood": FloodOrder,
    "burst": BurstOrder,
    "timers": TimersOrder,
}
"""By the word at their key `do`."""


class ProbeReady(NamedTuple):
    """The first line: orders may come."""

    ready: Address
    """The node's own address, at which its peers find it."""


class Failure(NamedTuple):
    """A line instead of any other: it could not do it."""

    error: Annotated[str, LINE]
    """Why."""


class Arrivals(NamedTuple):
    """What has arrived of one series of pings."""

    arrived: Count
    """How many, each counted once."""
    twice: Count
    """How many second copies came."""
    gaps: Count
    """Runs of pings that are missing before the last that arrived."""
    reordered: Count
    """How many have overtaken another."""
    sent_ms: list[float]
    """When each was sent, from the first on: of first copies that overtook nobody."""
    one_way_ms: list[float]
    """How long each of the same took; with an unknown offset, where the clocks of two nodes differ."""


class Pings(NamedTuple):
    """What came of the pings to one node."""

    series: Count
    """The number of these pings, for `arrivals`."""
    sent: Count
    """How many."""
    late_ms: float
    """How late they were sent, on average."""
    rtt_ms: list[float]
    """The round trips."""
    back: Arrivals
    """What came back of what had arrived there."""


class Goodput(NamedTuple):
    """What one TCP connection made of a link."""

    goodput_mbyte_s: Annotated[float, COUNT]
    """10^6 bytes a second, as the receiver's program read them; 0 where nothing got through."""
    loaded_rtt_ms: list[float]
    """Round trips while that counted."""
    note: str = ""
    """Why nothing got through; else empty."""


class Flooded(NamedTuple):
    """What came of the floods between this node and another."""

    datagrams_s: Annotated[float, COUNT] | None
    """Datagrams a second that arrived from it, each a full packet; null where none were to be counted."""
    full_pct: Annotated[float, within(0, 100)] | None
    """Of the sends to it, how many found the link's queue full; null where nothing was to be sent."""


class Burst(NamedTuple):
    """What came of the bursts between this node and another."""

    arrived: Count | None
    """Datagrams that came from it; null where none were to be counted."""
    sent_s: Seconds | None
    """How long sending to it took; null where nothing was to be sent."""


class TimersLate(NamedTuple):
    """How late timers of the probe were, those of pings not among them: pings take precedence."""

    late_ms: Annotated[float, COUNT]
    """On average, since this was asked last."""


def read_reply(kind: type[T], value: object) -> T | Failure:
    """Read one line of a probe, which says this or that it has failed; raises as `protocol.reader.read`."""
    return read(Failure, value) if _is_failure(value) else read(kind, value)


def read_replies(kind: type[T], order: NamingOrder, value: object) -> dict[str, T] | Failure:
    """Likewise the answer to an order that names nodes, with a value for each; raises as `read_each`."""
    return read(Failure, value) if _is_failure(value) else read_each(kind, order.names, value)


def check_arrivals(arrivals: Arrivals) -> None:
    """Refuse arrivals that contradict themselves.

    Raises:
        FormatError: naming the key.
    """
    times = len(arrivals.sent_ms)
    if len(arrivals.one_way_ms) != times:
        words = f"expected {times} of them, as sent_ms has, got {len(arrivals.one_way_ms)}"
        raise FormatError(words, "one_way_ms")
    if times > arrivals.arrived:
        raise FormatError(f"{arrivals.arrived} are fewer than the {times} of sent_ms", "arrived")


def _is_failure(value: object) -> bool:
    return isinstance(value, dict) and set(value) == set(Failure._fields)
