"""The folders of a node on its host."""

from pathlib import Path

from protocol.bare import IMAGES_FOLDER, NODES_FOLDER, RUNTIME_FOLDER, SHARED_FOLDERS

RUNTIME = Path(RUNTIME_FOLDER)
RUNC_ROOT = RUNTIME / "runc"
ENDS = RUNTIME / "ends"
"""Holds a file for each node that has ended, with its exit code; conmon writes it."""


class NodeFolder:
    """The folder of one node.

    Attributes:
        path: the folder; an OCI bundle.
        order: the order by which it was made.
        upper, work: the layer that the node writes, and overlayfs' own folder.
        root: the mount point of its root file system.
        log: the output of its first process.
        started: its modification time is when the node was started last.
        oom: exists if the node ran out of memory; conmon writes it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path(NODES_FOLDER, name)
        self.order = self.path / "order.json"
        self.config = self.path / "config.json"
        self.upper, self.work, self.root = (
            self.path / word for word in ("upper", "work", "rootfs")
        )
        self.log = self.path / "log"
        self.started = self.path / "started"
        self.persistent = self.path / "conmon"
        self.oom = self.persistent / "oom"
        self.pid_file = RUNTIME / f"{name}.pid"
        self.conmon_pid_file = RUNTIME / f"{name}.conmon.pid"
        self.end = ENDS / name


def image_folder(image: str) -> Path:
    """Return the root file system of an image."""
    return Path(IMAGES_FOLDER, image)


def shared_folder(cluster: str) -> Path:
    """Return the folder that the nodes of a cluster on this host share."""
    return Path(SHARED_FOLDERS, cluster)
