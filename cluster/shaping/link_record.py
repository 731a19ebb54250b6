"""The requested links of a cluster, recorded on the host because nodes lose theirs on a restart.

    .gradwire/NAME/links.json    the plan of every node, as last requested; {} once all shaping was removed

Temporary changes (a schedule, `shape --for`, a trace) are not recorded here, only permanent ones.
"""

import json
from collections.abc import Mapping

from cluster.base.errors import ClusterError
from cluster.base.files import write_atomically
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import LinkSpec, link_plans
from cluster.links.underlay import over
from cluster.shaping.underlay_record import read_underlay
from protocol.node_plan import NodePlan, read_plan
from protocol.reader import document


def read_record(spec: ClusterSpec) -> dict[str, NodePlan] | None:
    """Return the recorded plans by node; None if nothing was recorded yet.

    Raises:
        ClusterError: the file cannot be read, or is damaged.
    """
    path = spec.state_dir / "links.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: read_plan(plan) for name, plan in found.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ClusterError(
            f"{path}, the record of what the links were asked to be, cannot be read: {error}",
            f"remove it, then: python -m cluster.up --name {spec.name} --profile NAME",
        ) from error


def write_record(spec: ClusterSpec, plans: Mapping[str, NodePlan]) -> None:
    """Record the links that are requested from now on."""
    write_atomically(spec.state_dir / "links.json", json.dumps(document(plans)).encode())


def plans_to_be(spec: ClusterSpec, link_spec: LinkSpec | None) -> dict[str, NodePlan]:
    """Return the plan that each node should have: from `link_spec` if given, else as recorded.

    If the cluster's nodes differ from the recorded ones, its links are drawn again.

    Raises:
        UsageError: the topology does not fit these nodes, or links ask for more than the network between hosts has.
        ClusterError: the record is damaged.
    """
    underlay = read_underlay(spec)
    if link_spec is not None:
        return link_plans(spec.nodes, link_spec.over(underlay))
    recorded = read_record(spec) or {}
    if not recorded:
        return recorded
    addresses = {node.name: node.address for node in spec.nodes}
    if {name: plan.address for name, plan in recorded.items()} == addresses:
        return {name: over(plan, underlay) for name, plan in recorded.items()}
    origin = next(iter(recorded.values())).origin
    return link_plans(spec.nodes, LinkSpec.from_origin(origin).over(underlay))
