"""Orders and answers while traces change a node's links: standard input and output of `node.wire replay`.

`python -m node.wire replay` runs on every node at once; each order and each answer is one line with a JSON object. The
first line is a `FirstOrder`. In all other orders, the key `do` names the order (`begin`, `end`, `apply`); the other
keys are below. Answers are told apart by their first key. When standard input ends or a signal comes, all links return
to the plan in force. Until then, `apply` and `clear` on this node refuse, with a line that names the links. The exit
code is 0; 1 with one line on standard error if the node could not do it; 2 for invalid orders.
"""

import itertools
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from protocol.link import Pair
from protocol.node_plan import NodePlan
from protocol.reader import COUNT, POSITIVE, FormatError, one_of, parse

FIELDS = ("rate_mbyte_s", "delay_ms", "jitter_ms", "loss_pct")
"""The values of a link that a trace may set."""

Number = Annotated[float, COUNT]


class NodeTrace(NamedTuple):
    """A trace as a node receives it: values of some links over time."""

    links: list[Pair]
    """The links of the trace that start or end at this node."""
    fields: list[Annotated[str, one_of(*FIELDS)]]
    """The values of the links that the trace sets."""
    steps: list[list[Number]]
    """For each step, its time in seconds, then the value of each field. Times begin at 0 and increase. A rate of 0 is
    an outage: packets wait."""
    seconds: Annotated[float, POSITIVE]
    """Duration of one round. A trace that lasts longer begins again."""
    lasts_s: Number | None
    """Total duration; null: until an order ends it."""


class FirstOrder(NamedTuple):
    """The first line: all traces that may be played. The answer is `ReplayReady`."""

    links: list[Pair]
    """All links of the cluster that traces change; `node.wire show` reports them, and refusals name them."""
    traces: dict[str, NodeTrace]
    """The traces that concern this node, by name."""


class BeginOrder(NamedTuple):
    """`begin`: start a trace from its beginning. The answer is `Ended`, when the trace ends."""

    trace: str
    """The trace's name."""


class EndOrder(NamedTuple):
    """`end`: end a trace early. The answer is `Ended`; there is none if the trace was not being played."""

    trace: str
    """The trace's name."""


class ApplyOrder(NamedTuple):
    """`apply`: replace the plan beneath the traces, to which links return when traces end. The answer is `Applied`."""

    plan: NodePlan
    """The new link plan."""


Order = BeginOrder | EndOrder | ApplyOrder

ORDERS: Mapping[str, type[Order]] = {"begin": BeginOrder, "end": EndOrder, "apply": ApplyOrder}
"""The types of orders, by the value of their key `do`."""


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
    """The trace's name."""
    changes: Annotated[int, COUNT]
    """How often it changed the links, its beginning included."""
    late: Annotated[int, COUNT]
    """Changes that came more than 50 ms late, or never, because the next was already due."""
    worst_ms: Number
    """Lateness of the latest change."""


Answer = ReplayReady | Applied | Ended

ANSWERS: Mapping[str, type[Answer]] = {"ready": ReplayReady, "applied": Applied, "ended": Ended}
"""The types of answers, by the key that tells them apart."""


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
    """Refuse a trace whose parts contradict each other."""
    if not trace.fields:
        raise FormatError("expected one at least", f"{key}.fields")
    if any(len(step) != 1 + len(trace.fields) for step in trace.steps):
        raise FormatError(f"expected a time and {len(trace.fields)} values in each", f"{key}.steps")
    moments = [*(step[0] for step in trace.steps), trace.seconds]
    if moments[0] != 0 or any(after <= before for before, after in itertools.pairwise(moments)):
        words = "expected times from 0 on, each after the one before it, and seconds after all"
        raise FormatError(words, f"{key}.steps")
