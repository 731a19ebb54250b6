"""Lower bounds on the time of gloo's collectives: the alpha-beta model (alpha: delay, beta: time per byte). Pure.

Another algorithm may be quicker on the same links: `links_bound` has what none can beat. Here it is gloo's: its ring in
the order of ranks, which uses one link of each node, and its window.

Thakur, Rabenseifner and Gropp (2005) give the model and the costs of rings, 2(N-1)·alpha + 2(N-1)/N · S·beta for an
all-reduce. Links here are not alike, messages follow one another while the first are under way, and ranks come at
different times. So the bound is not that formula but its recurrence, message by message: a rank sends the next when
the link has taken the one before it and what it depends on has arrived. With links alike, all ranks there at once and
one message a hop it is the formula. gloo keeps two messages in the air: a message depends on the last but one that
arrived. On long fast links that window, and not the link, is what bounds.

Whatever packets share on their way (a link that several paths lead over, a node's uplink or downlink) carries no more
than its rate: that is a second bound, and the larger one counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster.accounting.collectives import Collective, Part
from cluster.links.expected import IN_THE_AIR

RINGS = ("all_reduce", "all_gather")


@dataclass(frozen=True)
class RankRoute:
    """What leads from one rank to another.

    Attributes:
        delay_s: of all links on the way.
        byte_s: payload bytes a second that the slowest of them takes.
        carriers: the names of all that carries the packets: links, uplinks, downlinks.
    """

    delay_s: float
    byte_s: float
    carriers: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """What is between the ranks.

    Attributes:
        routes: by sender and receiver.
        byte_s: payload bytes a second of each carrier.
        source: where the figures are from: 'measured' or 'asked'.
        delay_s: of each link.
        nodes: of each rank, by rank; empty where they are not known.
    """

    routes: Mapping[tuple[int, int], RankRoute]
    byte_s: Mapping[str, float]
    source: str
    delay_s: Mapping[str, float] = field(default_factory=dict)
    nodes: Sequence[str] = ()


def bound_s(collective: Collective, network: Network, *, sharing: bool = True) -> float | None:
    """Seconds from when the last rank has come until the last one that counts can be done by gloo's way; 0: at once.

    None for a rank that only sends, and where a route does not exist.

    Args:
        collective: what there is to carry.
        network: links.
        sharing: whether what is shared counts.
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
    """Senders and receivers of what must arrive."""
    if collective.key[0] != "exchange":
        return [(part, peer) for part in collective.parts for peer in part.to]
    own = collective.parts[0]
    return [(part, own.rank) for part in collective.others if own.rank in part.to]


def _direct_ends(flows: Sequence[tuple[Part, int]], network: Network) -> list[float]:
    """When each of some transfers is done that do not depend on one another."""
    ends = []
    for part, peer in flows:
        route = network.routes[part.rank, peer]
        ends.append(part.entered + part.to[peer] / route.byte_s + route.delay_s)
    return ends


def _ring_ends(parts: Sequence[Part], network: Network) -> list[float]:
    """When each rank of a ring has heard its last message."""
    after = {part.rank: next(iter(part.to)) for part in parts}
    routes = {rank: network.routes[rank, peer] for rank, peer in after.items()}
    free = {part.rank: part.entered for part in parts}  # when its link takes the next message
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
    """What one carrier has to take in a collective.

    Attributes:
        carrier: its name.
        first: the sender that came first.
        peer: to whom that one sends.
        sending_s: of all bytes together.
        delay_s: the shortest way of any of them.
    """

    carrier: str
    first: Part
    peer: int
    sending_s: float
    delay_s: float

    @property
    def end(self) -> float:
        """When the last byte can have come through, Unix time."""
        return self.first.entered + self.sending_s + self.delay_s


def heaviest_load(flows: Sequence[tuple[Part, int]], network: Network) -> Load | None:
    """Of what has most to carry; None where all stays within nodes."""
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
