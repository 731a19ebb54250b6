"""Expected measurements of a link, computed from what was asked: round trip, goodput, loss. Pure functions."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cluster.links.link import round_trips_ms
from protocol.link import Link, Pair

ETHERNET_BYTES = 14
IP_BYTES, UDP_BYTES = 20, 8
TCP_IP_BYTES = 52  # IPv4 20, TCP 20, timestamps 12
LOSS_BASED = ("cubic", "reno")  # congestion controls that take every lost packet for a full queue
MATHIS = 1.22  # sqrt(3/2): Mathis, Semke, Mahdavi, Ott (1997), one acknowledgement a packet
NOTED_SHARE = 0.9  # of a link's rate
SEGMENT_BYTES = 1 << 20  # of gloo's all-reduce, at most
IN_THE_AIR = 2  # messages of gloo's rings in flight
MANY_LOSSES = 1e5  # from here on their number is as good as normal
SEEN_DELAY_MS = 20.0  # on shorter links pings may be so far apart that none overtakes another
LOSS_CONFIDENCE = 0.999  # at 0.99, six links would raise a false alarm every sixteenth time


@dataclass(frozen=True)
class Access:
    """An uplink or downlink: what a node may send, or receive, on all its links together.

    Attributes:
        kind: uplink or downlink.
        node: the node that it limits.
        mbyte_s: the limit, in bytes on the wire.
        links: the links that share it and carry anything.
    """

    kind: str
    node: str
    mbyte_s: float
    links: tuple[Link, ...]

    def share_pct(self, link: Link) -> float:
        """Return how much of a link's traffic counts: all that is sent passes the uplink."""
        return 100.0 if self.kind == "uplink" else 100.0 * downlink_share(link)


@dataclass(frozen=True)
class Expected:
    """Everything that expected measurements are computed from.

    Attributes:
        links: every directed link.
        mtu: of the data network, in bytes.
        tcp: the congestion control in use.
        uplinks: node -> MB/s that it can send on all its links together.
        downlinks: node -> MB/s that it can receive on all its links together.
        clocks: node -> the identity of its clock; if none is known, all nodes share one.
        hops: the ends of each path over several links -> these links.
    """

    links: Sequence[Link]
    mtu: int = 1500
    tcp: str = "cubic"
    uplinks: Mapping[str, float] = field(default_factory=dict)
    downlinks: Mapping[str, float] = field(default_factory=dict)
    clocks: Mapping[str, str] = field(default_factory=dict)
    hops: Mapping[Pair, Sequence[Link]] = field(default_factory=dict)

    def has_one_clock(self, ends: Pair) -> bool:
        """Return whether two nodes share a clock, so that one can tell how long the other's packets were in flight."""
        src, dst = ends
        return self.clocks.get(src) == self.clocks.get(dst)

    @property
    def frame_bytes(self) -> int:
        """The size of a full frame on the wire, with its Ethernet header."""
        return self.mtu + ETHERNET_BYTES

    def rtt_ms(self, link: Link) -> float:
        """Return both directions' delays together."""
        return self._round_trips_ms.get(link.ends, 0.0)

    def rate_mbyte_s(self, link: Link) -> float:
        """Return what the link carries while its nodes send and receive nothing else, in bytes on the wire.

        All that is sent passes the uplink; what passes the downlink says `downlink_share`.
        """
        uplink, downlink = self.uplinks.get(link.src, math.inf), self.downlinks.get(link.dst)
        most = math.inf
        if downlink is not None and link.loss_pct < 100:
            most = downlink / downlink_share(link)
        return min(link.rate_mbyte_s, uplink, most)

    def as_limited(self, link: Link) -> Link:
        """Return a link with the rate that its nodes' uplink and downlink leave it."""
        return link._replace(rate_mbyte_s=self.rate_mbyte_s(link))

    def is_cut(self, link: Link) -> bool:
        """Return whether either direction loses everything: then nothing comes back, and only loss can be measured."""
        return frozenset(link.ends) in self._cut

    @cached_property
    def by_ends(self) -> dict[Pair, Link]:
        """Each link by the nodes at its ends."""
        return {link.ends: link for link in self.links}

    @cached_property
    def _round_trips_ms(self) -> dict[Pair, float]:
        return round_trips_ms(self.links)

    @cached_property
    def _cut(self) -> set[frozenset[str]]:
        return {frozenset(link.ends) for link in self.links if link.lost_pct == 100}

    def accesses(self) -> list[Access]:
        """Return all uplinks and downlinks on which anything can be carried."""
        alive = [link for link in self.links if not self.is_cut(link)]
        ups = (
            Access("uplink", node, rate, tuple(link for link in alive if link.src == node))
            for node, rate in self.uplinks.items()
        )
        downs = (
            Access("downlink", node, rate, tuple(link for link in alive if link.dst == node))
            for node, rate in self.downlinks.items()
        )
        return [access for access in (*ups, *downs) if access.links]

    def access_mbyte_s(self, access: Access) -> float:
        """Return what an access must carry while all its links are full: its limit, or their sum if that is less."""
        carried = (self.rate_mbyte_s(link) * access.share_pct(link) / 100 for link in access.links)
        return min(access.mbyte_s, sum(carried))

    def goodput_mbyte_s(self, link: Link) -> float:
        """Return what one TCP connection carries: full frames without their headers, or less because of loss."""
        full = self.rate_mbyte_s(link) * payload_share(self.mtu)
        if not link.lost_pct:
            return full
        if self.tcp in LOSS_BASED:
            return min(full, mathis_mbyte_s(self.mtu, self.rtt_ms(link), link.lost_pct))
        return full * (1 - link.lost_pct / 100)


def downlink_share(link: Link) -> float:
    """Return how many packets pass the downlink for each one that is sent: lost ones do not, damaged ones do.

    nfqueue damages and doubles what has passed it (node.wire.nfqueue.delay_line); netem, whose queues are below the
    downlink's class, before that (node.wire.netem): there second copies pass it too.
    """
    copies = 1 + link.duplicate_pct / 100 if link.wire == "netem" else 1.0
    return copies * (1 - link.loss_pct / 100)


def payload_share(mtu: int) -> float:
    """Return how much of a full frame is TCP's payload."""
    return (mtu - TCP_IP_BYTES) / (mtu + ETHERNET_BYTES)


def mathis_mbyte_s(mtu: int, rtt_ms: float, loss_pct: float) -> float:
    """Return the goodput under random loss of one connection whose congestion control reacts to each loss."""
    if rtt_ms == 0:
        return math.inf
    segment_bytes = mtu - TCP_IP_BYTES
    return MATHIS * segment_bytes / (rtt_ms / 1000) / math.sqrt(loss_pct / 100) / 1e6


def all_reduce_mbyte_s(goodput_mbyte_s: float, rtt_ms: float) -> float:
    """Return the most that gloo's all-reduce gets of a link, however large the tensor.

    gloo cuts it into segments of 1 MiB at most and has two in flight; it sends the next once the receiver, which has
    the last but one, has asked for it (kMaxSegmentSize in gloo's allreduce.h, NOTIFY_RECV_READY in
    transport/tcp/pair.cc). So two segments take a round trip and their own time. Measured, docs/LOG.md: 18.2 of 38.3
    MB/s at 60 ms.
    """
    if goodput_mbyte_s == 0:
        return 0.0
    mbyte = IN_THE_AIR * SEGMENT_BYTES / 1e6
    return mbyte / (rtt_ms / 1000 + mbyte / goodput_mbyte_s)


def loss_note(asked: Expected) -> str:
    """Return which links TCP cannot fill because of the loss that was asked for as well; '' if there are none."""
    shares = {
        link: asked.goodput_mbyte_s(link) / asked.rate_mbyte_s(link)
        for link in asked.links
        if link.lost_pct and asked.tcp in LOSS_BASED and not asked.is_cut(link)
    }
    slow = [link for link, share in shares.items() if share < NOTED_SHARE]
    if not slow:
        return ""
    worst = min(slow, key=lambda link: shares[link])
    return (
        f"{len(slow)} links lose too much for {asked.tcp} to fill them: one connection {worst.src} -> {worst.dst}, "
        f"{worst.lost_pct:.3g} % lost, gets about {asked.goodput_mbyte_s(worst):.3g} of "
        f"{asked.rate_mbyte_s(worst):.3g} MB/s (Mathis et al., 1997); `tcp: bbr` in the profile gets more"
    )


def loss_interval(
    packets: int, loss_pct: float, confidence: float = LOSS_CONFIDENCE
) -> tuple[int, int]:
    """Return the fewest and the most random losses among `packets`, with this confidence (exact binomial tails)."""
    chance = loss_pct / 100
    if chance == 0:
        return 0, 0
    if packets * chance > MANY_LOSSES:
        return _normal_interval(packets, chance, confidence)
    tail, below = (1 - confidence) / 2, 0.0
    low: int | None = None
    for lost in range(packets + 1):
        below += _binomial(packets, lost, chance)
        if low is None and below > tail:
            low = lost
        if below >= 1 - tail:
            return low or 0, lost
    return low or 0, packets


def _normal_interval(packets: int, chance: float, confidence: float) -> tuple[int, int]:
    """Return the same by the normal approximation, which takes no longer with more packets."""
    mean, sd = packets * chance, math.sqrt(packets * chance * (1 - chance))
    reach = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * sd
    return max(0, math.floor(mean - reach)), min(packets, math.ceil(mean + reach))


def _binomial(packets: int, lost: int, chance: float) -> float:
    if chance == 1:
        return float(lost == packets)
    ways = math.lgamma(packets + 1) - math.lgamma(lost + 1) - math.lgamma(packets - lost + 1)
    return math.exp(ways + lost * math.log(chance) + (packets - lost) * math.log1p(-chance))
