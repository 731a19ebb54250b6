"""Gilbert's model of bursty losses: wires generate losses by it, and the contract computes expected losses by it."""

from typing import NamedTuple

from protocol.link import Link


class LossBurstChances(NamedTuple):
    """The probabilities, at each packet, of bursty losses."""

    begin: float
    """Probability that a burst begins."""
    end: float
    """Probability that a burst ends."""


def loss_burst_chances(link: Link) -> LossBurstChances | None:
    """Return Gilbert's parameters of a link; None if its losses are independent, or if none or all packets are lost.

    In Gilbert's model (1960), all packets of a burst are lost, and no others. Bursts are longer than asked if the gaps
    between them would otherwise have to be shorter than one packet.
    """
    loss = link.loss_pct / 100
    if link.loss_burst == 1 or not 0 < loss < 1:
        return None
    end = min(1 / link.loss_burst, (1 - loss) / loss)
    return LossBurstChances(end * loss / (1 - loss), end)
