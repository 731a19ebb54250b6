"""Removes clusters, including half-created ones."""

import math
import shutil
import time
from contextlib import suppress

from cluster.base.console import Console
from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.ownership import check_may_remove
from cluster.engine.sdk_errors import StillInUse
from cluster.hosts.connect import has_ended, has_lost

LOOKS, QUIET_LOOKS, LOOK_INTERVAL_S = 50, 4, 0.25
MOST_TROUBLE_S = 120.0  # of failures in a row: an engine that hangs takes a minute for each


def remove_cluster(
    engine: Engine, name: str, console: Console, *, force: bool = False
) -> list[str]:
    """Remove everything of a cluster of this checkout; return what was removed.

    Args:
        engine: the engine that has it.
        name: the cluster's name.
        console: told what stays on hosts that do not answer.
        force: also remove a cluster of another checkout, and the keys of nodes that stay on hosts that do not answer.

    Raises:
        ClusterError: the cluster is another checkout's, something could not be removed, or the keys belong to another
            user.
    """
    if not force:
        check_may_remove(engine, name)
    removed = _remove(engine, name)
    if force:
        removed += _remove_keys(ClusterSpec(name))
    for words in engine.left_behind(name):
        console.say(words)
    return removed


def _remove(engine: Engine, name: str) -> list[str]:
    # Half of a cluster is what a killed command leaves: Compose, or the engine itself, may still be creating the rest.
    if not _is_half_made(engine, name):
        with suppress(StillInUse):  # likewise, but all nodes were already there
            return _remove_all(engine, name)
    return remove_until_quiet(engine, name)


def remove_until_quiet(engine: Engine, name: str) -> list[str]:
    """Remove everything until nothing new appears: the engine may still be working on what compose asked of it.

    While a host does not answer, the state folder stays: with its keys, the next `up` makes the cluster whole.

    Raises:
        ClusterError: something could not be removed, new parts kept appearing, or the connection to a host has ended.
    """
    removed: list[str] = []
    quiet, trouble = 0, ClusterError(f"new parts of cluster {name!r} keep appearing")
    failed_first, left = math.inf, math.inf
    for _ in range(LOOKS):
        try:
            news = _remove_all(engine, name)
            removed, quiet, failed_first = removed + news, 0 if news else quiet + 1, math.inf
        except ClusterError as error:  # e.g. a network that just got a container: removed next time
            quiet, trouble = 0, error
            before, left = left, _count_left(engine, name)
            failed_first = (
                time.monotonic() if left < before else min(failed_first, time.monotonic())
            )
            if has_ended(engine) or time.monotonic() - failed_first >= MOST_TROUBLE_S:
                raise
        if quiet == QUIET_LOOKS:
            return removed
        time.sleep(LOOK_INTERVAL_S)
    raise trouble


def _count_left(engine: Engine, name: str) -> float:
    """Return how many containers are left; infinity if the engine does not say."""
    try:
        return len(engine.containers(name))
    except ClusterError:
        return math.inf


def _remove_all(engine: Engine, name: str) -> list[str]:
    removed = engine.remove(name)
    return removed if has_lost(engine) else removed + _remove_keys(ClusterSpec(name))


def _is_half_made(engine: Engine, name: str) -> bool:
    """Return whether nodes are missing, judging by the other nodes, the state folder or a network."""
    nodes = engine.containers(name)
    if not nodes:
        return ClusterSpec(name).state_dir.exists() or bool(engine.networks(name))
    return len(nodes) < nodes[0].size


def _remove_keys(spec: ClusterSpec) -> list[str]:
    """Remove the cluster's state folder; return what was removed.

    Raises:
        ClusterError: it belongs to another user: a plain `docker compose up` creates it as root.
    """
    try:
        shutil.rmtree(spec.state_dir)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise ClusterError(
            f"{spec.state_dir} belongs to somebody else: {error}", f"sudo rm -r {spec.state_dir}"
        ) from error
    with suppress(OSError):  # not empty while other clusters have theirs in it
        spec.state_dir.parent.rmdir()
    return [f"keys {spec.state_dir}"]
