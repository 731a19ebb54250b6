"""A command's folder for sockets: short names in the temporary folder, for those of sockets are limited to 107 bytes.

Its name says whose it is: what a command leaves that was killed, the next one removes.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from cluster.base.processes import process_started

NAME = re.compile(r"gradwire-(\d+)-(\d+)-\w+")


def make_socket_folder() -> Path:
    """A new one that only this user can enter."""
    _remove_left_behind()
    prefix = f"gradwire-{os.getpid()}-{process_started(os.getpid())}-"
    return Path(tempfile.mkdtemp(prefix=prefix))


def _remove_left_behind() -> None:
    for folder in Path(tempfile.gettempdir()).glob("gradwire-*"):
        found = NAME.fullmatch(folder.name)
        if found and _is_ours(folder) and process_started(int(found[1])) != found[2]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder, no link to one, and this user's: others may have names like ours."""
    try:
        return folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
    except OSError:
        return False
