"""Atomic writes of files; the end of a log."""

import os
import stat
from pathlib import Path


def write_atomically(
    path: Path, content: bytes, mode: int = 0o600, *, to_disk: bool = False
) -> None:
    """Write a temporary file and rename it: a full disk or a kill leaves the old file, never half of the new one.

    With `to_disk` that holds for a power cut, too.

    Raises:
        OSError: it could not be written; carries the file's name, which the error of a full disk lacks.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text atomically, readable as the umask allows; file names in it may have bytes that are not UTF-8.

    Raises:
        OSError: it could not be written.
    """
    write_atomically(path, text.encode(errors="surrogateescape"), 0o666)


def last_lines(path: Path, count: int, most_bytes: int = 65536) -> list[str]:
    """Return the last lines of a log, from its last `most_bytes` bytes; nothing if it is no file that can be read."""
    try:
        # Anything may be in its place: to open a pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as log:
            about = os.fstat(log.fileno())
            if not stat.S_ISREG(about.st_mode):
                return []
            log.seek(max(0, about.st_size - most_bytes))
            lines = log.read(most_bytes).decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[-count:]
