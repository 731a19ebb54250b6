"""The record of a cluster's host, in its state folder: every verb finds the cluster there."""

import json
from collections.abc import Iterator

from cluster.base.errors import ClusterError
from cluster.base.json_file import write_json
from cluster.base.paths import PROJECT_DIR, STATE_FOLDER
from cluster.base.spec import ClusterSpec
from cluster.hosts.hosts_file import Host

FILE = "host.json"


def read_host(name: str) -> Host | None:
    """The host of a cluster of this checkout; None where it is on this machine, or there is none.

    Raises:
        ClusterError: the record cannot be read.
    """
    path = ClusterSpec(name).state_dir / FILE
    try:
        return Host(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(
            f"{path}, which says on which host {name!r} is, cannot be read: {error}",
            "remove the file, and the containers there by hand",
        ) from error


def write_host(name: str, host: Host) -> None:
    """Put it on record before anything is made there."""
    folder = ClusterSpec(name).state_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(folder / FILE, host.document())


def clusters_elsewhere() -> Iterator[str]:
    """The names of this checkout's clusters that are on hosts."""
    for path in sorted((PROJECT_DIR / STATE_FOLDER).glob(f"*/{FILE}")):
        yield path.parent.name
