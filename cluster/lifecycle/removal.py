"""Removes clusters, also half-made ones."""

import shutil
import time
from contextlib import suppress

from cluster.base.console import Console
from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.ownership import check_may_remove

LOOKS, QUIET_LOOKS, LOOK_INTERVAL_S = 50, 4, 0.25


def remove_cluster(
    engine: Engine, name: str, console: Console, *, force: bool = False
) -> list[str]:
    """Remove all there is of a cluster of this checkout; returns what was removed.

    Args:
        engine: has it.
        name: of the cluster.
        console: hears of what stays behind.
        force: remove that of another checkout, too.

    Raises:
        ClusterError: it is another checkout's, the engine refused, or the keys belong to somebody else.
    """
    if not force:
        check_may_remove(engine, name)
    half_made = _is_half_made(engine, name)  # by a command that was killed: Compose may be at it
    removed = remove_until_quiet(engine, name, console) if half_made else _remove_all(engine, name)
    for words in engine.left_behind(name):
        console.say(words)
    return removed


def remove_until_quiet(engine: Engine, name: str, console: Console) -> list[str]:
    """Remove all there is until nothing new appears: the engine may still be at what compose asked of it."""
    removed: list[str] = []
    quiet, trouble = 0, ""
    for _ in range(LOOKS):
        try:
            news = _remove_all(engine, name)
            removed, quiet = removed + news, 0 if news else quiet + 1
        except ClusterError as error:  # a network that just got a container, say: it goes next time
            quiet, trouble = 0, str(error)
        if quiet == QUIET_LOOKS:
            return removed
        time.sleep(LOOK_INTERVAL_S)
    console.say(f"something of {name!r} stays behind: {trouble}")
    return removed


def _remove_all(engine: Engine, name: str) -> list[str]:
    return engine.remove(name) + _remove_keys(ClusterSpec(name))


def _is_half_made(engine: Engine, name: str) -> bool:
    """Whether nodes are missing that the others, or its keys, speak of."""
    nodes = engine.containers(name)
    if not nodes:
        return ClusterSpec(name).state_dir.exists() or bool(engine.networks(name))
    return len(nodes) < nodes[0].size


def _remove_keys(spec: ClusterSpec) -> list[str]:
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
