"""Lower bounds on the time of gloo's collectives: the alpha-beta model (alpha: delay, beta: time per byte). Pure.

Another algorithm may be quicker on the same links; `links_bound` has a bound for all algorithms. This one follows gloo:
its ring in rank order, which uses one link of each node, and its window.

Thakur, Rabenseifner and Gropp (2005) give the model and the costs of rings, 2(N-1)·alpha + 2(N-1)/N · S·beta for an
all-reduce. Here links differ, messages are pipelined, and ranks arrive at different times. So the bound is not that
formula but its recurrence, message by message: a rank sends its next message when the link has taken the one before and
what it depends on has arrived. gloo keeps two messages in flight: a message depends on the last but one that arrived.
With equal links, simultaneous arrivals and two small messages a hop, which follow each other at once, it equals the
formula; with one message a hop half as many delays count, and where bytes take longer than delays only one does. On
long fast links that window, and not the link, is the limit.

Shared carriers (a link that several paths use, a node's uplink or downlink) carry no more than their rate: that is a
second bound, and the larger one counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster.accounting.collectives import Collective, Part
from cluster.links.expected import IN_THE_AIR

RINGS = ("all_reduce", "all_gather")


@dataclass(frozen=True)
class RankRoute:
    """The route from one rank to another.

    Attributes:
        delay_s: of all links on the route.
        byte_s: payload rate of the slowest carrier, in bytes a second.
        carriers: the names of all links, uplinks and downlinks on the route.
    """

    delay_s: float
    byte_s: float
    carriers: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """Routes and rates between the ranks.

    Attributes:
        routes: by (sender, receiver).
        byte_s: payload bytes a second of each carrier.
        source: the source of the figures: 'measured' or 'asked'.
        delay_s: of each link.
        nodes: the node of each rank, by rank; empty if unknown.
    """

    routes: Mapping[tuple[int, int], RankRoute]
    byte_s: Mapping[str, float]
    source: str
    delay_s: Mapping[str, float] = field(default_factory=dict)
    nodes: Sequence[str] = ()


def bound_s(collective: Collective, network: Network, *, sharing: bool = True) -> float | None:
    """Return the least time from the last arrival until gloo can be done, in seconds; 0: at once.

    Only the ranks of `parts` must be done. Returns None for a rank that only sends, and if a route does not exist.

    Args:
        collective: the transfers to make.
        network: links.
        sharing: whether shared carriers count.
    """
    flows = flows_of(collective)
    if not flows or any((part.rank, peer) not in network.routes for part, peer in flows):
        return None
    in_ring = collective.key[0] in RINGS
    ends = _ring_ends(collective.parts, network) if in_ring else _direct_ends(flows, network)
    load = heaviest_load(flows, network) if sharing else None
    shared = [load.end] if load else []
    return max(0.0, max([*ends, *shared]) - collective.complete_at)


def flows_of(collective: Collective) -> list[tuple[Part, int]]:
    """Return the sender's part and the receiver of each transfer that must arrive."""
    if collective.key[0] != "exchange":
        return [(part, peer) for part in collective.parts for peer in part.to]
    own = collective.parts[0]
    return [(part, own.rank) for part in collective.others if own.rank in part.to]


def sends_of(collective: Collective) -> list[tuple[Part, int]]:
    """Return the part and the receiver of each transfer that a rank of an exchange makes to others."""
    if collective.key[0] != "exchange":
        return []
    own = collective.parts[0]
    return [(own, other.rank) for other in collective.others if other.rank in own.to]


def are_routed(flows: Sequence[tuple[Part, int]], network: Network) -> bool:
    """Return whether the network has routes for all of these transfers, and back."""
    pairs = ((part.rank, peer) for part, peer in flows)
    return all(a_b in network.routes and a_b[::-1] in network.routes for a_b in pairs)


def _direct_ends(flows: Sequence[tuple[Part, int]], network: Network) -> list[float]:
    """Return when each of several independent transfers is done."""
    ends = []
    for part, peer in flows:
        route = network.routes[part.rank, peer]
        ends.append(part.entered + part.to[peer] / route.byte_s + route.delay_s)
    return ends


def _ring_ends(parts: Sequence[Part], network: Network) -> list[float]:
    """Return when each rank of a ring has received its last message."""
    after = {part.rank: next(iter(part.to)) for part in parts}
    routes = {rank: network.routes[rank, peer] for rank, peer in after.items()}
    free = {part.rank: part.entered for part in parts}  # when its link can take the next message
    heard = {part.rank: [part.entered] * IN_THE_AIR for part in parts}
    sizes = {part.rank: part.to[after[part.rank]] / part.messages for part in parts}
    for number in range(max(part.messages for part in parts)):
        for rank, route in routes.items():
            began = max(free[rank], heard[rank][number])
            free[rank] = began + sizes[rank] / route.byte_s
        for rank, route in routes.items():
            heard[after[rank]].append(free[rank] + route.delay_s)
    return [times[-1] for times in heard.values()]


@dataclass(frozen=True)
class Load:
    """The load of one carrier in a collective.

    Attributes:
        carrier: its name.
        first: the sender that arrived first.
        peer: the rank that it sends to.
        sending_s: the time to send all bytes of all transfers.
        delay_s: the shortest delay of any of their routes.
    """

    carrier: str
    first: Part
    peer: int
    sending_s: float
    delay_s: float

    @property
    def end(self) -> float:
        """The earliest time at which the last byte can have arrived, Unix time."""
        return self.first.entered + self.sending_s + self.delay_s


def heaviest_load(flows: Sequence[tuple[Part, int]], network: Network) -> Load | None:
    """Return the load that ends last; None if all transfers stay within nodes."""
    loads: dict[str, list[tuple[Part, int]]] = {}
    for part, peer in flows:
        for carrier in network.routes[part.rank, peer].carriers:
            loads.setdefault(carrier, []).append((part, peer))
    found = (_load(carrier, load, network) for carrier, load in loads.items())
    return max(found, key=lambda load: load.end, default=None)


def _load(carrier: str, flows: Sequence[tuple[Part, int]], network: Network) -> Load:
    first, peer = min(flows, key=lambda flow: flow[0].entered)
    sending_s = sum(part.to[to] for part, to in flows) / network.byte_s[carrier]
    delay_s = min(network.routes[part.rank, to].delay_s for part, to in flows)
    return Load(carrier, first, peer, sending_s, delay_s)
