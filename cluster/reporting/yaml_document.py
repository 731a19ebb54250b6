"""Reads run.yml of any version; tolerates a truncated file."""

from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.yaml_file import read_yaml
from cluster.reporting.values import Record, record

MOST_BYTES = 1 << 22


def read_run_yml(path: Path) -> Record:
    """Return what a run asked for, resolved; empty if it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        return record(read_yaml(path))
    except (OSError, UsageError):
        return {}
