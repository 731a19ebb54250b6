"""A folder for the sockets of one command, in the temporary folder: the path of a socket has at most 107 bytes.

The folder's name identifies its process, so that the next command can remove the folders of killed ones.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from cluster.base.processes import process_started

NAME = re.compile(r"gradwire-(\d+)-(\d+)-\w+")


def make_socket_folder() -> Path:
    """Create a folder that only this user can enter."""
    _remove_left_behind()
    prefix = f"gradwire-{os.getpid()}-{process_started(os.getpid())}-"
    return Path(tempfile.mkdtemp(prefix=prefix))


def _remove_left_behind() -> None:
    for folder in Path(tempfile.gettempdir()).glob("gradwire-*"):
        found = NAME.fullmatch(folder.name)
        if found and _is_ours(folder) and process_started(int(found[1])) != found[2]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Return whether `folder` is no symbolic link and belongs to this user: other users may have such names, too."""
    try:
        return folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
    except OSError:
        return False
