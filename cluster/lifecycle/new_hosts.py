"""Measures the network between the hosts of a cluster, as soon as each of them has a node."""

from dataclasses import replace

from cluster.base.spec import ClusterSpec
from cluster.contract.underlay_probe import measure_underlay
from cluster.engine.client import Engine
from cluster.shaping.link_state import clear_some
from cluster.shaping.underlay_record import read_underlay, write_underlay
from cluster.ssh.fleet import Fleet


def measure_new_hosts(engine: Engine, spec: ClusterSpec, fleet: Fleet) -> bool:
    """Measure and record the network between hosts of which that is not on record yet.

    One node of each such host loses its links: apply them afterwards.

    Returns:
        Whether the record has changed; plans must then be drawn again.

    Raises:
        NodeError: a node does not answer, or two hosts cannot reach each other.
    """
    parts = engine.parts(spec)
    if len(parts) < 2:
        return False
    known = read_underlay(spec)
    underlay = replace(
        known, hosts={name: part.host_name for part, names in parts for name in names}
    )
    if underlay == known:
        return False
    pairs = underlay.unmeasured()
    if pairs:
        nodes = {part.host_name: names[0] for part, names in parts}
        clear_some(
            fleet, [nodes[host] for host in dict.fromkeys(h for pair in pairs for h in pair)]
        )
        underlay = replace(underlay, paths={**known.paths, **measure_underlay(fleet, nodes, pairs)})
    write_underlay(spec, underlay)
    return True
