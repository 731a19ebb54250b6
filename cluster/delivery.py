"""The way of a program to the nodes, and of what its ranks leave back home; nothing of it stays on the nodes' disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.console import Console
from cluster.fleet import Fleet
from cluster.job import Job, run_dir, work_dir
from cluster.places import Place
from cluster.program import FIT, RESUME, Program, pack
from cluster.ranks import Ended
from cluster.remote_process import LOST
from cluster.runs import unpack_results

# Of GNU tar: it could do all; a file grew while it was read; it could do a part.
TAR_EXITS = (0, 1, 2)


@contextmanager
def delivered(fleet: Fleet, job: Job, folder: Path, console: Console) -> Iterator[list[Ended]]:
    """The program is on every node as long as the block lasts; then what its ranks left is in the run folder.

    Yields:
        A list for how the ranks ended: a node that was lost is not asked again.
    """
    ended: list[Ended] = []
    try:
        _send_program(fleet, job.program, work_dir(folder.name))
        yield ended
    finally:
        _fetch(fleet, job, folder, ended, console)


def _send_program(fleet: Fleet, program: Program, place: str) -> None:
    names = [node.name for node in fleet.nodes]
    if program.folder:
        _send(fleet, dict.fromkeys(names, program.folder), place)
    if program.order:
        _send(fleet, dict.fromkeys(names, program.order), f"{place}/{FIT}")
    if program.resume:
        files = {name: program.resume / "files" / name for name in names}
        _send(fleet, files, f"{place}/{RESUME}")


def _send(fleet: Fleet, folders: Mapping[str, Path], place: str) -> None:
    """Send each node its folder."""
    archives = {folder: pack(folder) for folder in set(folders.values())}
    fleet.run(["mkdir", "-p", place])
    stdin = {node: archives[folder] for node, folder in folders.items()}
    fleet.run(["tar", "-x", "-C", place], stdin=stdin)


def _fetch(fleet: Fleet, job: Job, folder: Path, ended: Sequence[Ended], console: Console) -> None:
    """Bring home what the ranks left, then remove it there; a node that is lost keeps its part."""
    left, sent = run_dir(folder.name), [work_dir(folder.name)] if job.program.sends else []
    lost = {end.place.node for end in ended if end.exit_code == LOST}
    alive = [node.name for node in fleet.nodes if node.name not in lost]
    results = fleet.run(["tar", "-C", left, "-c", "."], nodes=alive, check=False)
    for node, result in results.items():
        if result.exit_code not in TAR_EXITS:
            alive.remove(node)
        elif result.stdout:  # where no rank began there is nothing
            left_out = unpack_results(folder, node, _places_of(job, node), result.stdout)
            said = [f"{name} is left out: it is no plain file" for name in left_out]
            for words in said + result.stderr.decode(errors="replace").splitlines():
                console.say(f"{node}: {words}")
    fleet.run(["rm", "-rf", left, *sent], nodes=alive, check=False)


def _places_of(job: Job, node: str) -> list[Place]:
    return [place for place in job.places if place.node == node]
