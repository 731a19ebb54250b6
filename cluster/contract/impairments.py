"""Expected and measured loss bursts, duplication, corruption and reordering. Pure functions."""

from collections.abc import Iterable, Sequence

from cluster.contract.copies import chance_of_none, doubles_hold
from cluster.contract.measured import Measured
from cluster.links.expected import ETHERNET_BYTES, SEEN_DELAY_MS, loss_interval
from protocol.gilbert import loss_burst_chances
from protocol.link import Link

BURST_TOLERANCE = 0.1
SMALLEST_PING_BYTES = 58  # payload 16, UDP 8, IPv4 20, Ethernet 14


def judge_impairments(link: Link, measured: Measured, hops: Sequence[Link] = ()) -> dict[str, bool]:
    """Return whether losses, their bursts, duplicates and reordering are as asked, by name.

    Args:
        link: what was asked.
        measured: what was measured.
        hops: the links of a path, if `link` is one: a copy made on one of them may be lost or doubled on the next.
    """
    checks = {
        "loss": _loss_holds(link, measured, hops) and counted_loss_holds(link, measured),
        "unaccounted": unaccounted_losses(link, measured) == 0,
        "doubles": doubles_hold(hops, measured.arrived, measured.twice)
        if hops
        else _share_holds(link.duplicate_pct, measured.arrived, measured.twice),
        "reordering": _overtaking_holds(link, measured),
    }
    if loss_burst_chances(link) is not None:
        checks["loss_burst"] = _loss_bursts_hold(link, measured)
    return checks


def clumping(link: Link) -> float:
    """Return how many packets tell as much about a loss rate as one independent packet: more than one in bursts."""
    chances = loss_burst_chances(link)
    if chances is None:
        return 1.0
    memory = 1 - chances.end - chances.begin  # correlation of a packet's fate with the next one's
    return (1 + memory) / (1 - memory)


def fate_variance(link: Link) -> float:
    """Return the variance of the number of copies of a packet that arrive, given random loss and duplication."""
    lost, twice = link.lost_pct / 100, link.duplicate_pct / 100
    return lost * (1 - lost) * clumping(link) + twice * (1 - twice)


def expected_lost_pct(link: Link, hops: Iterable[Link]) -> float:
    """Return how many of a hundred packets do not arrive: over a path, one of two copies may, if the other is lost.

    Args:
        link: a link, or a path as one.
        hops: the links of a path; none of a link.
    """
    links = tuple(hops)
    if not any(hop.duplicate_pct for hop in links):
        return link.lost_pct
    return 100 * chance_of_none(links)


def _loss_holds(link: Link, measured: Measured, hops: Sequence[Link]) -> bool:
    """Check the losses against the interval for the equivalent number of independent packets."""
    independent = max(1, round(measured.sent / clumping(link))) if measured.sent else 0
    low, _ = loss_interval(
        independent, expected_lost_pct(_least_lossy(link), map(_least_lossy, hops))
    )
    _, high = loss_interval(independent, expected_lost_pct(link, hops))
    lost = (measured.sent - measured.arrived) * independent / max(1, measured.sent)
    between = 0.5 if independent < measured.sent else 0.0
    return low - between <= lost <= high + between


def counted_loss_holds(link: Link, measured: Measured) -> bool:
    """Check likewise all packets that passed while the link was measured, by the wire's own count."""
    if measured.drop_count is None:
        return True
    packets, lost = measured.drop_count.all_packets, measured.drop_count.all_lost
    low, high = loss_interval(round(packets / clumping(link)), link.loss_pct)
    between = 0.5 if clumping(link) > 1 else 0.0
    return low - between <= lost / clumping(link) <= high + between


def unaccounted_losses(link: Link, measured: Measured) -> int:
    """Return how many missing pings no wire has dropped; below 0: how many drops it counted of pings that arrived.

    Other packets of the link may be among those dropped. 0 on links that corrupt or duplicate packets.
    """
    drop_count = measured.drop_count
    if drop_count is None or link.corrupt_pct or link.duplicate_pct:
        return 0
    missing, others = measured.sent - measured.arrived, max(0, drop_count.packets - measured.sent)
    if missing > drop_count.lost:
        return missing - drop_count.lost
    return min(0, missing + others - drop_count.lost)


def _least_lossy(link: Link) -> Link:
    """Return a link that loses the least to expect: netem may damage any bit, also of the unchecked Ethernet header."""
    if link.wire != "netem":
        return link
    harmless = ETHERNET_BYTES / SMALLEST_PING_BYTES
    return link._replace(corrupt_pct=link.corrupt_pct * (1 - harmless))


def _loss_bursts_hold(link: Link, measured: Measured) -> bool:
    """Check the number of runs of losses: each lost packet ends its run with the same probability."""
    chances = loss_burst_chances(link)
    if chances is None or measured.gaps is None or link.corrupt_pct:
        return True
    lost, end_pct = measured.sent - measured.arrived, 100 * chances.end
    _, most = loss_interval(lost, min(100.0, end_pct / (1 - BURST_TOLERANCE)))
    # A run that lasts to the last ping is not counted.
    return fewest_runs(link, measured) - 1 <= measured.gaps <= most


def fewest_runs(link: Link, measured: Measured) -> int:
    """Return the fewest runs of losses that so many lost pings may form; 0 if the link's losses are independent."""
    chances = loss_burst_chances(link)
    if chances is None:
        return 0
    lost, end_pct = measured.sent - measured.arrived, 100 * chances.end
    return loss_interval(lost, end_pct / (1 + BURST_TOLERANCE))[0]


def _overtaking_holds(link: Link, measured: Measured) -> bool:
    """Check reordering: a packet that skips the delay overtakes others only if some are in flight."""
    low, high = loss_interval(measured.arrived, link.reorder_pct)
    return (
        link.delay_ms < SEEN_DELAY_MS or low <= measured.reordered
    ) and measured.reordered <= high


def _share_holds(asked_pct: float, packets: int, found: int) -> bool:
    low, high = loss_interval(packets, asked_pct)
    return low <= found <= high
