"""A node's outside view of its ranks: while a run goes on, and when a launcher has heard nothing for a long time.

`python3 -S -m node.telemetry` reads one line, the Order, and then prints one Look per line until its standard input
ends. A line has at most 60,000 bytes. Invalid lines are ignored, and so are values of the wrong type within a line. A
launcher stops listening to a node that sends more than 1 MiB within 5 s.

`python3 -S -m node.supervisor.rank_states RUN` prints one object: a RankState by rank.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from protocol.metrics import SCORES
from protocol.reader import (
    LINE,
    Check,
    Count,
    FormatError,
    ReadBy,
    document,
    one_of,
    read,
    shown,
    within,
)
from protocol.values import Address, RankKey, read_number

MOST_SAID_BYTES = 60_000
"""The most bytes of a line that a node writes."""
MOST_LINE_BYTES = 1 << 16
"""The most bytes of a line that a launcher accepts."""
LARGEST = 1e15
STATES = tuple("RSDTtIWXP")
"""The states of processes: proc_pid_stat(5)."""

Number = Annotated[float, ReadBy(read_number, "number"), within(-LARGEST, LARGEST)]
Amount = Annotated[float, ReadBy(read_number, "number"), within(0, LARGEST)]


class Order(NamedTuple):
    """What a launcher asks of a node's telemetry."""

    run: str
    """The run's name: TORCHELASTIC_RUN_ID of its ranks."""
    ranks: dict[RankKey, str]
    """The path of each rank's metrics.jsonl; only ranks of this node."""
    interval_s: Annotated[float, within(0, 1e6)]
    """Seconds between two looks."""


class RankLook(NamedTuple):
    """What is seen of a rank. Unknown values are missing."""

    state: Annotated[str, one_of(*STATES)] | None = None
    """State of its processes, as a letter of ps(1): T or t if any is stopped, else R if any runs."""
    cpu_s: Number | None = None
    """CPU time of all its processes."""
    main_s: Number | None = None
    """CPU time of the thread that runs the program."""
    collective: Annotated[str, LINE] | None = None
    """See RankState."""
    began: Number | None = None
    """When it wrote its first line of metrics, Unix time."""
    time: Number | None = None
    """When it wrote its latest line of metrics, Unix time."""
    step: Count | None = None
    """Its latest step."""
    loss: Number | None = None
    """Loss of that step."""
    score: tuple[Annotated[str, one_of(*SCORES)], Number] | None = None
    """Name and value of its latest score: a figure of an evaluation, or the episode return."""
    compute_s: Number | None = None
    """Seconds of computing, summed over its steps. A look reads at most 64 KiB of metrics; if there are more, sums are
    scaled up."""
    comm_s: Number | None = None
    """Seconds of waiting for collectives, summed likewise."""
    sent_bytes: Number | None = None
    """Payload bytes sent, summed likewise."""


class LinkLook(NamedTuple):
    """The kernel's counters of a link that starts at this node, since it was laid; a list in a line of telemetry."""

    sent_bytes: Amount
    """Bytes sent, headers included."""
    backlog_bytes: Amount
    """Bytes in the queue now."""
    dropped_packets: Amount
    """Packets dropped because the queue was full."""
    asked_mbyte_s: Amount
    """The rate that the plan in force asks for, also while a trace is played."""


def read_link(value: object) -> LinkLook:
    """Read a link's counters from a list."""
    if not isinstance(value, list) or len(value) != len(LinkLook._fields):
        raise FormatError(f"expected a list of {len(LinkLook._fields)}, got {shown(value)}")
    return read(LinkLook, dict(zip(LinkLook._fields, value, strict=True)))


class Look(NamedTuple):
    """One line: what a node sees at one moment."""

    time: Number
    """Unix time, by the node's own clock."""
    spent_s: Number = 0.0
    """CPU time that telemetry itself has used so far."""
    ranks: dict[RankKey, RankLook] = {}  # noqa: RUF012 - nobody changes it
    """Ranks of this node."""
    links: dict[str, Annotated[LinkLook, ReadBy(read_link, "list of the fields of LinkLook")]] = {}  # noqa: RUF012
    """Links that start here, by peer: `[bytes sent, bytes waiting, packets dropped, MB/s asked]`."""


class RankState(NamedTuple):
    """What a rank is doing."""

    state: Annotated[str, Check("a state", lambda value: len(value) == 1)]
    """State of its processes, as a letter of ps(1): T or t if any is stopped, else R if any runs."""
    cpu_s: Amount
    """CPU time of all its processes."""
    bytes: Annotated[int, within(0, 1e18)]
    """Bytes that went through its connections, and to and from disks."""
    unread: dict[Address, Count]
    """Bytes that arrived and that it has not read, by the sender's address."""
    unsent: dict[Address, Count]
    """Bytes that wait to be sent or acknowledged, by the receiver's address."""
    collective: Annotated[str, LINE]
    """The note of a rank of node.train (an anonymous open file, "gradwire-collective" under /proc/PID/fd), else empty:
    the number of collectives of all ranks that it has started, the number under way, then kind, bytes, purpose, step
    and Unix time of the latest."""


def parse_look(text: str | bytes, ranks: Collection[int], peers: Collection[str]) -> Look | None:
    """Parse a line of telemetry; return None if it is invalid. Invalid values of a rank or link are left out.

    Args:
        text: the line.
        ranks: the ranks of this node; others in the line are ignored.
        peers: the nodes that its links lead to; others are ignored.
    """
    value = _object_of(text)
    links = _dict(value.get("links"))
    try:
        return Look(
            read(Look.__annotations__["time"], value.get("time")),
            _whole(Look.__annotations__["spent_s"], value.get("spent_s")) or 0.0,
            {rank: _rank(_dict(value.get("ranks")).get(str(rank))) for rank in ranks},
            {peer: link for peer in peers if (link := _link(links.get(peer)))},
        )
    except FormatError:
        return None


def look_text(look: Look) -> bytes:
    """Return a look as a line of telemetry; unknown values are left out."""
    ranks = {
        rank: {name: value for name, value in one._asdict().items() if value is not None}
        for rank, one in look.ranks.items()
    }
    links = {peer: list(one) for peer, one in look.links.items()}
    said = {"time": look.time, "spent_s": look.spent_s, "ranks": ranks, "links": links}
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def order_text(order: Order) -> bytes:
    """Return an order as the first line of standard input."""
    return json.dumps(document(order)).encode() + b"\n"


def _object_of(text: str | bytes) -> Mapping[str, object]:
    if len(text) > MOST_LINE_BYTES:
        return {}
    try:
        return _dict(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _whole(kind: Any, value: object) -> Any:  # noqa: ANN401 - a type of a field, and its value
    """Return the value if it has this type, else None."""
    with suppress(FormatError):
        return read(kind, value)
    return None


def _rank(value: object) -> RankLook:
    """Return the look at a rank, without values of the wrong type."""
    return RankLook(**dict(_known(_dict(value))))


def _known(said: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    for name, kind in RankLook.__annotations__.items():
        if name in said:
            yield name, _whole(kind, said[name])


def _link(value: object) -> LinkLook | None:
    with suppress(FormatError):
        return read_link(value)
    return None
