"""Which host has which node. Pure values.

Nodes are placed one after the other, so the place of a node does not depend on later ones: growing a cluster moves no
node, and a node that is created anew gets its old host.
"""

from collections.abc import Mapping, Sequence

from cluster.base.errors import UsageError
from cluster.hosts.hosts_file import Host

Placement = Mapping[str, str]
"""From each node to the name of its host."""


def place(nodes: Sequence[str], hosts: Sequence[Host]) -> dict[str, str]:
    """Return the host of each node, in the order of the nodes.

    Hosts that name nodes get these. Hosts with a number of nodes are then filled one after the other. The remaining
    nodes are spread over the hosts that say neither, in proportion to their `cpus`.

    Raises:
        UsageError: a host names a node that does not exist, two hosts name the same one, or there are too few places.
    """
    found = _named(nodes, hosts)
    left = [node for node in nodes if node not in found]
    for host in hosts:
        if isinstance(host.nodes, int):
            found |= dict.fromkeys(left[: host.nodes], host.name)
            left = left[host.nodes :]
    found |= _spread(left, [host for host in hosts if host.nodes is None])
    homeless = [node for node in nodes if node not in found]
    if homeless:
        raise UsageError(
            f"the hosts have places for {len(found)} of {len(nodes)} nodes, and none for {', '.join(homeless)}",
            "increase `nodes` in the hosts file, or leave it out: such a host gets a share of the other nodes",
        )
    return {node: found[node] for node in nodes}


def nodes_by_host(placement: Placement, hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Return the nodes of each host, by its name; an empty list for a host without nodes."""
    return {
        host.name: [node for node, name in placement.items() if name == host.name] for host in hosts
    }


def _named(nodes: Sequence[str], hosts: Sequence[Host]) -> dict[str, str]:
    found: dict[str, str] = {}
    for host in hosts:
        for node in host.nodes if isinstance(host.nodes, tuple) else ():
            if node not in nodes:
                raise UsageError(
                    f"host {host.name}: nodes names {node}, and the cluster has {len(nodes)} nodes",
                    f"--nodes {node.removeprefix('node')}, or remove {node} from the hosts file",
                )
            if node in found:
                where = f"hosts {found[node]} and {host.name}"
                if found[node] == host.name:
                    where = f"host {host.name}, twice"
                raise UsageError(f"nodes: {node} is named by {where}", "name each node once")
            found[node] = host.name
    return found


def _spread(nodes: Sequence[str], hosts: Sequence[Host]) -> dict[str, str]:
    """Place each node on the host that then has the fewest nodes per processor; ties go to the first host."""
    counts = {host.name: 0 for host in hosts}
    found = {}
    for node in nodes if hosts else ():
        best = min(hosts, key=lambda host: (counts[host.name] + 1) / host.cpus)
        counts[best.name] += 1
        found[node] = best.name
    return found
