"""Makes links wrong without the tool's knowledge."""

# Changes packets that arrive from node1, by a message to the wire itself.
CHANGE = """
import sys
from node.wire import iptables, state
from node.wire.nfqueue import backend
layout = state.load().layout
request = backend.request_of(layout)
queues, wrong = request.queues, iptables.INCOMING + layout.slots["node1"]
field, times = sys.argv[1:]
queues[wrong] = queues[wrong]._replace(**{field: getattr(queues[wrong], field) * float(times)})
assert backend._ask(request._asdict()).error == ""
"""


def change_first_delay(cluster, times):
    """Multiply the delay from node1 to node2 by `times`, on the nfqueue wire."""
    cluster.exec("node2", "python3", "-c", CHANGE, "delay_s", str(times))


def change_first_losses(cluster, times):
    """Multiply the losses from node1 to node2 by `times`, on the nfqueue wire."""
    cluster.exec("node2", "python3", "-c", CHANGE, "loss", str(times))


def slow_first_link(cluster, node, rate):
    """Change the rate of a node's link to its first peer, with tc."""
    classes = cluster.exec(node, "tc", "class", "show", "dev", "eth0")
    leaf = next(line.split()[2] for line in classes.splitlines() if "leaf" in line)
    cluster.exec(
        *(node, "tc", "class", "change", "dev", "eth0", "classid", leaf),
        *("htb", "rate", rate, "ceil", rate),
    )
