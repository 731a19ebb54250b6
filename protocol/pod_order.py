"""The order for one node that is a pod of Kubernetes: its data device, its links, its ranks.

`python -m cluster.export RUN --kubernetes IMAGE` writes it into a ConfigMap, and the pod runs `python -m node.pod`.
"""

from typing import Annotated, NamedTuple

from protocol.node_plan import NodePlan, checked_plan
from protocol.rank import StartOrder
from protocol.reader import Check, parse
from protocol.vxlan_plan import VxlanPlan, checked_vxlan_plan

ORDER_FOLDER = "/etc/gradwire"
"""In a pod: the folder of its order, a ConfigMap."""
ORDER_FILE = "pod.json"
"""In that folder: the order."""
PROGRAM_FILE = "program.tar"
"""In that folder: the program's files, if it has any; they are unpacked into the ranks' working directory."""


class PodOrder(NamedTuple):
    """What one pod does."""

    vxlan: VxlanPlan
    """Its data device."""
    plan: NodePlan | None
    """Its links; null: they are not shaped."""
    ranks: Annotated[list[StartOrder], Check("at least one rank", bool)]
    """Its ranks, which start at the same time."""


def parse_pod_order(text: str | bytes) -> PodOrder:
    """Read an order.

    Raises:
        FormatError: naming the key that is missing, unknown or wrong.
    """
    order = parse(PodOrder, text, ORDER_FILE)
    checked_vxlan_plan(order.vxlan)
    if order.plan is not None:
        checked_plan(order.plan)
    return order
