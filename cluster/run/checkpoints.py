"""Sends checkpoints of an earlier run back to the nodes that wrote them.

The folder of a run holds what nodes sent. Of it go back plain files of the names that node/training/checkpoint.py
gives, each to its own node, and nothing that a link leads to.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cluster.base.errors import NodeError, UsageError
from cluster.ssh.fleet import Fleet
from cluster.ssh.remote_process import RemoteProcess

CHECKPOINT = re.compile(r"checkpoint-rank\d{1,6}-step\d{1,18}\.pt", re.ASCII)
NODE = re.compile(r"node\d{1,3}", re.ASCII)
MOST_BYTES = 8 * 10**9  # of one node's
PIECE_BYTES = 1 << 18
TAKE = ("sh", "-c", 'mkdir -p "$0" && exec tar -x -C "$0"')


def find_checkpoints(run: Path) -> dict[str, list[Path]]:
    """The checkpoints in the folder of a run, by node; a node without any is not there.

    Raises:
        UsageError: they are too large to send.
    """
    found = {}
    for folder in _plain(run / "files", NODE, stat.S_ISDIR):
        if paths := _plain(folder, CHECKPOINT, stat.S_ISREG):
            found[folder.name] = paths
    for node, paths in found.items():
        size = sum(path.lstat().st_size for path in paths)
        if size > MOST_BYTES:
            raise UsageError(
                f"the checkpoints of {node} in {run} are {size / 1e9:.3g} GB, more than "
                f"{MOST_BYTES / 1e9:.0f} GB",
                "remove those of steps that no run shall go on from",
            )
    return found


def send_checkpoints(fleet: Fleet, run: Path, place: str) -> None:
    """Send each node its own; a node that had none gets an empty folder.

    Raises:
        NodeError: it could not be done; UsageError: they are too large.
    """
    found = find_checkpoints(run)
    fleet.each(
        lambda node: _send(fleet.start(node.name, [*TAKE, place]), found.get(node.name, [])),
        "the checkpoints could not be sent",
    )


def _send(process: RemoteProcess, paths: list[Path]) -> None:
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
    """A member of a tar archive, in little memory."""
    member = tarfile.TarInfo(name)
    member.size = os.fstat(file.fileno()).st_size
    process.write(member.tobuf(tarfile.GNU_FORMAT))
    while piece := file.read(PIECE_BYTES):
        process.write(piece)
    process.write(bytes(-member.size % tarfile.BLOCKSIZE))


def _plain(folder: Path, name: re.Pattern[str], kind: Callable[[int], bool]) -> list[Path]:
    """What is in a folder, of such names, and of one kind; links are of none."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    paths = (path for path in sorted(folder.iterdir()) if name.fullmatch(path.name))
    return [path for path in paths if kind(path.lstat().st_mode)]
