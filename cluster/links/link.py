"""Links, drawn from a profile and a seed; paths over several of them; uplinks and downlinks.

    profile x topology x seed  ->  the same links, always

Each value of each link is drawn independently from (seed, src, dst, field): another node, or another profile, does
not change the other draws. A link that is slow in one profile is slow in the next.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.base.spec import Node
from cluster.links.profiles import Profile, Range
from cluster.links.regions import pair_of
from cluster.links.topology import Topology, next_hops, trace_path
from protocol.link import LIMITS, Link, Pair, together_pct

MIN_TIMEOUT_S = 60.0
MOST_JITTER = (
    0.5  # of the delay: with more, many packets would have to arrive before they were sent
)
ROUNDING_MS = 0.001
MIN_BUFFER_MS = 10.0  # below this a queue holds too few frames for TCP to fill the link


def draw_links(
    profile: Profile, topology: Topology, nodes: Sequence[Node], seed: int, wire: str = "auto"
) -> tuple[Link, ...]:
    """Draw one link for each pair that the topology joins; the topology's values of a link override drawn ones.

    Raises:
        UsageError: the topology does not fit these nodes.
    """
    pairs = topology.pairs([node.name for node in nodes])
    here = {node.name: _region(profile, node.rank) for node in nodes}
    ranges = {(src, dst): _between(profile, here[src], here[dst]) for src, dst in pairs}
    delays = {
        pair: topology.values(*pair).get("delay_ms", _draw(delay_ms, seed, pair, "delay_ms"))
        for pair, (_, delay_ms) in ranges.items()
    }
    return tuple(
        _draw_link(profile, topology, pair, rate_mbyte_s, delays, seed, wire)
        for pair, (rate_mbyte_s, _) in ranges.items()
    )


def draw_access(
    profile: Profile, topology: Topology, node: Node, seed: int
) -> dict[str, float | None]:
    """Draw what a node can send, and receive, on all its links: uplink and downlink in MB/s; None: no limit."""
    ranges = {
        "uplink_mbyte_s": profile.uplink_mbyte_s,
        "downlink_mbyte_s": profile.downlink_mbyte_s,
    }
    drawn = {
        field: _draw(values, seed, (node.name,), field) if values else None
        for field, values in ranges.items()
    }
    return drawn | topology.access.get(node.name, {})


def checked_jitter(link: Link) -> Link:
    """Return the link, if its delay leaves room for its jitter: no packet arrives before it is sent.

    Raises:
        UsageError: it does not.
    """
    if link.jitter_ms > link.delay_ms * MOST_JITTER + ROUNDING_MS:
        raise UsageError(
            f"{link.src} -> {link.dst}: jitter_ms {link.jitter_ms:g} is more than half of delay_ms {link.delay_ms:g}",
            f"reduce jitter_ms to at most {link.delay_ms * MOST_JITTER:g}, or increase delay_ms",
        )
    return link


def round_trips_ms(links: Iterable[Link]) -> dict[Pair, float]:
    """Return the round trips that links ask for, both directions together, by pair of nodes in either order."""
    found: dict[Pair, float] = {}
    for link in links:
        there, back = link.ends, link.ends[::-1]
        found[there] = found[back] = found.get(there, 0.0) + link.delay_ms
    return found


@dataclass(frozen=True)
class Path:
    """The way from one node to another without a link between them: several links in a row."""

    src: str
    dst: str
    links: tuple[Link, ...]

    @property
    def via(self) -> tuple[str, ...]:
        """The nodes between."""
        return tuple(link.dst for link in self.links[:-1])

    def end_to_end(self) -> Link:
        """Return the path as one link: the slowest rate, and all delays, buffers, jitter and impairments combined."""
        return Link(
            src=self.src,
            dst=self.dst,
            rate_mbyte_s=min(link.rate_mbyte_s for link in self.links),
            delay_ms=sum(link.delay_ms for link in self.links),
            jitter_ms=math.hypot(*(link.jitter_ms for link in self.links)),
            loss_pct=together_pct([link.loss_pct for link in self.links]),
            buffer_ms=sum(link.buffer_ms for link in self.links),
            wire=self.links[0].wire,
            loss_burst=self._loss_burst(),
            duplicate_pct=self._duplicate_pct(),
            corrupt_pct=together_pct([link.corrupt_pct for link in self.links]),
            reorder_pct=together_pct([link.reorder_pct for link in self.links]),
        )

    def _duplicate_pct(self) -> float:
        """Return how many second copies there are of a hundred packets, as each link doubles copies too.

        No link may have more than `LIMITS` says; `cluster.contract.copies` has no such limit.
        """
        copies = math.prod(1 + link.duplicate_pct / 100 for link in self.links)
        return min(LIMITS["duplicate_pct"][1], 100 * (copies - 1))

    def _loss_burst(self) -> float:
        """Return the mean burst that a lost packet is part of: it determines how far chance moves the losses."""
        lost = sum(link.loss_pct for link in self.links)
        together = sum(link.loss_pct * link.loss_burst for link in self.links)
        return together / lost if lost else 1.0


def paths(links: Sequence[Link]) -> list[Path]:
    """Return the path of every directed pair that has no link of its own, along the routes that the nodes get."""
    by_pair = {(link.src, link.dst): link for link in links}
    names = list(dict.fromkeys(link.src for link in links))
    if len(by_pair) == len(names) * (len(names) - 1):
        return []
    hops = next_hops(by_pair, names)
    return [
        Path(src, dst, tuple(by_pair[pair] for pair in trace_path(hops, src, dst)))
        for src, dst in hops
        if (src, dst) not in by_pair
    ]


def collective_timeout_s(links: Sequence[Link], size: int, tensor_bytes: float = 16e6) -> float:
    """Return how long a collective may take before it counts as hung: ten times its worst case, at least a minute.

    The worst case is the alpha-beta bound of a ring all-reduce, 2(N-1) hops of delay and 1/N of the bytes each, at
    the slowest rate and the longest delay of all links (reference: Thakur et al., 2005), for a tensor of
    `tensor_bytes`. If neighbours in the ring have no link, the longest delay is that of the longest path.
    """
    if not links:
        return MIN_TIMEOUT_S
    all_hops = [(link,) for link in links] + [path.links for path in paths(links)]
    delay_s = max(sum(link.delay_ms + link.buffer_ms for link in hops) for hops in all_hops) / 1000
    slowest_byte_s = min(link.rate_mbyte_s for link in links) * 1e6
    worst_s = 2 * (size - 1) * (delay_s + tensor_bytes / size / slowest_byte_s)
    return max(MIN_TIMEOUT_S, 10 * worst_s)


def _draw_link(
    profile: Profile,
    topology: Topology,
    pair: Pair,
    rate_mbyte_s: Range,
    delays: dict[Pair, float],
    seed: int,
    wire: str,
) -> Link:
    delay_ms = delays[pair]
    jitter_pct = _draw(profile.jitter_pct, seed, pair, "jitter_pct")
    drawn = {
        "rate_mbyte_s": _draw(rate_mbyte_s, seed, pair, "rate_mbyte_s"),
        "delay_ms": delay_ms,
        "jitter_ms": round(delay_ms * jitter_pct / 100, 3),
        "buffer_ms": _buffer_ms(profile, pair, delays, seed),
    }
    for field in ("loss_pct", "loss_burst", "duplicate_pct", "corrupt_pct", "reorder_pct"):
        drawn[field] = _draw(getattr(profile, field), seed, pair, field)
    values = drawn | topology.values(*pair)
    link = Link(
        *pair,
        rate_mbyte_s=values["rate_mbyte_s"],
        delay_ms=values["delay_ms"],
        jitter_ms=values["jitter_ms"],
        loss_pct=values["loss_pct"],
        buffer_ms=values["buffer_ms"],
        wire=wire,
        loss_burst=values["loss_burst"],
        duplicate_pct=values["duplicate_pct"],
        corrupt_pct=values["corrupt_pct"],
        reorder_pct=values["reorder_pct"],
        distribution=profile.distribution,
    )
    return checked_jitter(link)


def _buffer_ms(profile: Profile, pair: Pair, delays: dict[Pair, float], seed: int) -> float:
    if profile.buffer_ms is not None:
        return _draw(profile.buffer_ms, seed, pair, "buffer_ms")
    return round(max(MIN_BUFFER_MS, delays[pair] + delays[pair[1], pair[0]]), 3)


def _region(profile: Profile, rank: int) -> str:
    return profile.regions[rank % len(profile.regions)] if profile.regions else ""


def _between(profile: Profile, here: str, there: str) -> tuple[Range, Range]:
    """Return rate and one-way delay between two regions, as ranges of one value; within a region the profile's own."""
    pair = pair_of(profile.between, here, there)
    if pair is None:
        return profile.rate_mbyte_s, profile.delay_ms
    return (pair.rate_mbyte_s, pair.rate_mbyte_s), (pair.rtt_ms / 2, pair.rtt_ms / 2)


def _draw(values: Range, seed: int, place: tuple[str, ...], field: str) -> float:
    """Draw uniformly; random.Random hashes the text with SHA-512, the same on every machine."""
    stream = random.Random("/".join((str(seed), *place, field)))
    return round(stream.uniform(*values), 4)
