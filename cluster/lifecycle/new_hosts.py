"""Keeps the record of the network between a cluster's hosts up to date: who is where, and what was measured."""

from dataclasses import replace

from cluster.base.spec import ClusterSpec
from cluster.contract.underlay_probe import measure_underlay
from cluster.engine.client import Engine
from cluster.shaping.link_state import clear_some
from cluster.shaping.underlay_record import read_underlay, write_underlay
from cluster.ssh.fleet import Fleet


def record_hosts(engine: Engine, spec: ClusterSpec) -> None:
    """Record which host has, or will have, each node, so that plans are drawn over what is between them."""
    parts = engine.parts(spec)
    if len(parts) < 2:
        return
    known = read_underlay(spec)
    hosts = {name: part.host_name for part, names in parts for name in names}
    if hosts != known.hosts:
        write_underlay(spec, replace(known, hosts=hosts))


def measure_new_hosts(spec: ClusterSpec, fleet: Fleet, *, have_links: bool = True) -> bool:
    """Measure the network between hosts that have nodes now, but no measurement yet; record it.

    One node of each of these hosts loses the links that it may have: then apply all links, by new plans.

    Returns:
        Whether anything was measured.

    Raises:
        NodeError: a node does not answer, or two hosts cannot reach each other.
    """
    underlay = read_underlay(spec)
    pairs = underlay.unmeasured()
    if not pairs:
        return False
    # The first node of each host: later ones do not replace it.
    nodes = {host: node for node, host in reversed(list(underlay.hosts.items()))}
    if have_links:
        clear_some(fleet, sorted({nodes[host] for pair in pairs for host in pair}))
    paths = {**underlay.paths, **measure_underlay(fleet, nodes, pairs)}
    write_underlay(spec, replace(underlay, paths=paths))
    return True
