"""Makes links wrong without the tool's knowledge: it still records what was asked for."""

import json
from typing import Protocol

# Gives the kernel and the wire other values of one link, on either of its nodes, in the way of a trace.
MULTIPLY = """
import json, sys
from node.wire import egress, state
from node.wire.backends import WIRES
from node.wire.commands import run_batch
ends, times = tuple(sys.argv[1:3]), json.loads(sys.argv[3])
saved = state.load()
plan = saved.layout.plan
def wrong(link):
    return link._replace(**{name: getattr(link, name) * factor for name, factor in times.items()})
links = [wrong(link) if link.ends == ends else link for link in plan.links]
after = saved.layout._replace(plan=plan._replace(links=links))
lines = egress.change_lines(saved.layout, after) + WIRES[saved.wire].change(saved.layout, after)
if lines:
    run_batch("tc", lines)
"""

REMOVE_QUEUE = """
from node.wire.commands import run, run_json
found = run_json(["tc", "-json", "qdisc", "show", "dev", "eth0"])
parent = next(one["parent"] for one in found if one["kind"] == "tbf")
run(["tc", "qdisc", "del", "dev", "eth0", "parent", parent])
"""
CHANGE_UPLINK = """
import json, sys
from node.wire import egress, state
from node.wire.commands import run_batch
layout, factor = state.load().layout, json.loads(sys.argv[1])
uplink = None if factor is None else factor * layout.plan.uplink_mbyte_s
after = layout._replace(plan=layout.plan._replace(uplink_mbyte_s=uplink))
run_batch("tc", egress.change_lines(layout, after))
"""


class Execute(Protocol):
    """Runs a command on a node."""

    def __call__(self, node: str, *argv: str) -> object:
        """Run it and wait for it."""


class Nodes(Protocol):
    """A cluster with such a function: containers.Gradwire."""

    def exec(self, node: str, *argv: str) -> str:
        """Run a command on a node, and return its output."""


def multiply(execute: Execute, src: str, dst: str, **times: float) -> None:
    """Multiply values of the link from `src` to `dst`, on both of these nodes.

    Args:
        execute: runs a command on a node.
        src: the link's beginning.
        dst: its end.
        times: factors by the fields of protocol.link.Link, such as delay_ms=1.1.
    """
    for node in (src, dst):
        execute(node, "python3", "-c", MULTIPLY, src, dst, json.dumps(times))


def change_first_delay(cluster: Nodes, times: float) -> None:
    """Multiply the delay from node1 to node2 by `times`."""
    multiply(cluster.exec, "node1", "node2", delay_ms=times)


def slow_first_link(cluster: Nodes, node: str, rate: str) -> None:
    """Change the rate of a node's link to its first peer, with tc."""
    classes = cluster.exec(node, "tc", "class", "show", "dev", "eth0")
    leaf = next(line.split()[2] for line in classes.splitlines() if "leaf" in line)
    cluster.exec(
        *(node, "tc", "class", "change", "dev", "eth0", "classid", leaf),
        *("htb", "rate", rate, "ceil", rate),
    )


def remove_queue(execute: Execute, node: str) -> None:
    """Remove the queue of a node's first link, with what cuts its packets; its rate stays."""
    execute(node, "python3", "-c", REMOVE_QUEUE)


def lift_uplink(execute: Execute, node: str) -> None:
    """Let a node send as much on all its links together as each of them carries."""
    execute(node, "python3", "-c", CHANGE_UPLINK, "null")


def multiply_uplink(execute: Execute, node: str, factor: float) -> None:
    """Multiply what a node may send on all its links together."""
    execute(node, "python3", "-c", CHANGE_UPLINK, json.dumps(factor))
