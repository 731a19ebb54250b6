"""What a node is told and says while traces change its links: standard input and output of `node.wire replay`.

`python -m node.wire replay` runs on every node at once; orders and answers are one JSON object a line each. The first
line is a `FirstOrder`. The key `do` of every other order is its word (`begin`, `end`, `apply`), the other keys are
below. Answers are told apart by their first key. When standard input ends, or a signal comes, all links are made what
the plan in force says. Meanwhile `apply` and `clear` on this node refuse, with a line that names the links. Exit 0; 1
with one line on standard error if the node could not do it, 2 for orders that are none.
"""

import itertools
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from protocol.link import Pair
from protocol.node_plan import NodePlan
from protocol.reader import COUNT, POSITIVE, FormatError, one_of, parse

FIELDS = ("rate_mbyte_s", "delay_ms", "jitter_ms", "loss_pct")
"""The values of a link that a trace may decide."""

Number = Annotated[float, COUNT]


class NodeTrace(NamedTuple):
    """A trace as a node is told it: values of some links over time."""

    links: list[Pair]
    """Those of its links that start or end at this node."""
    fields: list[Annotated[str, one_of(*FIELDS)]]
    """Which values of the links it decides."""
    steps: list[list[Number]]
    """Of each step its time in seconds, then the value of each field. Times begin at 0 and increase. A rate of 0 is an
    outage: packets wait."""
    seconds: Annotated[float, POSITIVE]
    """How long a round takes. A trace that lasts longer begins again."""
    lasts_s: Number | None
    """How long it lasts in all; null: until it is told to end."""


class FirstOrder(NamedTuple):
    """The first line: all that may be played. The answer is `ReplayReady`."""

    links: list[Pair]
    """All links of the cluster that traces change: what others are told who ask this node."""
    traces: dict[str, NodeTrace]
    """The traces that concern this node, by name."""


class BeginOrder(NamedTuple):
    """`begin`: begin a trace, from its start. At its end the answer is `Ended`."""

    trace: str
    """Its name."""


class EndOrder(NamedTuple):
    """`end`: end a trace before its time. The answer is `Ended`; none if it was not being played."""

    trace: str
    """Its name."""


class ApplyOrder(NamedTuple):
    """`apply`: change what is underneath the traces from now on, and comes back after them. The answer is `Applied`."""

    plan: NodePlan
    """The new link plan."""


Order = BeginOrder | EndOrder | ApplyOrder

ORDERS: Mapping[str, type[Order]] = {"begin": BeginOrder, "end": EndOrder, "apply": ApplyOrder}
"""By the word at their key `do`."""


class ReplayReady(NamedTuple):
    """Traces may begin."""

    ready: bool = True
    """Always true."""


class Applied(NamedTuple):
    """The new plan is in force."""

    applied: bool = True
    """Always true."""


class Ended(NamedTuple):
    """A trace has ended on this node, and its links are as the plan says."""

    ended: str
    """Its name."""
    changes: Annotated[int, COUNT]
    """How often it changed the links, its beginning included."""
    late: Annotated[int, COUNT]
    """Changes that came more than 50 ms late, or never, as the next was due already."""
    worst_ms: Number
    """How late the latest came."""


Answer = ReplayReady | Applied | Ended

ANSWERS: Mapping[str, type[Answer]] = {"ready": ReplayReady, "applied": Applied, "ended": Ended}
"""By the key that tells them apart."""


def parse_first_order(line: str | bytes) -> FirstOrder:
    """Read the first line.

    Raises:
        FormatError: naming the key that is missing, unknown or wrong.
    """
    order = parse(FirstOrder, line)
    for name, trace in order.traces.items():
        _check(trace, f"traces.{name}")
    return order


def _check(trace: NodeTrace, key: str) -> None:
    """Refuse a trace whose parts do not agree with one another."""
    if not trace.fields:
        raise FormatError("expected one at least", f"{key}.fields")
    if any(len(step) != 1 + len(trace.fields) for step in trace.steps):
        raise FormatError(f"expected a time and {len(trace.fields)} values in each", f"{key}.steps")
    moments = [*(step[0] for step in trace.steps), trace.seconds]
    if moments[0] != 0 or any(after <= before for before, after in itertools.pairwise(moments)):
        words = "expected times from 0 on, each after the one before it, and seconds after all"
        raise FormatError(words, f"{key}.steps")
