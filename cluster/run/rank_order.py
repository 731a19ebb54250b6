"""Which node has which ranks, where somebody asks for another order than the nodes' own. Pure.

gloo's ring goes by rank, so the order of ranks decides which links an all-reduce takes (cluster.accounting.ring_order).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.accounting.ring_order import EXACT, best_order
from cluster.accounting.routes import make_network
from cluster.base.errors import UsageError, shown
from cluster.shaping.link_state import LinkState

BEST = "best"
STANDARD_BYTES = (
    4_799_528  # of an all-reduce of Fashion-MNIST's network: nobody knows a task's before it runs
)


@dataclass(frozen=True)
class RankOrder:
    """Nodes as their ranks follow one another.

    Attributes:
        nodes: by name; the first one has rank 0.
        words: how it was found, for readers; '' where it was said.
    """

    nodes: tuple[str, ...]
    words: str = ""


def resolve_rank_order(
    asked: str | None, nodes: Sequence[str], link_state: LinkState, ranks_a_node: int = 1
) -> RankOrder:
    """The order of ranks.

    Args:
        asked: node1,node3,node2 or 'best'; None: as the nodes are.
        nodes: all there are, in their order.
        link_state: the links in force, by which the best order is found.
        ranks_a_node: how many each has.

    Raises:
        UsageError: not each node is named once, rank 0 would not be where the rendezvous is, or there are no links by
            which one order could be better than another.
    """
    if asked is None:
        return RankOrder(tuple(nodes))
    if asked == BEST:
        return _best(nodes, link_state, ranks_a_node)
    return RankOrder(parse_rank_order(asked, nodes))


def parse_rank_order(text: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """node1,node3,node2 as nodes; raises as `resolve_rank_order`."""
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
    """See that it can be, before there are links; raises as `resolve_rank_order`."""
    if asked not in (None, BEST):
        parse_rank_order(asked, nodes)


def _best(nodes: Sequence[str], link_state: LinkState, ranks_a_node: int) -> RankOrder:
    if not link_state.links:
        raise UsageError(
            "--rank-order best: no links are shaped, so no order is better than another",
            "--profile NAME, or an order by name",
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
