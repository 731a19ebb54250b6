"""Orders and answers of a node's probe while links are measured: standard input and output of `node.probe`.

`python -m node.probe ADDRESS NODES` runs on every node at once. It first writes `ProbeReady` or `Failure`. Then it
answers one order after the other; each order and each answer is one line with a JSON object. The key `do` names the
order (`ping`, `arrivals`, `send`, `flood`, `burst`, `timers`, `show`); the other keys are below. The answer to `ping`,
`arrivals`, `flood` and `burst` has names of nodes as keys: exactly those that the order names. `Failure` may replace
any answer. The probe ends at once when its standard input ends.
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
"""The pings of one order: the address of their sender, and the number that the sender gave them."""


class PingOrder(NamedTuple):
    """`ping`: ping all of these nodes in turn, evenly spread. The answer has `Pings` for each."""

    peers: dict[str, Address]
    """The nodes to ping, by name; a node also pings itself."""
    pings: Annotated[int, POSITIVE]
    """Number of pings to each of them."""
    interval_ms: Annotated[float, POSITIVE]
    """Time between two pings to the same node."""
    wait_ms: Seconds
    """How long to wait for echoes after the last ping."""

    @property
    def names(self) -> Collection[str]:
        """The nodes that the answer covers."""
        return self.peers


class ArrivalsOrder(NamedTuple):
    """`arrivals`: report which pings of other nodes have arrived here. The answer has `Arrivals` for each."""

    series: dict[str, Series]
    """The pings in question, by the name of the node that sent them."""

    @property
    def names(self) -> Collection[str]:
        """The nodes that the answer covers."""
        return self.series


class SendOrder(NamedTuple):
    """`send`: send to one peer by TCP, as fast as the link takes it. The answer is `Goodput`."""

    peer: Address
    """Address of the peer, which receives and counts."""
    startup_s: Seconds
    """Time for the connection to fill the link; it does not count."""
    window_s: Annotated[float, POSITIVE]
    """The time after that, which counts."""
    ping_interval_ms: Annotated[float, POSITIVE]
    """Time between two pings to the same peer, within `window_s`."""


class FloodSend(NamedTuple):
    """One flood: datagrams to one peer, as fast as the link takes them."""

    at_s: Seconds
    """When it begins, in seconds after the order."""
    address: Address
    """Address of the peer."""
    port: Port
    """Port at the peer; each sender has its own."""
    at_once: Annotated[int, POSITIVE]
    """Datagrams per call."""
    queued_bytes: Count
    """The most bytes that the sender may have in the link's queue."""
    seconds: Seconds
    """Duration of the flood."""
    datagrams: Annotated[int, POSITIVE] | None
    """The most datagrams to send: no more than the link is asked to carry meanwhile; null: as many as it takes."""


class FloodCount(NamedTuple):
    """How to count one sender's datagrams."""

    port: Port
    """The port at which only these datagrams arrive."""
    skip_s: Seconds
    """Time that does not count, from the first datagram on."""
    until_s: Seconds | None
    """If several links share an uplink or downlink: the end of the time that counts, from the first datagram on; the
    rate is the mean until then. Else null: the rate is a median over all of the time."""


class FloodOrder(NamedTuple):
    """`flood`: send and count by a timetable. The answer has `Flooded` for each node in `counts` and `sends`."""

    sends: dict[str, FloodSend]
    """What this node sends, by the name of the receiving node."""
    counts: dict[str, FloodCount]
    """What this node counts, by the name of the sending node."""
    seconds: Seconds
    """When counting ends, in seconds after the order."""

    @property
    def names(self) -> Collection[str]:
        """The nodes that the answer covers."""
        return self.counts.keys() | self.sends.keys()


class BurstSend(NamedTuple):
    """One burst: datagrams to one peer at once, even if the link's queue has no room for them."""

    at_s: Seconds
    """When it begins, in seconds after the order."""
    address: Address
    """Address of the peer."""
    port: Port
    """Port at the peer; each sender has its own."""
    at_once: Annotated[int, POSITIVE]
    """Datagrams per call."""
    datagrams: Annotated[int, POSITIVE]
    """Number of datagrams."""
    queued: Annotated[int, POSITIVE]
    """How many of them the link's queue is asked to hold."""
    datagrams_s: Annotated[float, POSITIVE]
    """How many the link is asked to carry a second."""


class BurstOrder(NamedTuple):
    """`burst`: send and count bursts by a timetable. The answer has `Burst` for each node in `counts` and `sends`."""

    sends: dict[str, BurstSend]
    """What this node sends, by the name of the receiving node."""
    counts: dict[str, Port]
    """The port at which only one sender's datagrams arrive, by the name of the sending node."""
    seconds: Seconds
    """When counting ends, in seconds after the order."""

    @property
    def names(self) -> Collection[str]:
        """The nodes that the answer covers."""
        return self.counts.keys() | self.sends.keys()


class TimersOrder(NamedTuple):
    """`timers`: report how late timers were. The answer is `TimersLate`."""


class ShowOrder(NamedTuple):
    """`show`: report what is in force on the node. The answer is `protocol.link_report.Shown`.

    It is what `node.wire show` prints, without starting Python on each node.
    """


MOST_COPIES = 100
"""Copies of one ping that links may make, at most: each link on the way doubles some."""
Order = PingOrder | ArrivalsOrder | SendOrder | FloodOrder | BurstOrder | TimersOrder | ShowOrder
NamingOrder = PingOrder | ArrivalsOrder | FloodOrder | BurstOrder
"""The orders whose answer has a value for each node that they name."""

ORDERS: Mapping[str, type[Order]] = {
    "ping": PingOrder,
    "arrivals": ArrivalsOrder,
    "send": SendOrder,
    "flood": FloodOrder,
    "burst": BurstOrder,
    "timers": TimersOrder,
    "show": ShowOrder,
}
"""The types of orders, by the value of their key `do`."""


class ProbeReady(NamedTuple):
    """The first line: the probe accepts orders."""

    ready: Address
    """The node's own address, at which its peers find it."""


class Failure(NamedTuple):
    """A line that replaces any other: the probe could not do it."""

    error: Annotated[str, LINE]
    """The reason."""


class Arrivals(NamedTuple):
    """The arrivals of one series of pings."""

    arrived: Count
    """Number of pings that arrived, each counted once."""
    twice: Count
    """Number of further copies that arrived."""
    gaps: Count
    """Number of runs of missing pings before the last one that arrived."""
    reordered: Count
    """Number of pings that overtook another, sent at least 1 ms before."""
    sent_ms: list[float]
    """When each was sent, relative to the first; only first copies that overtook no other ping."""
    one_way_ms: list[float]
    """How long each of these pings took, with an unknown offset if the clocks of the two nodes differ."""


class Pings(NamedTuple):
    """The results of the pings to one node."""

    series: Count
    """The number of this series, for `arrivals`."""
    sent: Count
    """Number of pings sent."""
    late_ms: float
    """Mean lateness of the sending."""
    rtt_ms: list[float]
    """The round-trip times."""
    back: Arrivals
    """The arrivals, back at this node, of the pings that had reached the peer."""


class Goodput(NamedTuple):
    """The throughput of one TCP connection on a link."""

    goodput_mbyte_s: Annotated[float, COUNT]
    """10^6 bytes a second, as the receiver's program read them; 0 if nothing got through."""
    loaded_rtt_ms: list[float]
    """Round-trip times within `window_s`."""
    note: str = ""
    """Why nothing got through; else empty."""


class Flooded(NamedTuple):
    """The results of the floods between this node and another."""

    datagrams_s: Annotated[float, COUNT] | None
    """Datagrams a second that arrived from it, each a full packet; null if none were to be counted."""
    full_pct: Annotated[float, within(0, 100)] | None
    """Per cent of the sends to it that found the link's queue full; 100 if all datagrams were sent before the flood's
    time was over; null if nothing was to be sent."""
    sent_datagrams_s: Annotated[float, COUNT] | None
    """Datagrams a second that were sent to it; null as `full_pct`."""


class Burst(NamedTuple):
    """The results of the bursts between this node and another."""

    arrived: Count | None
    """Datagrams that arrived from it; null if none were to be counted."""
    sent_s: Seconds | None
    """How long sending to it took; null if nothing was to be sent."""
    short_s: Seconds | None
    """By how much a queue of the right size would have seemed too short, because sending was slow; null as `sent_s`."""


class TimersLate(NamedTuple):
    """How late timers of the probe were, except those of pings, which take precedence."""

    late_ms: Annotated[float, COUNT]
    """Mean lateness since the previous such order."""


def read_reply(kind: type[T], value: object) -> T | Failure:
    """Read one line of a probe, which has this type or is a failure; raises as `protocol.reader.read`."""
    return read(Failure, value) if _is_failure(value) else read(kind, value)


def read_replies(kind: type[T], order: NamingOrder, value: object) -> dict[str, T] | Failure:
    """Read an answer that has a value for each node that the order names, or is a failure; raises as `read_each`."""
    return read(Failure, value) if _is_failure(value) else read_each(kind, order.names, value)


def check_arrivals(arrivals: Arrivals, sent: int) -> None:
    """Refuse arrivals that contradict themselves, or the number of pings that were sent.

    Raises:
        FormatError: naming the key.
    """
    for key, most in (
        ("arrived", sent),
        ("twice", MOST_COPIES * sent),
        ("gaps", sent),
        ("reordered", arrivals.arrived + arrivals.twice),
    ):
        if (found := getattr(arrivals, key)) > most:
            raise FormatError(f"{found} are more than {most} of {sent} pings", key)
    times = len(arrivals.sent_ms)
    if len(arrivals.one_way_ms) != times:
        words = f"expected {times} of them, as sent_ms has, got {len(arrivals.one_way_ms)}"
        raise FormatError(words, "one_way_ms")
    if times > arrivals.arrived:
        raise FormatError(f"{arrivals.arrived} are fewer than the {times} of sent_ms", "arrived")


def check_pings(pings: Pings, sent: int, there: Arrivals) -> None:
    """Refuse results of pings that contradict the order to send them, or what arrived at the peer.

    Raises:
        FormatError: naming the key.
    """
    if pings.sent != sent:
        raise FormatError(f"{pings.sent} pings, and {sent} were ordered", "sent")
    check_arrivals(pings.back, there.arrived + there.twice)


def _is_failure(value: object) -> bool:
    return isinstance(value, dict) and set(value) == set(Failure._fields)
