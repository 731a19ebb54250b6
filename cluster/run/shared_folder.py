"""The folder that all ranks of a run share (`launch --shared`): created before they start, fetched, removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cluster.base.console import Console
from cluster.base.errors import NodeError
from cluster.run.results import Fetch, Fetched, fetch_folder
from cluster.ssh.fleet import Fleet
from protocol.places import SHARED, shared_dir


def make_shared(fleet: Fleet, run: str) -> None:
    """Create the folder on the first node, and check that all others see it.

    Raises:
        NodeError: some nodes do not share a file system with the first, or cannot write to it; it names them.
    """
    first, *others = [node.name for node in fleet.nodes]
    fleet.run(["mkdir", "-p", shared_dir(run)], nodes=[first])
    found = fleet.run(["test", "-w", shared_dir(run)], nodes=others, check=False)
    apart = {node: answer.words() for node, answer in found.items() if answer.exit_code != 0}
    if apart:
        raise NodeError(
            f"--shared: these nodes do not see the folder that {first} has made",
            apart,
            "place all nodes on one host; if they are: python -m cluster.down, then up",
        )


def fetch_shared(
    fleet: Fleet, alive: Sequence[str], folder: Path, limit_bytes: int, console: Console
) -> str:
    """Fetch the folder into the run folder, from one of the nodes that are alive, then remove it there.

    Returns:
        Why it is missing or incomplete, in which case it stays on the nodes; empty if it is complete.
    """
    there = shared_dir(folder.name)
    if not alive:
        return "no node answers any more"
    fetched = fetch_folder(fleet, alive[0], Fetch(there, folder / SHARED, limit_bytes), console)
    _tell(fetched, there, console)
    if not fetched.failure:
        fleet.run(["rm", "-rf", there], nodes=alive[:1], check=False)
    return fetched.failure


def _tell(fetched: Fetched, there: str, console: Console) -> None:
    for words in fetched.notes:
        console.say(f"{SHARED}: {words}")
    if fetched.failure:
        console.say(
            f"the shared folder could not be fetched: {fetched.failure}; it stays in {there}"
        )
