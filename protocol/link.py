"""A directed link, wherever it appears: in a link plan, `links.json`, `contract.json`, `--json` output.

Units stand in the names: `rate_mbyte_s` is 10^6 bytes a second, `delay_ms` is one way, `loss_pct` is per cent of
packets.
"""

import math
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from protocol.reader import WORD, one_of, within

WIRE_CHOICES = ("auto", "netem", "nfqueue")
DISTRIBUTIONS = ("normal", "uniform")
LIMITS = {
    "rate_mbyte_s": (0.01, 10_000.0),
    "delay_ms": (0.0, 10_000.0),
    "jitter_ms": (0.0, 5_000.0),
    "loss_pct": (0.0, 100.0),
    "buffer_ms": (1.0, 60_000.0),
    "loss_burst": (1.0, 1000.0),
    "duplicate_pct": (0.0, 100.0),
    "corrupt_pct": (0.0, 100.0),
    "reorder_pct": (0.0, 50.0),  # more than half could not be told from a shorter delay
}
"""The bounds of each value of a link, in profiles, topologies, schedules, traces and plans."""
CUT_PCT = 100.0
"""The loss of a link that is cut."""
ACCESS_LIMITS = {
    "uplink_mbyte_s": LIMITS["rate_mbyte_s"],
    "downlink_mbyte_s": LIMITS["rate_mbyte_s"],
}
Pair = tuple[str, str]
"""The nodes where a link starts and ends."""


class Link(NamedTuple):
    """One directed link between two nodes."""

    src: Annotated[str, WORD]
    """The node where it starts."""
    dst: Annotated[str, WORD]
    """The node where it ends."""
    rate_mbyte_s: Annotated[float, within(*LIMITS["rate_mbyte_s"])]
    """10^6 bytes a second on the wire, Ethernet headers included. Payload goodput is lower (docs/links.md)."""
    delay_ms: Annotated[float, within(*LIMITS["delay_ms"])]
    """One-way delay."""
    jitter_ms: Annotated[float, within(*LIMITS["jitter_ms"])]
    """Standard deviation of the one-way delay. Packets keep their order."""
    loss_pct: Annotated[float, within(*LIMITS["loss_pct"])]
    """Per cent of packets that are lost at random."""
    buffer_ms: Annotated[float, within(*LIMITS["buffer_ms"])]
    """The drop-tail queue in front of the rate limit, as time at that rate."""
    wire: Annotated[str, one_of(*WIRE_CHOICES)] = "auto"
    """What delays and drops packets: `netem` or `nfqueue`; `auto` in a plan, which names one wire for all links."""
    loss_burst: Annotated[float, within(*LIMITS["loss_burst"])] = 1.0
    """Mean number of packets that are lost in a row; 1: each packet is lost independently."""
    duplicate_pct: Annotated[float, within(*LIMITS["duplicate_pct"])] = 0.0
    """Per cent of packets that arrive twice."""
    corrupt_pct: Annotated[float, within(*LIMITS["corrupt_pct"])] = 0.0
    """Per cent of packets that arrive with one bit wrong."""
    reorder_pct: Annotated[float, within(*LIMITS["reorder_pct"])] = 0.0
    """Per cent of packets that skip the delay, and so overtake the packets before them."""
    distribution: Annotated[str, one_of(*DISTRIBUTIONS)] = "normal"
    """Distribution of the delay if there is jitter."""

    @property
    def ends(self) -> Pair:
        """The nodes where it starts and ends; unique among a cluster's links."""
        return self.src, self.dst

    @property
    def bytes_per_s(self) -> float:
        """The rate in bytes a second."""
        return self.rate_mbyte_s * 1e6

    @property
    def lost_pct(self) -> float:
        """Per cent of packets that do not arrive: lost ones, and corrupted ones, which checksums reject."""
        return together_pct([self.loss_pct, self.corrupt_pct])

    @property
    def is_rough(self) -> bool:
        """Whether TCP does not reach the link's rate, because packets are lost, late or out of order."""
        return bool(self.jitter_ms or self.is_impaired)

    @property
    def is_impaired(self) -> bool:
        """Whether packets are lost, duplicated, corrupted or reordered."""
        return any((self.loss_pct, self.duplicate_pct, self.corrupt_pct, self.reorder_pct))


def together_pct(shares_pct: Iterable[float]) -> float:
    """Return the share of packets that at least one of several independent events hits, each with its own share."""
    spared = math.prod(1 - share / 100 for share in shares_pct)
    return 100 * (1 - spared)
