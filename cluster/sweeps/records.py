"""Records of a sweep: one file for each cell that has run, named by the digest of its experiment."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.base.errors import ClusterError, UsageError
from cluster.base.json_file import write_json
from cluster.reporting.values import word

CELLS = "cells"
DONE, FAILED = "done", "failed"
MOST_REASON = 500  # characters


@dataclass(frozen=True)
class Record:
    """How a cell's run ended.

    Attributes:
        status: done or failed.
        folder: the run folder; None if none is known, because the links did not hold.
        reason: why it failed, in one line; empty if it did not.
        summary: its summary.json; empty if there is none.
    """

    status: str
    folder: Path | None
    reason: str
    summary: Mapping[str, object]


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder: two would run each cell twice, and replace each other's records.

    The kernel locks the folder itself, until this process ends; a file system without locks keeps nobody out.

    Raises:
        ClusterError: another sweep is at work there.
    """
    folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            _lock(folder, out)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, out: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClusterError(
            f"{out} is in use: another sweep writes its records there",
            "wait for it, or write elsewhere: --out FOLDER",
        ) from None


def judged(record: Record) -> Record:
    """Return the record of a run as failed if its links changed while it ran: nobody knows what it ran over."""
    changed = word(record.summary.get("links_changed"), MOST_REASON)
    if record.status != DONE or not changed:
        return record
    return replace(record, status=FAILED, reason=f"its links changed while it ran: {changed}")


def read_record(out: Path, digest: str) -> Record | None:
    """Read the record of a cell; return None if it has not run, or its run folder is gone.

    Raises:
        UsageError: the file is damaged.
    """
    path = _path(out, digest)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        folder = Path(said["folder"]) if said["folder"] else None
        record = judged(Record(said["status"], folder, said["reason"], dict(said["summary"])))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read", "remove it: its cell is run again") from error
    # Path.is_dir raises for invalid names.
    gone = record.folder is not None and not os.path.isdir(record.folder)  # noqa: PTH112
    return None if gone or record.status not in (DONE, FAILED) else record


def write_record(out: Path, digest: str, experiment: Mapping[str, object], record: Record) -> None:
    """Write the record of a cell.

    Raises:
        OSError: it could not be written.
    """
    path = _path(out, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "experiment": dict(experiment),
        "status": record.status,
        "folder": str(record.folder) if record.folder else None,
        "reason": record.reason,
        "summary": dict(record.summary),
    }
    write_json(path, document)


def _path(out: Path, digest: str) -> Path:
    return out / CELLS / f"{digest}.json"
