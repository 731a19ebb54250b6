"""Identifies processes by their start time, because PIDs are reused."""

from pathlib import Path


def process_started(pid: int) -> str:
    """Return when a process started, in the kernel's clock ticks since boot; '' if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
