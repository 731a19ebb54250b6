"""The record of a cluster's hosts, in its state folder, by which every verb finds the cluster."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.base.errors import ClusterError
from cluster.base.json_file import write_json
from cluster.base.paths import PROJECT_DIR, STATE_FOLDER
from cluster.base.spec import ClusterSpec
from cluster.hosts.hosts_file import Host, Hosts
from cluster.hosts.node_placement import Placement

FILE = "host.json"


@dataclass(frozen=True)
class Record:
    """The hosts of a cluster, and its placement: which host has, or will have, each node."""

    hosts: Hosts
    placement: Placement


def read_record(name: str) -> Record | None:
    """Return the record of a cluster of this checkout; None if it is on this machine, or does not exist.

    Raises:
        ClusterError: the record cannot be read.
    """
    path = ClusterSpec(name).state_dir / FILE
    try:
        return _record(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClusterError(
            f"{path}, which says on which hosts {name!r} is, cannot be read: {error!r}",
            "remove the file, and the containers there by hand",
        ) from error


def read_hosts(name: str) -> Hosts | None:
    """Return only the hosts of the record; None, and raises, like `read_record`."""
    record = read_record(name)
    return record.hosts if record else None


def write_record(name: str, hosts: Hosts, placement: Placement) -> None:
    """Record the hosts of a cluster, before anything is created there."""
    folder = ClusterSpec(name).state_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {
        "hosts": [host.document() for host in hosts.hosts],
        "encrypted": hosts.encrypted,
        "placement": dict(placement),
    }
    write_json(folder / FILE, document)


def clusters_elsewhere() -> Iterator[str]:
    """Yield the names of this checkout's clusters that are on hosts."""
    for path in sorted((PROJECT_DIR / STATE_FOLDER).glob(f"*/{FILE}")):
        yield path.parent.name


def _record(document: Mapping[str, object]) -> Record:
    if "hosts" not in document:  # written by a version that knew only one host
        return Record(Hosts((_host(document),)), {})
    listed = document["hosts"]
    if not isinstance(listed, list) or not listed:
        raise TypeError(f"hosts is {listed!r}")
    placement = document["placement"]
    if not isinstance(placement, dict):
        raise TypeError(f"placement is {placement!r}")
    return Record(Hosts(tuple(map(_host, listed)), bool(document["encrypted"])), placement)


def _host(document: Mapping[str, Any]) -> Host:
    """Return a host as recorded; raises TypeError if the document is not one."""
    nodes = document.get("nodes")
    return Host(**{**document, "nodes": tuple(nodes) if isinstance(nodes, list) else nodes})
