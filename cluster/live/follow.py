"""Finds the run in progress on a cluster, for readers in other processes.

    .gradwire/NAME/run.json     {"pid", "started", "folder"}: the launch's process and its run folder
    runs/…/live.json            the state, rewritten at each interval (docs/run-folder.md)

Readers query no node and no engine. The first file exists as long as the launch runs. After a killed launch it stays;
readers detect that from the process's start time: `started`, in kernel ticks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.base.errors import ClusterError
from cluster.base.files import write_atomically
from cluster.base.processes import process_started
from cluster.base.spec import ClusterSpec, name_flag
from cluster.live.state import MOST_BYTES, LiveState, parse_state

POINTER, STATE = "run.json", "live.json"
LOOK_S = 0.25
FIRST_STATE_S = 5.0  # grace for a launch that has just begun


@dataclass(frozen=True)
class RunPointer:
    """A launch that is running or was killed.

    Attributes:
        folder: the run folder.
        pid: process ID of the launch.
        started: when that process started, in kernel ticks.
    """

    folder: Path
    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether the launch still runs."""
        return process_started(self.pid) == self.started


@contextmanager
def pointed_at(state_dir: Path, folder: Path) -> Iterator[None]:
    """Let other processes find the run as long as the block lasts; if the pointer cannot be written, they do not."""
    path, pid = state_dir / POINTER, os.getpid()
    document = {"pid": pid, "started": process_started(pid), "folder": str(folder.resolve())}
    with suppress(OSError):
        write_atomically(path, json.dumps(document).encode())
    try:
        yield
    finally:
        found = read_pointer(state_dir)
        if found is not None and found.pid == pid:
            with suppress(OSError):
                path.unlink()


def read_pointer(state_dir: Path) -> RunPointer | None:
    """Return the launch that is running on a cluster, or was killed there; None if there is none."""
    try:
        said = json.loads((state_dir / POINTER).read_text(encoding="utf-8"))
        return RunPointer(Path(said["folder"]), int(said["pid"]), str(said["started"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def read_state(folder: Path) -> LiveState | None:
    """Return the state of a run; None if there is none yet, or this version cannot read it."""
    try:
        with (folder / STATE).open("rb") as file:
            return parse_state(file.read(MOST_BYTES + 1))
    except (OSError, ValueError):  # ValueError: not a valid path
        return None


def find_run(spec: ClusterSpec) -> RunPointer:
    """Return the run in progress on a cluster.

    Raises:
        ClusterError: no run is in progress.
    """
    found = read_pointer(spec.state_dir)
    if found is None or not found.is_alive:
        raise ClusterError(
            f"no run is going on in cluster {spec.name!r}; a run with --no-live cannot be watched",
            f"python -m cluster.launch{name_flag(spec.name)}",
        )
    return found


def follow(pointer: RunPointer) -> Iterator[LiveState]:
    """Yield each new state of a run, up to the last one.

    Raises:
        ClusterError: the launch was killed, or its state cannot be read.
    """
    last, deadline = 0.0, time.monotonic() + FIRST_STATE_S
    while True:
        is_alive = pointer.is_alive  # before reading, so that the last state is not missed
        state = read_state(pointer.folder)
        if state is not None and state.time != last:
            last = state.time
            yield state
        if state is not None and state.is_over:
            return
        if not is_alive:
            raise ClusterError(
                f"the launch process of {pointer.folder.name} ended without recording a result",
                "python -m cluster.status",
            )
        if state is None and time.monotonic() > deadline:
            raise ClusterError(
                f"{pointer.folder / STATE} is missing, or another version of gradwire has written it",
                "watch with the version that launched it",
            )
        time.sleep(LOOK_S)
