"""The interface of both wires, netem and nfqueue, and the choice between them."""

from typing import Protocol

from node.wire import netem
from node.wire.commands import NodeError, Qdisc
from node.wire.layout import Layout
from node.wire.nfqueue import backend as nfqueue
from protocol.link_report import Lateness, WireCounters


class Wire(Protocol):
    """A way to give incoming packets their link's delay, jitter and loss. Both wires are modules with these functions.

    A third one needs a module in WIRES below, a name in `protocol.link.WIRES`, and a place in the order in which
    `choose` tries them.
    """

    NAME: str

    def unavailable(self) -> str:
        """Why this kernel cannot do it, found by trying; empty if it can."""

    def start(self, before: Layout | None, after: Layout) -> list[str]:
        """Change what is not traffic control from `before` to `after`. Returns notes for the user."""

    def tc_lines(self, before: Layout | None, after: Layout) -> list[str]:
        """Lines for `tc -batch` that change the rest."""

    def change(self, before: Layout, after: Layout, number: int) -> list[str]:
        """Change the values of links that both have, the `number`-th time. Returns lines for tc that do the rest."""

    def stop(self, device: str, found: list[Qdisc]) -> None:
        """Remove it all, also where only a part is left. `found` is every qdisc of the node."""

    def warnings(self) -> list[str]:
        """What the user should know of its work so far."""

    def lateness(self) -> Lateness | None:
        """How many packets it let go late; None where it cannot tell."""

    def counters(self, layout: Layout) -> dict[str, WireCounters]:
        """What has come of each link that ends here, and what of it was lost, by peer."""

    def mark(self) -> str:
        """What tells how it is now from how it was, as far as it is not traffic control, iptables or routes."""

    def fault(self, device: str, found: list[Qdisc]) -> str:
        """What is missing of a wire that should be there; empty if it is whole."""


WIRES: dict[str, Wire] = {"netem": netem, "nfqueue": nfqueue}


def choose(wanted: str, in_force: str) -> Wire:
    """The wire that a plan asks for; for `auto` the one in force, else netem where this kernel can do it.

    nfqueue is not tried: it says so itself if it cannot start, and to take a trial back costs the kernel 20 ms.

    Raises:
        NodeError: netem is asked for and cannot be had, in the kernel's words.
    """
    if in_force and wanted in ("auto", in_force):
        return WIRES[in_force]
    if wanted == nfqueue.NAME:
        return nfqueue
    lacking = netem.unavailable()
    if lacking and wanted == netem.NAME:
        raise NodeError(
            f"this kernel cannot delay packets with netem ({lacking}): ask for the wire `auto`, which takes what works"
        )
    return nfqueue if lacking else netem
