"""The order of nodes in which the ring of an all-reduce is quickest, from the figures of their links. Pure.

gloo's ring is the rank order: each rank sends to the one before it, and is asked for data by it, so both directions
between neighbours count. The search minimises the time of gloo's all-reduce (gloo_timing.py) if all ranks arrive at
once. Rank 0 stays where it is.

Up to EXACT nodes by branch and bound: an order is no quicker than a ring in which only one of its links takes any time,
for each of its links, and in most networks it is as slow as the slowest of those. So the search usually ends with a
proof of optimality; if it reaches its limit, it reports that it has none. With more nodes, and as the start of branch
and bound: the nearest neighbour, then exchanges of two links (2-opt, Croes 1958), first by the slowest of such rings,
then by the whole all-reduce as often as the budget allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from cluster.accounting.bounds import Network, RankRoute, flows_of, heaviest_load
from cluster.accounting.collectives import Collective, Part
from cluster.accounting.gloo_timing import gloo_end

EXACT = 12  # nodes
MOST_STEPS = 1_000_000  # messages of all ranks that are replayed: a second or two
MOST_BRANCHES = 200_000
MOST_ROUNDS = 5  # of exchanges by the bound
SEGMENT_BYTES = 1 << 20  # the largest of gloo's all-reduce
ELEMENT_BYTES = 4
FREE = RankRoute(delay_s=0.0, byte_s=math.inf, carriers=())
NEXT_TO_NOTHING = 1e-9  # relative: a smaller difference in time does not count
Order = tuple[int, ...]


@dataclass(frozen=True)
class BestOrder:
    """The result of a search.

    Attributes:
        order: node numbers, in rank order.
        seconds: of an all-reduce in this order.
        before_s: of one in the original order.
        is_proved: whether it is proved that no order is quicker.
    """

    order: Order
    seconds: float
    before_s: float
    is_proved: bool


def best_order(network: Network, size: int, size_bytes: int, ranks_a_node: int = 1) -> BestOrder:
    """Return the order in which an all-reduce is quickest; the original one if none is quicker.

    Args:
        network: routes between nodes, by number from 0.
        size: the number of nodes.
        size_bytes: of the tensor.
        ranks_a_node: the number of consecutive ranks on each node.
    """
    usual = tuple(range(size))
    search = _Search(network, size, size_bytes, ranks_a_node)
    before_s = search.seconds(usual)
    search.offer(usual, before_s)
    if size <= 2:
        return BestOrder(usual, before_s, before_s, is_proved=True)
    search.exchange(search.descend(search.nearest()))
    is_proved = search.branch((0,), 0.0) if size <= EXACT else search.is_at_bound()
    return BestOrder(search.order, search.best_s, before_s, is_proved)


def order_seconds(
    network: Network, order: Sequence[int], size_bytes: int, ranks_a_node: int = 1
) -> float:
    """Return the seconds of an all-reduce with nodes in this order; infinity if neighbours cannot reach each other."""
    count = len(order) * ranks_a_node
    if count < 2:
        return 0.0
    homes = [order[rank // ranks_a_node] for rank in range(count)]
    pairs = [pair for r in range(count) for pair in ((r, (r - 1) % count), ((r - 1) % count, r))]
    routes = {}
    for a, b in pairs:
        if homes[a] == homes[b]:
            routes[a, b] = FREE
        elif (homes[a], homes[b]) not in network.routes:
            return math.inf
        else:
            routes[a, b] = network.routes[homes[a], homes[b]]
    return _all_reduce_s(Network(routes, network.byte_s, network.source), count, size_bytes)


def ring_messages(count: int, size_bytes: int) -> int:
    """Return the number of messages that each of `count` ranks sends in an all-reduce, as in gloo's allreduce.cc."""
    segments = max(-(-size_bytes // SEGMENT_BYTES), 2 * count)
    segments += -segments % count
    elements = -(-size_bytes // (segments * ELEMENT_BYTES)) if size_bytes else 1
    filled = -(-size_bytes // (max(1, elements) * ELEMENT_BYTES))
    return max(1, round(2 * (count - 1) * filled / count))


def _turn(order: Order, first: int, last: int) -> Order:
    """Reverse the part between two places, both included."""
    return order[:first] + order[first : last + 1][::-1] + order[last + 1 :]


def phase_s(messages: int, sending_s: float, delay_s: float, back_s: float) -> float:
    """Return the seconds of half of an all-reduce if only one link of the ring takes time.

    Two messages are in flight at a time. Either each pair takes a round trip and the sending of its first message, and
    the last of an even number its own sending; or the link is never idle.
    """
    if not messages:
        return 0.0
    turns_s = -(-messages // 2) * (back_s + sending_s + delay_s) + (1 - messages % 2) * sending_s
    return max(turns_s, back_s + messages * sending_s + delay_s)


def _all_reduce_s(network: Network, count: int, size_bytes: int) -> float:
    sent, messages = 2 * (count - 1) * size_bytes // count, ring_messages(count, size_bytes)
    parts = [_part(rank, (rank - 1) % count, sent, messages, size_bytes) for rank in range(count)]
    one = Collective(tuple(parts))
    end, load = gloo_end(one, network), heaviest_load(flows_of(one), network)
    return max(math.inf if end is None else end, load.end if load else 0.0)


def _part(rank: int, to: int, sent: int, messages: int, size_bytes: int) -> Part:
    return Part(
        rank=rank,
        step=1,
        kind="all_reduce",
        purpose="train",
        size=size_bytes,
        entered=0.0,
        ended=0.0,
        waited_s=0.0,
        hidden=False,
        to={to: sent},
        messages=messages,
        sources=(),
    )


@dataclass
class _Search:
    """A search for the best order, within a budget."""

    network: Network
    size: int
    size_bytes: int
    ranks_a_node: int
    order: Order = ()
    best_s: float = math.inf
    _steps: int = 0
    _branches: int = 0
    _known: dict[Order, float] = field(default_factory=dict)
    _alone: list[list[float]] = field(default_factory=list)
    _rest: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = range(self.size)
        self._alone = [[self._alone_s(a, b) if a != b else math.inf for b in nodes] for a in nodes]

    def seconds(self, order: Order) -> float:
        """Return the seconds of an all-reduce in this order; infinity if it has more messages than may be replayed."""
        if order not in self._known:
            count = self.size * self.ranks_a_node
            self._steps += count * ring_messages(count, self.size_bytes)
            if self._steps > MOST_STEPS:
                return math.inf
            self._known[order] = order_seconds(
                self.network, order, self.size_bytes, self.ranks_a_node
            )
        return self._known[order]

    def offer(self, order: Order, seconds: float) -> bool:
        """Keep an order if it is quicker than the best so far; return whether it is."""
        if seconds >= self.best_s * (1 - NEXT_TO_NOTHING) and self.order:
            return False
        self.order, self.best_s = order, seconds
        return True

    def nearest(self) -> Order:
        """Return the order that goes from each node to the one whose link takes least."""
        order, left = [0], set(range(1, self.size))
        while left:
            order.append(min(left, key=lambda node: (self._alone[node][order[-1]], node)))
            left.remove(order[-1])
        return tuple(order)

    def descend(self, order: Order) -> Order:
        """Reverse parts of an order as long as that lowers its bound, or else the sum of its links' own times."""
        cost = self._cost(order)
        for _ in range(MOST_ROUNDS):
            before = cost
            for first, last in combinations(range(1, self.size), 2):
                turned = _turn(order, first, last)
                if (lower := self._cost(turned)) < cost:
                    order, cost = turned, lower
            if cost == before:
                break
        return order

    def exchange(self, order: Order) -> None:
        """Reverse parts of the best order as long as the all-reduce itself becomes quicker and the budget allows."""
        self.offer(order, self.seconds(order))
        helps = True
        while helps and self._can_afford():
            helps = False
            for first, last in combinations(range(1, self.size), 2):
                turned = _turn(self.order, first, last)
                if self.bound_s(turned) < self.best_s and self._can_afford():
                    helps |= self.offer(turned, self.seconds(turned))

    def branch(self, begun: Order, at_least_s: float) -> bool:
        """Try all orders that begin with `begun`; return whether none that might be quicker was skipped."""
        if max(at_least_s, self.rest_s(begun)) >= self._enough_s:
            return True
        self._branches += 1
        if not self._can_afford() or self._branches > MOST_BRANCHES:
            return False
        if len(begun) == self.size:
            self.offer(begun, self.seconds(begun))
            return True
        last = begun[-1]
        left = sorted(set(range(self.size)) - set(begun), key=lambda node: self._alone[node][last])
        whole = [
            self.branch((*begun, node), max(at_least_s, self._alone[node][last])) for node in left
        ]
        return all(whole)

    def rest_s(self, begun: Order) -> float:
        """Return the least time of the slowest link still to come, by dynamic programming over sets of nodes.

        After Held and Karp (1962), who minimise sums.
        """
        return self._rest_of(sum(1 << node for node in begun), begun[-1])

    def _rest_of(self, there: int, last: int) -> float:
        if (there, last) not in self._rest:
            left = [node for node in range(self.size) if not there >> node & 1]
            ways = (
                max(self._alone[node][last], self._rest_of(there | 1 << node, node))
                for node in left
            )
            self._rest[there, last] = min(ways) if left else self._alone[0][last]
        return self._rest[there, last]

    def bound_s(self, order: Order) -> float:
        """Return a lower bound on an all-reduce in this order."""
        return self._cost(order)[0]

    def _cost(self, order: Order) -> tuple[float, float]:
        """Return the bound, and the sum of what each link takes by itself."""
        alone = [self._alone[node][order[at - 1]] for at, node in enumerate(order)]
        return max(alone), sum(alone)

    def is_at_bound(self) -> bool:
        """Return whether no order can be quicker: each node must send to some other, and receive from some other."""
        sends = max(min(row) for row in self._alone)
        hears = max(min(row[node] for row in self._alone) for node in range(self.size))
        return max(sends, hears) >= self._enough_s

    @property
    def _enough_s(self) -> float:
        """The bound from which on an order is not worth trying."""
        return self.best_s * (1 - NEXT_TO_NOTHING)

    def _can_afford(self) -> bool:
        return self._steps < MOST_STEPS

    def _alone_s(self, src: int, dst: int) -> float:
        """Return the seconds of a ring of as many ranks in which only one node's sending to another takes time."""
        there, back = (self.network.routes.get(pair) for pair in ((src, dst), (dst, src)))
        if there is None or back is None:
            return math.inf
        count = self.size * self.ranks_a_node
        messages = ring_messages(count, self.size_bytes)
        sent_bytes = 2 * (count - 1) * self.size_bytes // count
        sending_s = sent_bytes / messages / there.byte_s
        shares = (messages // 2 + messages % 2, messages // 2)
        return sum(phase_s(share, sending_s, there.delay_s, back.delay_s) for share in shares)
