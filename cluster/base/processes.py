"""Which process is meant: numbers of processes are used again."""

from pathlib import Path


def process_started(pid: int) -> str:
    """When a process began, in the kernel's ticks; '' where there is none, or none any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
