"""How many second copies of packets arrive over several links in a row, each of which may double any copy. Pure.

A packet's copies are a branching process: on each link, a copy is lost, goes on as one, or goes on as two. The moments
of their number follow from the links' generating functions (Harris, The Theory of Branching Processes, 1963, I.5).
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from cluster.links.expected import LOSS_CONFIDENCE
from protocol.link import Link

DEVIATIONS = statistics.NormalDist().inv_cdf((1 + LOSS_CONFIDENCE) / 2)
NOTHING = 1e-9  # beyond rounding


class Extra(NamedTuple):
    """Mean, variance and third central moment of the copies of a packet that arrives, beyond the first."""

    mean: float
    variance: float
    third: float


def extra_copies(hops: Sequence[Link]) -> Extra:
    """Return how many copies beyond the first arrive of a packet over these links, if any arrives."""
    first, second, third = 1.0, 0.0, 0.0  # factorial moments of the number of copies
    for link in hops:
        passed, twice = 1 - link.lost_pct / 100, link.duplicate_pct / 100
        # The first two derivatives of the link's generating function at 1.
        slope, bend = passed * (1 + twice), 2 * passed * twice
        third = third * slope**3 + 3 * second * slope * bend
        second = second * slope**2 + first * bend
        first *= slope
    none = chance_of_none(hops)
    if none == 1:
        return Extra(0.0, 0.0, 0.0)
    # Of copies - 1, where there is one; its raw moments.
    mean = (first - 1 + none) / (1 - none)
    square = (second - first + 1 - none) / (1 - none)
    cube = (third + first - 1 + none) / (1 - none)
    return Extra(mean, square - mean**2, cube - 3 * mean * square + 2 * mean**3)


def chance_of_none(hops: Sequence[Link]) -> float:
    """Return the chance that no copy of a packet arrives over these links."""
    none = 0.0
    for link in reversed(hops):
        lost, twice = link.lost_pct / 100, link.duplicate_pct / 100
        none = lost + (1 - lost) * none * (1 - twice + twice * none)
    return none


def doubles_hold(hops: Sequence[Link], arrived: int, found: int) -> bool:
    """Return whether chance may leave so many second copies among the packets that arrived.

    The interval is the normal one and half a packet, as they are counted. There may be few, and rarely many more: its
    upper end has the first correction for skewness (Cornish and Fisher, 1938).
    """
    extra = extra_copies(hops)
    mean = arrived * extra.mean
    if extra.variance < NOTHING:
        return found == round(mean)
    reach = DEVIATIONS * math.sqrt(arrived * extra.variance) + 0.5
    skewness = (DEVIATIONS**2 - 1) / 6 * extra.third / extra.variance
    return mean - reach <= found <= mean + reach + skewness
