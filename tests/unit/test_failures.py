"""What a failed run says besides its log."""

from cluster.failures import missing_links
from cluster.links import Link
from cluster.spec import ClusterSpec

NODES = ClusterSpec(size=4).nodes
RING = [
    Link(f"node{a}", f"node{b}", 1.0, 1.0, 0.0, 0.0, 10.0)
    for a in range(1, 5)
    for b in (a % 4 + 1, (a - 2) % 4 + 1)
]


def test_the_missing_link_is_named_by_its_nodes():
    log = [f"connect [{NODES[2].address}]:41234: No route to host", f"bound {NODES[0].address}"]
    (words,) = missing_links("node1", log, NODES, RING)
    assert words.startswith("node1 and node3 have no link")
    assert missing_links("node2", log, NODES, RING) == []
    assert missing_links("node1", log, NODES, []) == []
