"""Runs one rank on this node and never leaves it behind: the launcher's hand on a node.

    python -m node.rank < order        # the first line of standard input is the order, as JSON

    {"run": "20261121-101500-mobile-fedavg", "argv": ["python3", "train.py"], "cwd": "/root", "run_dir":
    "/run/…", "env": {…}}

The rank runs at nice 19, in a process group of its own, so that the wire keeps its time. What it prints goes
line by line to standard output and to the container's own log. Standard input stays open: when it ends (the
launcher stopped the run, was killed, or the network to it broke), the group gets SIGTERM, ten seconds,
SIGKILL. The exit code is the rank's, 128 + n after signal n; standard error ends with one JSON line,
{"exit_code": …, "time": …, "error": …}: when the rank ended, or when it failed and what it said of it in
its TORCHELASTIC_ERROR_FILE (torch's `@record`). Several ranks of one run may share a node. Exit 75: another
run has it.
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
from pathlib import Path
from typing import IO, Any

from node.error_file import RankError, read_error

LOCK = Path("/run/gradwire/rank.lock")
RUN_FOLDERS = (Path("/root/work"), Path("/run/gradwire/runs"))
CONTAINER_LOG = Path("/proc/1/fd/1")
GRACE_S = 10.0
MOST_WORDS = 300  # of an error, in characters
NICE = 19
EXIT_BUSY = 75  # EX_TEMPFAIL of sysexits.h


def main() -> int:
    """Take the order, run the rank, report how it ended."""
    order = json.loads(sys.stdin.buffer.readline())
    with LOCK.open("a+") as lock:
        run = take_node(lock, order["run"])
        if run != order["run"]:
            print(f"busy with run {run}", file=sys.stderr)
            return EXIT_BUSY
        exit_code = run_rank(order)
    error = read_error(Path(order["env"]["TORCHELASTIC_ERROR_FILE"])) if exit_code else RankError()
    report = {"exit_code": exit_code, "time": min(error.time, time.time())}
    print(json.dumps(report | {"error": error.words[:MOST_WORDS]}), file=sys.stderr)
    return exit_code if exit_code >= 0 else 128 - exit_code


def take_node(lock: IO[str], run: str) -> str:
    """Take the node for a run, of which other ranks may be here already; returns the run that has it.

    Who finds it free takes it for itself for a moment, to write whose it is, and then shares it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(run)
        lock.flush()
        _forget_other_runs(run)
    except BlockingIOError:
        pass  # it is taken: by this run, perhaps
    fcntl.flock(lock, fcntl.LOCK_SH)
    lock.seek(0)
    return lock.read().strip()


def run_rank(order: dict[str, Any]) -> int:
    """Start the rank and stay until it has ended; returns its code, -n after signal n."""
    Path(order["run_dir"]).mkdir(parents=True, exist_ok=True)
    try:
        rank = subprocess.Popen(
            order["argv"],
            cwd=order["cwd"],
            env=os.environ | order["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_own_group_at_low_priority,
        )
    except OSError as error:
        print(f"{order['argv'][0]}: {error.strerror}", flush=True)
        return 127  # what a shell says of a command that is not there
    assert rank.stdout is not None
    try:
        _forward(rank, rank.stdout)
    finally:
        _signal_group(rank, signal.SIGKILL)  # whatever the rank itself left running
    return rank.wait()


def _forget_other_runs(run: str) -> None:
    """Remove what launchers left here that were killed before they could."""
    for folder in RUN_FOLDERS:
        for path in folder.glob("*"):
            if path.name != run:
                shutil.rmtree(path, ignore_errors=True)


def _own_group_at_low_priority() -> None:
    os.setsid()
    os.nice(NICE)


def _forward(rank: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    """Copy the rank's output until it ends; stop the rank when our standard input does."""
    outlets = [sys.stdout.fileno(), *_container_log()]
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        pidfd = os.pidfd_open(rank.pid)
        ended = selector.register(pidfd, selectors.EVENT_READ)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = [key for key, _ in selector.select(left)]
            if deadline is not None and time.monotonic() >= deadline:
                _signal_group(rank, signal.SIGKILL)
                deadline = None
            for key in ready:
                if key.fileobj is output and not _copy(output, outlets):
                    selector.unregister(output)
                elif key.fileobj is sys.stdin and not os.read(key.fd, 4096):
                    selector.unregister(sys.stdin)
                    _signal_group(rank, signal.SIGTERM)
                    deadline = time.monotonic() + GRACE_S
            if ended in ready:
                _drain(output, outlets)
                return


def _copy(output: IO[bytes], outlets: list[int]) -> bool:
    """Hand on what there is; False at the end. An outlet that has gone is forgotten."""
    chunk = os.read(output.fileno(), 65536)
    for outlet in list(outlets):
        try:
            os.write(outlet, chunk)
        except OSError:
            outlets.remove(outlet)
    return bool(chunk)


def _drain(output: IO[bytes], outlets: list[int]) -> None:
    """What the rank printed last is still in the pipe; its orphans may hold the pipe open for ever."""
    os.set_blocking(output.fileno(), False)
    try:
        while _copy(output, outlets):
            pass
    except BlockingIOError:
        pass


def _container_log() -> list[int]:
    """The standard output of the container's first process: what `docker logs` shows."""
    try:
        return [os.open(CONTAINER_LOG, os.O_WRONLY | os.O_APPEND)]
    except OSError:
        return []  # not a container, or not ours: the launcher's log has it all


def _signal_group(rank: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(rank.pid, number)
    except ProcessLookupError:
        pass  # all of it has ended


if __name__ == "__main__":
    sys.exit(main())
