"""The interface of both wires, netem and nfqueue, and the choice between them."""

from typing import Protocol

from node.wire import netem
from node.wire.commands import Qdisc, WireError
from node.wire.layout import Layout
from node.wire.nfqueue import backend as nfqueue
from protocol.link_report import Lateness, WireCounters


class Wire(Protocol):
    """A way to give incoming packets their link's delay, jitter and loss. Both wires are modules with these functions.

    A third wire needs a module in WIRES below, and a name in `protocol.link.WIRE_CHOICES`: docs/contributing.md.
    """

    NAME: str

    def unavailable(self) -> str:
        """Return why this kernel cannot run the wire, found by trying; empty if it can."""

    def start(self, before: Layout | None, after: Layout) -> list[str]:
        """Change everything but traffic control from `before` to `after`. Returns notes for the user."""

    def tc_lines(self, before: Layout | None, after: Layout) -> list[str]:
        """Return lines for `tc -batch` that change traffic control from `before` to `after`."""

    def change(self, before: Layout, after: Layout) -> list[str]:
        """Change the values of links in both layouts. Returns tc lines that do the rest."""

    def stop(self, device: str, found: list[Qdisc]) -> None:
        """Remove everything, even if only a part is left. `found` is every qdisc of the node."""

    def warnings(self) -> list[str]:
        """Return what the user should know of its work so far."""

    def lateness(self) -> Lateness | None:
        """Return how many packets it released late; None if it cannot tell."""

    def counters(self, layout: Layout) -> dict[str, WireCounters]:
        """Return how many packets arrived on each incoming link and how many of them it dropped, by peer."""

    def mark(self) -> str:
        """Return a mark of everything in the wire that is not traffic control, iptables or routes."""

    def fault(self, layout: Layout, found: list[Qdisc]) -> str:
        """Return what is missing of a wire that should be in force; empty if it is complete."""


WIRES: dict[str, Wire] = {"netem": netem, "nfqueue": nfqueue}
"""By name, in the order in which `auto` tries them. The last one is not tried: it reports by itself if it cannot start,
and undoing a trial costs the kernel 20 ms."""


def choose(wanted: str, in_force: str) -> Wire:
    """Return the wire that a plan asks for; for `auto` the one in force, else the first that this kernel can run.

    Raises:
        WireError: a wire is asked for that is tried and unavailable; quotes the kernel.
    """
    if in_force and wanted in ("auto", in_force):
        return WIRES[in_force]
    *tried, last = WIRES.values()
    if wanted == last.NAME:
        return last
    for wire in tried:
        if wanted not in ("auto", wire.NAME):
            continue
        lacking = wire.unavailable()
        if not lacking:
            return wire
        if wanted == wire.NAME:
            words = f"this kernel cannot delay packets with {wanted} ({lacking})"
            raise WireError(f"{words}: ask for the wire `auto`, which takes what works")
    return last
