"""Vega as one packed script. Bundling it takes a second or two, so the user's cache keeps it, by version."""

import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from cluster.base.files import write_atomically
from cluster.reporting.render import VEGA_LITE, library, packed

MOST_BYTES = 1 << 22


def packed_library(convert: ModuleType) -> str:
    """Return the packed script. A cache that cannot be read or written only costs time."""
    path = cache_path(str(convert.__version__))
    with suppress(OSError, UnicodeDecodeError):
        if _is_ours(path):
            return path.read_text(encoding="ascii")
    text = packed(library(convert))
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, text.encode("ascii"))
    return text


def cache_path(version: str) -> Path:
    """Return the path of the cache, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "gradwire" / f"vega-{version}-{VEGA_LITE}.js.gz.b64"


def _is_ours(path: Path) -> bool:
    """Check that no other user could have written the file, because it becomes a script of every report."""
    found = path.lstat()
    mine = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return mine and path.is_file() and not path.is_symlink() and 0 < found.st_size < MOST_BYTES
