"""Sends the checkpoints of an earlier run to the nodes that resume it.

A run folder holds what nodes sent: only plain files whose names protocol/checkpoint_name.py knows go back, and no link
is followed. Each node gets its own checkpoints; if the ranks or their nodes differ from the earlier run, every node
gets all of them. node/training/regroup.py adapts them to another number of ranks.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from cluster.base.errors import NodeError, UsageError
from cluster.run.rank_placement import RankPlacement
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess
from protocol.checkpoint_name import NAME, read_checkpoint_name

NODE = re.compile(r"node\d{1,3}", re.ASCII)
MOST_BYTES = 8 * 10**9  # sent to one node
PIECE_BYTES = 1 << 18
TAKE = ("sh", "-c", 'mkdir -p "$0" && exec tar -x -C "$0"')


def find_checkpoints(run: Path) -> dict[str, list[Path]]:
    """Return the checkpoints in a run folder, by node; nodes without any are left out.

    Raises:
        UsageError: they are too large to send.
    """
    found = {}
    for folder in _plain(run / "files", NODE, stat.S_ISDIR):
        if paths := _plain(folder, NAME, stat.S_ISREG):
            found[folder.name] = paths
    for node, paths in found.items():
        _check_size(paths, f"of {node} in {run}")
    return found


def deal_checkpoints(run: Path, places: Sequence[RankPlacement]) -> Mapping[str, Sequence[Path]]:
    """Return the checkpoints of a run to send to each node that has ranks now.

    If the essential ranks are on the same nodes as before, each node gets its own; otherwise all nodes get all of them.

    Raises:
        UsageError: they are too large to send.
    """
    found = find_checkpoints(run)
    own = {
        name.rank: node
        for node, paths in found.items()
        for path in paths
        if (name := read_checkpoint_name(path.name))
    }
    nodes = {place.node for place in places}
    if own == {place.rank: place.node for place in places if place.is_essential}:
        return {node: found.get(node, []) for node in nodes}
    everything = [path for paths in found.values() for path in paths]
    _check_size(everything, f"of all nodes in {run}, which each node needs,")
    return dict.fromkeys(nodes, everything)


def send_checkpoints(fleet: Fleet, run: Path, place: str, places: Sequence[RankPlacement]) -> None:
    """Send each node the checkpoints that its ranks need; a node that needs none gets an empty folder.

    Raises:
        NodeError: sending failed.
        UsageError: they are too large.
    """
    dealt = deal_checkpoints(run, places)
    fleet.each(
        lambda node: _send(fleet.start(node.name, [*TAKE, place]), dealt.get(node.name, [])),
        "the checkpoints could not be sent",
    )


def _check_size(paths: Sequence[Path], whose: str) -> None:
    size = sum(path.lstat().st_size for path in paths)
    if size > MOST_BYTES:
        raise UsageError(
            f"the checkpoints {whose} are {size / 1e9:.3g} GB, more than {MOST_BYTES / 1e9:.0f} GB",
            "remove those of steps from which no run needs to resume",
        )


def _send(process: RemoteProcess, paths: Sequence[Path]) -> None:
    for path in paths:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            _send_file(process, path.name, file)
    process.write(bytes(2 * tarfile.BLOCKSIZE))
    process.close_stdin()
    exit_code, stderr = process.wait()
    process.close()
    if exit_code != 0:
        words = stderr.decode(errors="replace").strip() or f"exit code {exit_code}"
        raise NodeError("the checkpoints could not be sent", {process.node: words})


def _send_file(process: RemoteProcess, name: str, file: BinaryIO) -> None:
    """Write one member of a tar archive, piece by piece to save memory."""
    member = tarfile.TarInfo(name)
    member.size = os.fstat(file.fileno()).st_size
    process.write(member.tobuf(tarfile.GNU_FORMAT))
    while piece := file.read(PIECE_BYTES):
        process.write(piece)
    process.write(bytes(-member.size % tarfile.BLOCKSIZE))


def _plain(folder: Path, name: re.Pattern[str], kind: Callable[[int], bool]) -> list[Path]:
    """Return the entries of a folder with a matching name and kind; symbolic links never match."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    paths = (path for path in sorted(folder.iterdir()) if name.fullmatch(path.name))
    return [path for path in paths if kind(path.lstat().st_mode)]
