"""Taking a cluster away: one that is whole, and one that is half made."""

import shutil
import time
from contextlib import suppress

from cluster.console import Console
from cluster.engine import Engine
from cluster.errors import ClusterError
from cluster.spec import ClusterSpec

LOOKS, QUIET_LOOKS, LOOK_INTERVAL_S = 50, 4, 0.25


def remove_cluster(engine: Engine, name: str) -> list[str]:
    """Remove all there is of a cluster; returns what was removed.

    Raises:
        ClusterError: the engine refused, or the keys belong to somebody else.
    """
    return engine.remove(name) + remove_keys(ClusterSpec(name))


def remove_half_made(engine: Engine, name: str, console: Console) -> None:
    """Remove all there is until nothing new appears: the engine may still be at what compose asked of it."""
    quiet, trouble = 0, ""
    for _ in range(LOOKS):
        try:
            quiet = 0 if remove_cluster(engine, name) else quiet + 1
        except ClusterError as error:  # a network that just got a container, say: it goes next time
            quiet, trouble = 0, str(error)
        if quiet == QUIET_LOOKS:
            return
        time.sleep(LOOK_INTERVAL_S)
    console.say(f"something of {name!r} stays behind: {trouble}")


def remove_keys(spec: ClusterSpec) -> list[str]:
    """Remove the cluster's state folder; returns what was removed.

    Raises:
        ClusterError: it belongs to somebody else: a plain `docker compose up` makes it as root.
    """
    try:
        shutil.rmtree(spec.state_dir)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise ClusterError(
            f"{spec.state_dir} belongs to somebody else: {error}", f"sudo rm -r {spec.state_dir}"
        ) from error
    with suppress(OSError):  # the last cluster's: other clusters have theirs in it
        spec.state_dir.parent.rmdir()
    return [f"keys {spec.state_dir}"]
