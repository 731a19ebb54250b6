"""Reads run.yml, of whatever age, also where it was cut short."""

from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.yaml_file import read_yaml
from cluster.reporting.values import Record, record

MOST_BYTES = 1 << 22


def read_run_yml(path: Path) -> Record:
    """What a run asked for, resolved; empty where nobody can tell."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return {}
        return record(read_yaml(path))
    except (OSError, UsageError):
        return {}
