"""What a node says of its ranks from outside: while a run goes on, and when a launcher has heard nothing for long.

`python3 -S -m node.telemetry` reads one line, the Order, and then prints a Look a line until its standard input ends. A
line has at most 60,000 bytes. A line that is none counts as not there, as does of a line what has another type. A
launcher hears a node no more that says more than 1 MiB in 5 s.

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
"""Of a line, by a node."""
MOST_LINE_BYTES = 1 << 16
"""Of a line, that a launcher takes."""
LARGEST = 1e15
STATES = tuple("RSDTtIWXP")
"""Of processes: proc_pid_stat(5)."""

Number = Annotated[float, ReadBy(read_number, "number"), within(-LARGEST, LARGEST)]
Amount = Annotated[float, ReadBy(read_number, "number"), within(0, LARGEST)]


class Order(NamedTuple):
    """What a launcher asks of a node's telemetry."""

    run: str
    """The run's name: TORCHELASTIC_RUN_ID of its ranks."""
    ranks: dict[RankKey, str]
    """The path of each rank's metrics.jsonl; ranks of this node alone."""
    interval_s: Annotated[float, within(0, 1e6)]
    """How often to look."""


class RankLook(NamedTuple):
    """What is seen of a rank. What is not known is missing."""

    state: Annotated[str, one_of(*STATES)] | None = None
    """Of its processes, as ps(1) calls it: T where any of them is stopped."""
    cpu_s: Number | None = None
    """Processor time of all its processes."""
    main_s: Number | None = None
    """Likewise of the thread that runs the program."""
    collective: Annotated[str, LINE] | None = None
    """As of RankState."""
    began: Number | None = None
    """When it wrote its first line of metrics, Unix time."""
    time: Number | None = None
    """When it wrote its last one."""
    step: Count | None = None
    """Its last step."""
    loss: Number | None = None
    """Of that step."""
    score: tuple[Annotated[str, one_of(*SCORES)], Number] | None = None
    """Name and value of a figure of its last test."""
    compute_s: Number | None = None
    """Sum over its steps. At most 64 KiB of metrics are read at a look; of more, sums are scaled up."""
    comm_s: Number | None = None
    """Likewise."""
    sent_bytes: Number | None = None
    """Likewise."""


class LinkLook(NamedTuple):
    """The kernel's counters of a link that starts at this node, since it was laid. A list in a line of telemetry."""

    sent_bytes: Amount
    """Headers included."""
    backlog_bytes: Amount
    """What waits in the queue now."""
    dropped_packets: Amount
    """For want of room in the queue."""
    asked_mbyte_s: Amount
    """What the plan in force says, also where a trace is played."""


def read_link(value: object) -> LinkLook:
    """A link's counters, from a list."""
    if not isinstance(value, list) or len(value) != len(LinkLook._fields):
        raise FormatError(f"expected a list of {len(LinkLook._fields)}, got {shown(value)}")
    return read(LinkLook, dict(zip(LinkLook._fields, value, strict=True)))


class Look(NamedTuple):
    """One line: what a node sees at one moment."""

    time: Number
    """By its own clock, Unix time."""
    spent_s: Number = 0.0
    """Processor time that telemetry itself has taken so far."""
    ranks: dict[RankKey, RankLook] = {}  # noqa: RUF012 - nobody changes it
    """Ranks of this node."""
    links: dict[str, Annotated[LinkLook, ReadBy(read_link, "list of the fields of LinkLook")]] = {}  # noqa: RUF012
    """Links that start here, by peer: `[bytes sent, bytes waiting, packets dropped, MB/s asked]`."""


class RankState(NamedTuple):
    """What a rank is doing."""

    state: Annotated[str, Check("a state", lambda value: len(value) == 1)]
    """Of its processes, as ps(1) calls it; T where any of them is stopped."""
    cpu_s: Amount
    """Processor time of all its processes."""
    bytes: Annotated[int, within(0, 1e18)]
    """What went through its connections, and to and from disks."""
    unread: dict[Address, Count]
    """Bytes that came and that it does not read, by the address that they came from."""
    unsent: dict[Address, Count]
    """Bytes that wait to be sent or acknowledged, by the address that they are for."""
    collective: Annotated[str, LINE]
    """Note of a rank of node.train (an open file without a name, "gradwire-collective" under /proc/PID/fd), else empty:
    how many collectives of all ranks it has begun, how many are under way, then kind, bytes, purpose, step and Unix
    time of the latest."""


def parse_look(text: str | bytes, ranks: Collection[int], peers: Collection[str]) -> Look | None:
    """A line of telemetry; None where it is none. What is wrong of one rank or link is left out.

    Args:
        text: the line.
        ranks: those of this node: it has no word on others.
        peers: where its links lead to.
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
    """A line of telemetry. What is not known is left out."""
    ranks = {
        rank: {name: value for name, value in one._asdict().items() if value is not None}
        for rank, one in look.ranks.items()
    }
    links = {peer: list(one) for peer, one in look.links.items()}
    said = {"time": look.time, "spent_s": look.spent_s, "ranks": ranks, "links": links}
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def order_text(order: Order) -> bytes:
    """The first line of standard input."""
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
    """A value of this type; None for others."""
    with suppress(FormatError):
        return read(kind, value)
    return None


def _rank(value: object) -> RankLook:
    """What of a rank has its type."""
    return RankLook(**dict(_known(_dict(value))))


def _known(said: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    for name, kind in RankLook.__annotations__.items():
        if name in said:
            yield name, _whole(kind, said[name])


def _link(value: object) -> LinkLook | None:
    with suppress(FormatError):
        return read_link(value)
    return None
