"""The underlay: the hosts' own network, beneath the links of a cluster on several hosts. Pure values.

Its delay is part of every link between two hosts: the nodes add only the rest. So a link can have no less delay, and no
higher rate, than the underlay.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.base.errors import UsageError
from cluster.links.expected import SEEN_DELAY_MS, Expected, payload_share
from cluster.links.link import MOST_JITTER, ROUNDING_MS
from protocol.link import Link, Pair
from protocol.node_plan import NodePlan
from protocol.reader import LARGEST

# One way. Twice this, for each link of a path, must fit into the contract's tolerance of a round trip, 0.3 ms + 1 %.
SPARE_MS = 0.05
# What an early packet skips is the rest of the delay. The contract tells early packets by half of the delay, and looks
# for them on links of SEEN_DELAY_MS and more.
SKIPPED_SHARE = 0.75
# A busy host may measure this much of the underlay's rate. What is missing of a link's rate is for the contract to say.
RATE_SHARE = 0.9
MTU = 1450  # of Docker's overlay: VXLAN's headers need 50 of 1500 bytes
MOST_NAME = 255


@dataclass(frozen=True)
class HostPath:
    """The measurement of the underlay from one host to another.

    Attributes:
        round_trip_ms: the first decile of round trips over the idle network.
        goodput_mbyte_s: payload of one TCP connection while another fills the opposite direction.
    """

    round_trip_ms: float
    goodput_mbyte_s: float


@dataclass(frozen=True)
class Underlay:
    """The network between the hosts of a cluster; empty if the cluster has only one.

    Attributes:
        hosts: node -> its host.
        paths: the measurements, by the hosts where they start and end.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[Pair, HostPath] = field(default_factory=dict)

    def hosts_of(self, ends: Pair) -> Pair:
        """Return the hosts of two nodes; '' for one that it does not know."""
        src, dst = ends
        return self.hosts.get(src, ""), self.hosts.get(dst, "")

    def path(self, ends: Pair) -> HostPath | None:
        """Return the network between two nodes; None if both are on one host, or if it was not measured."""
        return self.paths.get(self.hosts_of(ends))

    def delay_ms(self, ends: Pair) -> float:
        """Return its one-way delay between two nodes: half of the round trip, as hosts have no common clock."""
        path = self.path(ends)
        return path.round_trip_ms / 2 if path else 0.0

    def delays_ms(self, plan: NodePlan) -> dict[str, float]:
        """Return its one-way delay between a node and each of its peers on other hosts, by peer."""
        pairs = ((peer, plan.node) for peer in plan.peers)
        return {pair[0]: self.delay_ms(pair) for pair in pairs if self.path(pair)}

    def unmeasured(self) -> list[Pair]:
        """Return the pairs of hosts that both have nodes, but no measurement; each pair once."""
        names = list(dict.fromkeys(self.hosts.values()))
        return [
            (low, high)
            for place, low in enumerate(names)
            for high in names[place + 1 :]
            if (low, high) not in self.paths
        ]

    def checked(self, link: Link) -> Link:
        """Return the link, if it asks for no less delay, and no higher rate, than the underlay has.

        Args:
            link: with the rate that its nodes' uplink and downlink leave it.

        Raises:
            UsageError: it does; names the link, the hosts and the figures.
        """
        path = self.path(link.ends)
        if path is not None:
            between = "host {} and host {}".format(*self.hosts_of(link.ends))
            _check_delay(link, path.round_trip_ms / 2, between)
            _check_rate(link, path.goodput_mbyte_s, between)
        return link

    def document(self) -> dict[str, object]:
        """Return it as JSON values; {} if it is empty."""
        if not self.hosts:
            return {}
        paths = [[*ends, p.round_trip_ms, p.goodput_mbyte_s] for ends, p in self.paths.items()]
        return {"hosts": dict(self.hosts), "paths": paths}

    @classmethod
    def from_document(cls, document: object) -> "Underlay":
        """Return the underlay of such a document.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it is none.
        """
        if not isinstance(document, dict):
            raise TypeError(f"underlay {document!r:.100}")
        if not document:
            return cls()
        hosts = {_name(node): _name(host) for node, host in document["hosts"].items()}
        paths = {
            (_name(src), _name(dst)): HostPath(_number(round_trip_ms), _number(goodput_mbyte_s))
            for src, dst, round_trip_ms, goodput_mbyte_s in document["paths"]
        }
        return cls(hosts, paths)


def over(plan: NodePlan, underlay: Underlay) -> NodePlan:
    """Return the same plan over another underlay; the links stay as asked."""
    origin = origin_over(plan.origin, underlay)
    return plan._replace(underlay_ms=underlay.delays_ms(plan), origin=origin)


def origin_over(origin: Mapping[str, object], underlay: Underlay) -> dict[str, object]:
    """Return a plan's origin with this underlay, and no other."""
    drawn = {key: value for key, value in origin.items() if key != "underlay"}
    document = underlay.document()
    return drawn | {"underlay": document} if document else drawn


def underlay_of(plans: Mapping[str, NodePlan]) -> Underlay:
    """Return the underlay of plans in force, as the first of them has it; its document must have been checked."""
    first = next(iter(plans.values()), None)
    return Underlay.from_document(first.origin.get("underlay", {}) if first else {})


def check_links(underlay: Underlay, asked: Expected) -> None:
    """Refuse links that ask for more than the underlay has; raises as `Underlay.checked`."""
    for link in asked.links if underlay.hosts else ():
        underlay.checked(asked.as_limited(link))


def underlay_words(underlay: Underlay, asked: Expected) -> list[str]:
    """Return a sentence on each direction between two hosts: what it takes and carries, and what its links ask for."""
    return [
        f"host {src} -> {dst}: the network takes {_figure(path.round_trip_ms)} ms for a round trip (part of what links "
        f"ask) and carries {_figure(path.goodput_mbyte_s)} MB/s; its links may send {_figure(most)} MB/s together"
        + (", which is more" if most > path.goodput_mbyte_s else "")
        for (src, dst), (path, most) in _most_between(underlay, asked).items()
    ]


def underlay_notes(underlay: Underlay, asked: Expected) -> list[str]:
    """Return a contract's notes: the round trips beneath its links, and hosts whose links may ask for too much."""
    between = _most_between(underlay, asked)
    round_trips_ms = sorted(path.round_trip_ms for path, _ in between.values())
    if not round_trips_ms:
        return []
    low, high = _figure(round_trips_ms[0]), _figure(round_trips_ms[-1])
    span = low if low == high else f"{low} to {high}"
    crowded = {ends: (p, most) for ends, (p, most) in between.items() if most > p.goodput_mbyte_s}
    return [f"of the round trips between hosts, their network takes {span} ms"] + [
        f"host {src} -> {dst} carries {_figure(path.goodput_mbyte_s)} MB/s, and its links may send {_figure(most)} "
        "together"
        for (src, dst), (path, most) in crowded.items()
    ]


def _most_between(underlay: Underlay, asked: Expected) -> dict[Pair, tuple[HostPath, float]]:
    """Return for each direction between hosts that has links: its measurement, and the most that its links send."""
    links: dict[Pair, list[Link]] = defaultdict(list)
    for link in asked.links if underlay.hosts else ():
        links[underlay.hosts_of(link.ends)].append(asked.as_limited(link))
    return {
        ends: (path, _together_mbyte_s(links[ends], asked))
        for ends, path in underlay.paths.items()
        if ends in links
    }


def _together_mbyte_s(links: Iterable[Link], asked: Expected) -> float:
    """Return what links send at once: of each node no more than its uplink, to each no more than its downlink."""
    sent: dict[str, float] = defaultdict(float)
    received: dict[str, float] = defaultdict(float)
    for link in links:
        sent[link.src] += link.rate_mbyte_s
        received[link.dst] += link.rate_mbyte_s
    return min(
        sum(min(asked.uplinks.get(node, math.inf), rate) for node, rate in sent.items()),
        sum(min(asked.downlinks.get(node, math.inf), rate) for node, rate in received.items()),
    )


def _check_delay(link: Link, underlay_ms: float, between: str) -> None:
    """Refuse a delay that leaves too little beyond the underlay's; raises UsageError."""
    least_ms = _least_rest_ms(link)
    if link.delay_ms - underlay_ms >= least_ms - ROUNDING_MS:
        return
    also = {"jitter_ms": link.jitter_ms, "reorder_pct": link.reorder_pct}
    with_ = " and ".join(f"{name} {value:g}" for name, value in also.items() if value)
    raise UsageError(
        f"{link.src} -> {link.dst}: delay_ms {link.delay_ms:g}{' with ' if with_ else ''}{with_} is too short: the "
        f"network between {between} takes {_figure(underlay_ms)} ms of it",
        "increase delay_ms"
        + (
            f", reduce {' or '.join(name for name, value in also.items() if value)}"
            if with_
            else f" (at least {math.ceil(100 * underlay_ms) / 100:g})"
        )
        + ", or place both nodes on one host (`nodes` in the hosts file)",
    )


def _least_rest_ms(link: Link) -> float:
    """Return how much of a link's delay must be left beyond the underlay."""
    least_ms = -SPARE_MS
    if link.jitter_ms:
        least_ms = link.jitter_ms / MOST_JITTER
    if link.reorder_pct:
        seen_ms = min(link.delay_ms, SEEN_DELAY_MS)
        least_ms = max(least_ms, SKIPPED_SHARE * link.delay_ms, seen_ms)
    return least_ms


def _check_rate(link: Link, goodput_mbyte_s: float, between: str) -> None:
    """Refuse a rate that the underlay does not carry; raises UsageError."""
    if goodput_mbyte_s < RATE_SHARE * link.rate_mbyte_s * payload_share(MTU):
        raise UsageError(
            f"{link.src} -> {link.dst}: rate_mbyte_s {link.rate_mbyte_s:g} is more than the network between {between} "
            f"carries: {_figure(goodput_mbyte_s)} MB/s of payload were measured",
            "reduce rate_mbyte_s, or place both nodes on one host (`nodes` in the hosts file); if the hosts were busy, "
            "or the nodes short of processors, when that was measured, measure again: python -m cluster.down, then up",
        )


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_NAME:
        raise ValueError(f"{value!r:.100} is no name")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise ValueError(f"{value!r:.100} is no measurement")
    return value
