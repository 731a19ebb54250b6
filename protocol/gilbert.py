"""Gilbert's model of losses that come in bursts: wires make losses by it, and the contract expects them by it."""

from typing import NamedTuple

from protocol.link import Link


class BurstChances(NamedTuple):
    """Of losses that come in bursts, the chances with each packet."""

    begin: float
    """That a burst begins."""
    end: float
    """That one ends."""


def burst_chances(link: Link) -> BurstChances | None:
    """Gilbert's parameters of a link whose losses come in bursts.

    Gilbert's model (1960): all packets of a burst are lost, and no others. None where each is lost or not by itself.
    Bursts are longer than asked where so much loss does not fit between them.
    """
    loss = link.loss_pct / 100
    if link.loss_burst == 1 or not 0 < loss < 1:
        return None
    end = min(1 / link.loss_burst, (1 - loss) / loss)
    return BurstChances(end * loss / (1 - loss), end)
