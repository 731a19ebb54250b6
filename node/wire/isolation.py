"""Firewall rules that isolate nodes without a link; only the rendezvous passes.

Ranks meet at the first node, and gloo connects every rank with every other before it is known who sends to whom
(torch before 2.7 always, later versions without TORCH_GLOO_LAZY_INIT). So connections may be opened, hop by hop, and
carry small packets; the first packet with data is refused by a reset, and gloo reports from which peer. Other
protocols than TCP have no route.
"""

from node.wire import iptables
from node.wire.layout import Layout
from protocol.ports import RENDEZVOUS_PORT

CHAIN = iptables.CHAIN_APART
LARGEST_BYTES = 300
"""Largest packet that the rendezvous takes, with its headers; TCP's own are 52 to 60."""


def change(before: Layout | None, after: Layout) -> None:
    """Refuse data to all nodes but neighbours, or stop refusing it."""
    was, shall = bool(before and before.plan.isolated), after.plan.isolated
    if was or shall:
        iptables.commit("IPv4", text(after, was=was))


def text(layout: Layout, *, was: bool) -> str:
    """Return the rules for iptables-restore; `was`: whether nodes are isolated now."""
    hook = f"OUTPUT -o {layout.device.name} -j {CHAIN}"
    if not layout.plan.isolated:
        return iptables.table("filter", [f"-D {hook}", f"-F {CHAIN}", f"-X {CHAIN}"])
    refusals = [
        f"-A {CHAIN} -d {route.address} -p tcp -m tcp ! --sport {RENDEZVOUS_PORT} ! --dport {RENDEZVOUS_PORT} "
        f"-m length --length {LARGEST_BYTES + 1}:65535 -j REJECT --reject-with tcp-reset"
        for route in layout.plan.routes.values()
    ]
    return iptables.table("filter", [f":{CHAIN} -", *refusals, *([] if was else [f"-A {hook}"])])
