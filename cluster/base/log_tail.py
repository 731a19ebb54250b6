"""The end of a log."""

from pathlib import Path


def last_lines(path: Path, count: int, most_bytes: int = 65536) -> list[str]:
    """Return the last lines of a log, from its last `most_bytes` bytes; nothing if it cannot be read."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - most_bytes))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[-count:]
