"""Notes on temporary changes, so that those of a killed command can be undone.

    .gradwire/NAME/temporary-PID-….json

A schedule changes links and CPU limits while ranks run, `shape --for` changes links for some time. Both restore
everything when they exit, and then remove their note. A process killed by SIGKILL cannot: its note stays, with the
limits that the nodes had before, until the next command has restored limits and links. The links themselves are
recorded anyway (`cluster.shaping.link_record`).
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.base.files import write_atomically
from cluster.base.processes import process_started
from cluster.base.spec import ClusterSpec
from cluster.engine.resources import Limit


@dataclass(frozen=True)
class TemporaryChange:
    """The temporary changes of one command.

    Attributes:
        path: of the note.
        what: the command that makes them.
        alive: whether its process still runs.
        limits: the previous limits of each node whose limits change.
    """

    path: Path
    what: str
    alive: bool
    limits: Mapping[str, Limit]


def note_temporary_change(
    spec: ClusterSpec, what: str, limits: Mapping[str, Limit] | None = None
) -> Path:
    """Write a note that this process changes links temporarily, and limits from `limits`; return the note's path.

    The caller restores everything within `restoring`, which removes the note.
    """
    path = spec.state_dir / f"temporary-{os.getpid()}-{time.monotonic_ns()}.json"
    document = {
        "pid": os.getpid(),
        "started": process_started(os.getpid()),
        "what": what,
        "limits": {node: asdict(limit) for node, limit in (limits or {}).items()},
    }
    write_atomically(path, json.dumps(document).encode())
    return path


@contextmanager
def restoring(note: Path) -> Iterator[None]:
    """Remove a note after the block, which undoes its changes; if the block raises, the next command undoes them.

    Our process may live on, in Python: a note that seemed to be of a change still going on would keep wrong links in
    force.
    """
    try:
        yield
    except BaseException:
        give_up(note)
        raise
    note.unlink(missing_ok=True)


def give_up(note: Path) -> None:
    """Make a note one of a killed command, whose changes the next command undoes.

    Does not raise, because the caller's own error matters more: the note may be gone, with a cluster removed meanwhile.
    """
    with suppress(OSError):
        _amend(note, {"started": ""})


def drop_limits(note: Path) -> None:
    """Take the limits out of a note, once they are restored: those that the user asks for meanwhile must stay."""
    with suppress(FileNotFoundError):  # another command, with --force, was faster
        _amend(note, {"limits": {}})


def forget(changes: Iterable[TemporaryChange]) -> None:
    """Remove the notes of changes that are undone."""
    for change in changes:
        change.path.unlink(missing_ok=True)


def _amend(note: Path, news: Mapping[str, object]) -> None:
    document = json.loads(note.read_text(encoding="utf-8"))
    write_atomically(note, json.dumps(document | news).encode())


def read_temporary_changes(spec: ClusterSpec) -> list[TemporaryChange]:
    """Return all temporary changes that have a note; unreadable notes are skipped."""
    found = (_read(path) for path in sorted(spec.state_dir.glob("temporary-*.json")))
    return [temporary for temporary in found if temporary is not None]


def _read(path: Path) -> TemporaryChange | None:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        limits = {node: Limit(**limit) for node, limit in said["limits"].items()}
        # Given up, it has no start; neither has a process that does not exist.
        alive = said["started"] != "" and process_started(int(said["pid"])) == said["started"]
        return TemporaryChange(path, str(said["what"]), alive, limits)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    except OverflowError:  # an infinite pid
        return None
