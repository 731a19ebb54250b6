"""A link plan of node1, for tests that need one but care about few of its values."""

from protocol.node_plan import NodePlan, Peer


def node_plan(peers, links, mac="02:67:77:00:00:0{}", **changes):
    """Return node1's plan with the peers of these numbers and these links; all other values are plain defaults."""
    plain = NodePlan(
        node="node1",
        address="10.77.0.11",
        wire="auto",
        tcp="bbr",
        slow_start_after_idle=True,
        seed=1,
        uplink_mbyte_s=None,
        downlink_mbyte_s=None,
        peers={f"node{n}": Peer(f"10.77.0.1{n}", mac.format(n)) for n in peers},
        routes={},
        isolated=False,
        links=links,
        origin={},
    )
    return plain._replace(**changes)
