"""Describes why a node was lost, from the engine's view of its container. Pure."""

from datetime import datetime

from cluster.base.processes import signal_name
from cluster.engine.inspected import ContainerState, Inspected


def node_fate(inspected: Inspected | None, since: float) -> str:
    """Return why a node may have been lost; '' if its container does not explain it.

    Args:
        inspected: the container's `docker inspect`; None: the container does not exist.
        since: Unix time at which the container was known to run, by the clock of its host.
    """
    if inspected is None:
        return "its container has been removed"
    state = inspected["State"]
    if state.get("Paused"):
        return f"its container is paused: docker unpause {inspected['Name'].lstrip('/')}"
    if not state.get("Running"):
        return _end(state)
    if _unix_time(state.get("StartedAt", "")) > since:
        return f"its container ended and was started again at {state['StartedAt'][:19]}Z"
    if not inspected.get("NetworkSettings", {}).get("Networks"):
        return "its container is connected to no network"
    return ""


def _end(state: ContainerState) -> str:
    code = int(state.get("ExitCode", 0))
    how = f"exit code {code}"
    if code > 128:
        how += f", {signal_name(code - 128)}"
    if state.get("OOMKilled"):
        return f"its container ran out of memory and ended ({how})"
    return f"its container ended ({how})"


def _unix_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
