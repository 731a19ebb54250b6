"""Fake probes of fake links, one of which gives odd answers, and the contract that results."""

import json
from dataclasses import replace
from unittest.mock import patch

from hypothesis import strategies as st

from cluster.base.console import Console
from cluster.contract.measure import measure_contract
from cluster.contract.probe_plan import EFFORTS
from cluster.contract.table import print_contract
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.shaping.link_state import make_link_state
from cluster.ssh.remote_process import RemoteProcess
from fuzzing.documents import example
from fuzzing.fake_nodes import SPEC, Channel, FakeFleet
from fuzzing.mutations import JSON_VALUES, Pairs, Raw, flow, mutated, tree
from protocol.lines import parse_order
from protocol.link_report import LinkCounters, Shown
from protocol.probe import (
    ORDERS,
    Arrivals,
    ArrivalsOrder,
    Burst,
    BurstOrder,
    Flooded,
    Goodput,
    PingOrder,
    Pings,
    SendOrder,
    ShowOrder,
    TimersLate,
    TimersOrder,
)
from protocol.reader import document, read

ARRIVED = {"arrived": 2, "twice": 0, "gaps": 0, "reordered": 0}
ARRIVED |= {"sent_ms": [0.0, 30.0], "one_way_ms": [1.0, 1.5]}
PINGED = {"series": 1, "sent": 2, "late_ms": 0.1, "rtt_ms": [2.0, 2.1], "back": ARRIVED}
SPED = {"goodput_mbyte_s": 4.5, "loaded_rtt_ms": [9.0, 8.0], "note": ""}
FLOODED = {"datagrams_s": 3000.0, "full_pct": 95.0, "sent_datagrams_s": 3100.0}
CAME = {"arrived": 300, "sent_s": 0.01, "short_s": 0.001}
GOOD = {Pings: PINGED, Arrivals: ARRIVED, Goodput: SPED, Flooded: FLOODED, Burst: CAME}
GOOD |= {TimersLate: {"late_ms": 0.2}}


def report_on(node, plan):
    """Return a node's report on its plan."""
    return {"node": node, "device": "eth0", "mtu": 1500, "wire": "nfqueue", "tcp": "cubic"} | {
        "links": document(plan)["links"],
        "notes": [],
    }


PLANS = link_plans(SPEC.nodes, make_link_spec("mobile-real", "full", 1, "nfqueue"))
SHOWN = {
    node: {**example(Shown), "plan": document(plan), "report": report_on(node, plan)}
    | {"replayed": []}
    | {"counters": {peer: example(LinkCounters) for peer in plan.peers}}
    for node, plan in PLANS.items()
}


def link_state():
    """Return the link state as read from the fake nodes."""
    shown = {node: read(Shown, said) for node, said in SHOWN.items()}
    counters = {node: said.counters for node, said in shown.items()}
    links = tuple(link for plan in PLANS.values() for link in plan.outgoing().values())
    settings = {node: said.settings for node, said in shown.items()}
    state = make_link_state(PLANS, {}, counters)
    return replace(state, links=links, shown=shown, settings=settings)


@st.composite
def twists(draw):
    """Draw the odd node's answers: a value for each type of answer, and perhaps a whole line."""
    odd = draw(st.sampled_from([*GOOD, Shown]))  # only one of these at a time
    values = {kind: _perhaps(draw, one, kind is odd) for kind, one in GOOD.items()}
    line = draw(st.sampled_from((*[None] * 12, '{"error": "no such device"}', "[" * 99, "5", "")))
    show = _perhaps(draw, SHOWN["node2"], odd is Shown)
    return ((values, line, draw(st.integers(0, 5)), show),)


def _perhaps(draw, one, is_odd):
    return flow(draw(mutated([one], JSON_VALUES)) if is_odd else tree(one))


class ProbeChannel(Channel):
    """`python -m node.probe`, with an answer to each order."""

    def __init__(self, node, address, twist=None):
        super().__init__(json.dumps({"ready": address}).encode() + b"\n")
        self._node, self._twist, self._count = node, twist, 0

    def send(self, data):
        place = self._out.tell()
        self._out.seek(0, 2)
        self._out.write(self._said(parse_order(ORDERS, bytes(data))) + b"\n")
        self._out.seek(place)
        return len(data)

    def _said(self, order):
        values, line, when, show = self._twist or (dict(GOOD), None, 0, SHOWN[self._node])
        values = {**values, Shown: show}
        self._count += 1
        if line is not None and self._count > when:
            return line.encode()
        said = {kind: Raw(one) if self._twist else tree(one) for kind, one in values.items()}
        text = flow(tree_of(order, said))
        if isinstance(order, PingOrder):
            text = text.replace('"sent": 2', f'"sent": {order.pings}')
        return text.encode("utf-8", "surrogatepass")


def tree_of(order, said):
    """Return the answer to an order, from the values of each type."""
    match order:
        case SendOrder():
            return said[Goodput]
        case TimersOrder():
            return said[TimersLate]
        case ShowOrder():
            return said[Shown]
        case PingOrder():
            kind = Pings
        case ArrivalsOrder():
            kind = Arrivals
        case BurstOrder():
            kind = Burst
        case _:
            kind = Flooded
    return Pairs([name, said[kind]] for name in order.names)


class ProbedFleet(FakeFleet):
    """Three nodes with probes; node2's probe and its shown state are odd."""

    def __init__(self, twist):
        show = {node: json.dumps(said).encode() for node, said in SHOWN.items()}
        super().__init__(show | {"node2": twist[3].encode("utf-8", "surrogatepass")})
        self._twist = twist

    def start(self, node, argv):
        *_, address, _nodes = argv
        return RemoteProcess(
            node, ProbeChannel(node, address, self._twist if node == "node2" else None)
        )


def measure(twist, table):
    """Return the contract's document, and print its table, as a launch would."""
    with patch("cluster.contract.measure.time.sleep"):
        contract = measure_contract(
            ProbedFleet(twist), link_state(), Console(quiet=True), EFFORTS["normal"]
        )
    print_contract(contract, table)
    return contract.document()
