"""The underlay: the hosts' own network, beneath the links of a cluster on several hosts. Pure values.

Its delay is part of every link between two hosts: the nodes add only the rest. So a link can have no less delay, and no
higher rate, than the underlay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.base.errors import UsageError
from cluster.links.expected import ETHERNET_BYTES, TCP_IP_BYTES
from cluster.links.link import MOST_JITTER, ROUNDING_MS
from protocol.link import Link, Pair

# One way. So much too long in both directions is still within the contract's tolerance of a round trip, 0.3 ms + 1 %.
SPARE_MS = 0.15
# A busy host may measure this much of the underlay's rate. What is missing of a link's rate is for the contract to say.
RATE_SHARE = 0.9
MTU = 1450  # of Docker's overlay: VXLAN's headers need 50 of 1500 bytes
PAYLOAD_SHARE = (MTU - TCP_IP_BYTES) / (MTU + ETHERNET_BYTES)
MOST_NAME, MOST_NUMBER = 255, 1e6


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

    def path(self, ends: Pair) -> HostPath | None:
        """Return the network between two nodes; None if both are on one host, or if it was not measured."""
        src, dst = ends
        return self.paths.get((self.hosts.get(src, ""), self.hosts.get(dst, "")))

    def delay_ms(self, ends: Pair) -> float:
        """Return its one-way delay between two nodes: half of the round trip, as hosts have no common clock."""
        path = self.path(ends)
        return path.round_trip_ms / 2 if path else 0.0

    def unmeasured(self) -> list[Pair]:
        """Return the pairs of hosts that both have nodes, but no measurement; each pair once."""
        names = list(dict.fromkeys(self.hosts.values()))
        return [
            (low, high)
            for place, low in enumerate(names)
            for high in names[place + 1 :]
            if (low, high) not in self.paths
        ]

    def check(self, links: Iterable[Link]) -> None:
        """Refuse links that ask for less delay, or a higher rate, than the underlay has.

        Raises:
            UsageError: names the link, the hosts and the figures.
        """
        for link in links:
            path = self.path(link.ends)
            if path is None:
                continue
            checked_delay(link, path.round_trip_ms / 2)
            goodput_mbyte_s = link.rate_mbyte_s * PAYLOAD_SHARE
            if path.goodput_mbyte_s < RATE_SHARE * goodput_mbyte_s:
                src, dst = (self.hosts[node] for node in link.ends)
                raise UsageError(
                    f"{link.src} -> {link.dst}: rate_mbyte_s {link.rate_mbyte_s:g} is more than the network from "
                    f"host {src} to host {dst} carries: {path.goodput_mbyte_s:.3g} MB/s of payload were measured",
                    "a lower rate between hosts, or both nodes on one host (`nodes` in the hosts file); if the hosts "
                    "were busy when the cluster was brought up: down and up measure again",
                )

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


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_NAME:
        raise ValueError(f"{value!r:.100} is no name")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < MOST_NUMBER:
        raise ValueError(f"{value!r:.100} is no measurement")
    return value


def checked_delay(link: Link, underlay_ms: float) -> Link:
    """Return the link, if its delay, and what varies of it, is no less than the underlay's.

    Raises:
        UsageError: it is less.
    """
    rest_ms = link.delay_ms - underlay_ms
    least_ms = link.jitter_ms / MOST_JITTER if link.jitter_ms else -SPARE_MS
    if underlay_ms and rest_ms < least_ms - ROUNDING_MS:
        jitter = f" with jitter_ms {link.jitter_ms:g}" if link.jitter_ms else ""
        raise UsageError(
            f"{link.src} -> {link.dst}: delay_ms {link.delay_ms:g}{jitter} is too short: the network between their "
            f"hosts takes {underlay_ms:.3g} ms",
            f"a delay_ms of at least {max(least_ms, 0.0) + underlay_ms:.3g}, or both nodes on one host",
        )
    return link


def underlay_words(underlay: Underlay, links: Iterable[Link]) -> list[str]:
    """Return a sentence on each pair of hosts: what the underlay takes and carries, and what the links ask of it."""
    links, said = list(links), []
    for (src, dst), path in underlay.paths.items():
        between = [link for link in links if underlay.path(link.ends) is path]
        if not between:
            continue
        asked_mbyte_s = sum(link.rate_mbyte_s for link in between)
        more = asked_mbyte_s > path.goodput_mbyte_s
        said.append(
            f"host {src} -> {dst}: the network takes {path.round_trip_ms:.3g} ms for a round trip (part of what the "
            f"links ask) and carries {path.goodput_mbyte_s:.3g} MB/s; its {len(between)} links may send "
            f"{asked_mbyte_s:.3g} MB/s at once" + (", which is more" if more else "")
        )
    return said
