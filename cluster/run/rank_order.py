"""The order in which nodes get their ranks, if the user asks for another one than the nodes' own. Pure.

gloo's ring follows the ranks, so their order decides which links an all-reduce uses (cluster.accounting.ring_order).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.accounting.ring_order import EXACT, best_order
from cluster.accounting.routes import make_network
from cluster.base.errors import UsageError, shown
from cluster.shaping.link_state import LinkState

BEST = "best"
# The all-reduce of the network for Fashion-MNIST; the size for another task is unknown before it runs.
STANDARD_BYTES = 4_799_528


@dataclass(frozen=True)
class RankOrder:
    """The nodes in the order of their ranks.

    Attributes:
        nodes: names of the nodes; the first one has rank 0.
        words: how the order was found, for the user; '' if it was given.
    """

    nodes: tuple[str, ...]
    words: str = ""


def resolve_rank_order(
    asked: str | None, nodes: Sequence[str], link_state: LinkState, ranks_a_node: int = 1
) -> RankOrder:
    """Return the order of ranks.

    Args:
        asked: node1,node3,node2 or 'best'; None: the nodes' own order.
        nodes: all nodes, in their own order.
        link_state: the links in force, which decide the best order.
        ranks_a_node: number of ranks on each node.

    Raises:
        UsageError: not every node is named exactly once, rank 0 would not be on the rendezvous node, or 'best' is asked
            for although no links are shaped.
    """
    if asked is None:
        return RankOrder(tuple(nodes))
    if asked == BEST:
        return _best(nodes, link_state, ranks_a_node)
    return RankOrder(parse_rank_order(asked, nodes))


def parse_rank_order(text: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Parse an order such as node1,node3,node2; raises like `resolve_rank_order`."""
    order = tuple(text.split(","))
    if sorted(order) != sorted(nodes):
        raise UsageError(
            f"--rank-order {shown(text)} does not name each of {len(nodes)} nodes once",
            f"--rank-order {','.join(nodes)}, in any order that begins with {nodes[0]}; or best",
        )
    if order[0] != nodes[0]:
        raise UsageError(
            f"--rank-order {shown(text)}: rank 0 stays on {nodes[0]}, where the rendezvous is",
            f"an order that begins with {nodes[0]}",
        )
    return order


def check_rank_order(asked: str | None, nodes: Sequence[str]) -> None:
    """Check a requested order before there are links; raises like `resolve_rank_order`."""
    if asked not in (None, BEST):
        parse_rank_order(asked, nodes)


def _best(nodes: Sequence[str], link_state: LinkState, ranks_a_node: int) -> RankOrder:
    if not link_state.links:
        raise UsageError(
            "--rank-order best: no links are shaped, so no order is better than another",
            "--profile NAME, or name the nodes in order",
        )
    limits = {"uplink": link_state.uplinks, "downlink": link_state.downlinks}
    isolated = link_state.isolated
    network = make_network(list(nodes), link_state.links, limits, link_state.mtu, isolated=isolated)
    found = best_order(network, len(nodes), STANDARD_BYTES, ranks_a_node)
    if math.isinf(found.seconds):
        return RankOrder(
            tuple(nodes), "rank order as the nodes are: no ring goes round these links"
        )
    order = tuple(nodes[number] for number in found.order)
    what = f"an all-reduce of {STANDARD_BYTES / 1e6:.1f} MB"
    said = f"rank order {','.join(order)}: {what} takes {found.seconds:.2f} s by the links as asked"
    if order != tuple(nodes) and math.isfinite(found.before_s):
        said += f", {found.before_s:.2f} s in the nodes' own order"
    if not found.is_proved:
        why = "" if len(nodes) > EXACT else ": the search came to its limit"
        said += f" (an order that is better still was not ruled out{why})"
    return RankOrder(order, said)
