"""Supervises one rank on this node: starts it, relays its output, and never leaves a process of it behind.

    python -m node.rank < order        # the first line of standard input is the order: protocol/rank.py

The rank runs at nice 19, so that the wire keeps its timing, in its own process group, and without the capabilities
that change links (node/supervisor/privileges.py). Its output goes, as it comes, to standard output and to the
container's own log. Standard input stays open: when it ends (the launcher stopped the run or was killed, or the
network connection to it broke), the group gets SIGTERM and, ten seconds later, SIGKILL. Everything that the rank
started ends with it. The exit code is the rank's, or 128 + n after signal n; standard error ends with one JSON line,
the report. Several ranks of one run may share a node. Exit 75: another run has the node; 2: the order is invalid.
"""

import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from node.supervisor.descendants import (
    adopt_descendants,
    die_with_parent,
    kill_descendants,
    kill_leftovers,
    reap_orphans,
)
from node.supervisor.error_file import RankError, is_bystander, last_error, read_error
from node.supervisor.oom import oom_kills
from node.supervisor.privileges import be_killed_first, drop_privileges
from protocol import places
from protocol.rank import (
    EXIT_BUSY,
    EXIT_USAGE,
    GRACE_S,
    MOST_ERROR_CHARACTERS,
    RankReport,
    StartOrder,
)
from protocol.rank_variables import ERROR_FILE
from protocol.reader import FormatError, document, parse

LOCK = Path(places.RANK_LOCK)
WORK_FOLDER = Path(places.WORK_FOLDER)
RESULTS_FOLDERS = (Path(places.RUNS_FOLDER), Path(places.SHARED_FOLDER))
KEPT_RUNS = 2  # runs whose results nobody has fetched
CONTAINER_LOG = Path("/proc/1/fd/1")
TAIL_BYTES = 16384  # of a rank's output, to find its last traceback
REAP_INTERVAL_S = 5.0
NICE = 19
MOST_WORDS = 200  # characters of a program's name that are shown


def main() -> int:
    """Read the order, run the rank, report how it ended."""
    try:
        order = parse(StartOrder, sys.stdin.buffer.readline(), "order")
    except FormatError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    with LOCK.open("a+") as lock:
        run = take_node(lock, order.run)
        if run != order.run:
            print(f"busy with run {run}", file=sys.stderr)
            return EXIT_BUSY
        for words in kill_leftovers(run):
            # The program alone: arguments may be tokens and passwords.
            program = words.partition(" ")[0][:MOST_WORDS] or "?"
            print(f"left behind by an earlier run, and ended: {program}", flush=True)
        report = run_and_report(order)
    print(json.dumps(document(report)), file=sys.stderr)
    return report.exit_code if report.exit_code >= 0 else 128 - report.exit_code


def run_and_report(order: StartOrder) -> RankReport:
    """Run the rank to its end and report how it ended."""
    oom_before = oom_kills()
    began = time.time()
    exit_code, tail = run_rank(order)
    ended = time.time()
    error = RankError()
    if exit_code and ERROR_FILE in order.env:
        error = read_error(Path(order.env[ERROR_FILE]), since=began)
    return RankReport(
        exit_code=exit_code,
        time=min(error.time, ended),
        reported=time.time(),
        error=error.words[:MOST_ERROR_CHARACTERS],
        bystander=exit_code > 0 and is_bystander(error.words or last_error(tail)),
        out_of_memory=exit_code != 0 and oom_kills() > oom_before,
    )


def take_node(lock: IO[str], run: str) -> str:
    """Take the node for a run, which may have other ranks here already; returns the run that has the node.

    The process that finds the node free locks it exclusively while it writes the run's name, then shares the lock.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(run)
        lock.flush()
        forget_other_runs(run)
    except BlockingIOError:
        pass  # it is taken, perhaps by this run
    fcntl.flock(lock, fcntl.LOCK_SH)
    lock.seek(0)
    return lock.read().strip()


def run_rank(order: StartOrder) -> tuple[int, str]:
    """Start the rank and wait for its end; returns its exit code, -n after signal n, and the end of its output."""
    adopt_descendants()
    Path(order.run_dir).mkdir(parents=True, exist_ok=True)
    try:
        rank = subprocess.Popen(
            order.argv,
            cwd=order.cwd,
            env=os.environ | order.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_become_rank,
        )
    except OSError as error:
        print(f"{order.argv[0]}: {error.strerror}", flush=True)
        return 127, ""  # as a shell reports a command that does not exist
    assert rank.stdout is not None
    try:
        tail = _forward(rank, rank.stdout)
    finally:
        kill_descendants()
    return rank.wait(), tail.decode(errors="replace")


def forget_other_runs(run: str) -> None:
    """Remove what killed launchers left here, and print what is kept of it.

    A launcher removes the results that it has fetched, so results found here were never fetched. In each folder,
    those of the latest KEPT_RUNS runs are kept.
    """
    for path in WORK_FOLDER.glob("*"):
        if path.name != run:
            shutil.rmtree(path, ignore_errors=True)
    for folder in RESULTS_FOLDERS:
        _forget_results([path for path in folder.glob("*") if path.name != run])


def _forget_results(paths: list[Path]) -> None:
    others = [(_changed_at(path), path) for path in paths if _has_results(path)]
    others.sort(reverse=True)
    for _, path in others[KEPT_RUNS:]:
        shutil.rmtree(path, ignore_errors=True)
        print(f"results of an earlier run that were never fetched are removed: {path}", flush=True)
    for _, path in others[:KEPT_RUNS]:
        print(f"results of an earlier run were never fetched, they are in {path}", flush=True)


def _changed_at(path: Path) -> float:
    """Return the modification time; 0 if another node has just removed the path from the shared folder."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _has_results(folder: Path) -> bool:
    """Return whether the folder has any content. An empty folder is removed."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _become_rank() -> None:
    die_with_parent()
    os.setsid()
    os.nice(NICE)
    be_killed_first()
    drop_privileges()


def _forward(rank: subprocess.Popen[bytes], output: IO[bytes]) -> bytes:
    """Copy output until the rank ends; stop the rank when standard input ends. Returns the end of the output."""
    outlets = [sys.stdout.fileno(), *_container_log()]
    tail = b""
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        pidfd = os.pidfd_open(rank.pid)
        ended = selector.register(pidfd, selectors.EVENT_READ)
        while True:
            left = REAP_INTERVAL_S if deadline is None else max(0.0, deadline - time.monotonic())
            ready = [key for key, _ in selector.select(left)]
            reap_orphans(rank.pid)
            if deadline is not None and time.monotonic() >= deadline:
                _signal_group(rank, signal.SIGKILL)
                deadline = None
            for key in ready:
                if key.fileobj is output:
                    chunk = _copy(output, outlets)
                    tail = (tail + chunk)[-TAIL_BYTES:]
                    if not chunk:
                        selector.unregister(output)
                elif key.fileobj is sys.stdin and not os.read(key.fd, 4096):
                    selector.unregister(sys.stdin)
                    _signal_group(rank, signal.SIGTERM)
                    _signal_group(rank, signal.SIGCONT)  # a stopped process gets SIGTERM only then
                    deadline = time.monotonic() + GRACE_S
            if ended in ready:
                rank.wait()
                kill_descendants()  # whatever the rank left running may print for ever
                tail = (tail + _drain(output, outlets))[-TAIL_BYTES:]
                _end_line(tail, outlets)
                return tail


def _copy(output: IO[bytes], outlets: list[int]) -> bytes:
    """Copy the available output to the outlets and return it, empty at the end. An outlet that fails is dropped."""
    chunk = os.read(output.fileno(), 65536)
    for outlet in list(outlets):
        try:
            os.write(outlet, chunk)
        except OSError:
            outlets.remove(outlet)
    return chunk


def _end_line(tail: bytes, outlets: list[int]) -> None:
    """End the last line if the rank has not: `docker logs` would show the next rank's first words at its end."""
    if tail and not tail.endswith(b"\n"):
        for outlet in outlets:
            with suppress(OSError):
                os.write(outlet, b"\n")


def _drain(output: IO[bytes], outlets: list[int]) -> bytes:
    """Copy what is still in the pipe, without blocking: an unkillable process may hold it open for ever."""
    os.set_blocking(output.fileno(), False)
    tail = b""
    try:
        while chunk := _copy(output, outlets):
            tail = (tail + chunk)[-TAIL_BYTES:]
    except BlockingIOError:
        pass
    return tail


def _container_log() -> list[int]:
    """Open the standard output of the container's first process, which `docker logs` shows, unless it is also ours."""
    try:
        log = os.open(CONTAINER_LOG, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return []  # not a container, or no permission: the launcher's log has all of it
    if os.path.sameopenfile(log, sys.stdout.fileno()):
        os.close(log)
        return []
    return [log]


def _signal_group(rank: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(rank.pid, number)
    except ProcessLookupError:
        pass  # all of it has ended


if __name__ == "__main__":
    sys.exit(main())
