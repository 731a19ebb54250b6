"""The record of the network between a cluster's hosts, by which every command draws the same plans.

    .gradwire/NAME/underlay.json    which host has which node, and the measurements between hosts

It is measured once, before the first links between two hosts are shaped: later these would be in the way.
"""

import json

from cluster.base.errors import ClusterError
from cluster.base.json_file import write_json
from cluster.base.spec import ClusterSpec, name_flag
from cluster.links.underlay import Underlay

FILE = "underlay.json"


def read_underlay(spec: ClusterSpec) -> Underlay:
    """Return the recorded underlay; an empty one if the cluster has only one host.

    Raises:
        ClusterError: the file cannot be read, or is damaged.
    """
    path = spec.state_dir / FILE
    try:
        return Underlay.from_document(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Underlay()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ClusterError(
            f"{path}, the record of the network between the hosts, cannot be read: {error!r:.300}",
            f"remove it, then: python -m cluster.up{name_flag(spec.name)}",
        ) from error


def write_underlay(spec: ClusterSpec, underlay: Underlay) -> None:
    """Record the underlay."""
    write_json(spec.state_dir / FILE, underlay.document())
