"""Links made wrong behind the tool's back, so that it does not know."""

# On what comes to a node from node1, told to the wire itself.
CHANGE_DELAY = """
import sys
from node.wire import iptables, state
from node.wire.nfqueue import backend
layout = state.load().layout
request = backend.request_of(layout)
queues, wrong = request.queues, iptables.INCOMING + layout.slots["node1"]
queues[wrong] = queues[wrong]._replace(delay_s=queues[wrong].delay_s * float(sys.argv[1]))
assert backend._ask(request._asdict()).error == ""
"""


def change_first_delay(cluster, times):
    """Make the delay from node1 to node2 so many times as long; of the nfqueue wire."""
    cluster.exec("node2", "python3", "-c", CHANGE_DELAY, str(times))


def slow_first_link(cluster, node, rate):
    """Change the rate of a node's link to the first of its peers, with tc."""
    classes = cluster.exec(node, "tc", "class", "show", "dev", "eth0")
    leaf = next(line.split()[2] for line in classes.splitlines() if "leaf" in line)
    cluster.exec(
        *(node, "tc", "class", "change", "dev", "eth0", "classid", leaf),
        *("htb", "rate", rate, "ceil", rate),
    )
