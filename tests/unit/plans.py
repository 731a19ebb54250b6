"""A link plan of node1 for tests that need one and care about little of it."""

from protocol.node_plan import NodePlan, Peer


def node_plan(peers, links, mac="02:67:77:00:00:0{}", **changes):
    """node1's plan with peers of these numbers and these links; what is not said is as plain as can be."""
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
